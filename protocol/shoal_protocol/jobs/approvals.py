"""Documents by which a data holder's owners approve or refuse a job, and analysts learn of it."""

from datetime import datetime
from typing import ClassVar, Final, Literal, get_args

from nacl.signing import VerifyKey

from shoal_protocol.wire.documents import BoundDocument, Role, Signed
from shoal_protocol.wire.encoding import Digest, HolderIndex, Name, Timestamp
from shoal_protocol.wire.errors import UnknownSigner, WrongSigner

Decision = Literal["approve", "refuse"]
State = Literal["waits", "approved", "refused"]

WAITS: Final = "waits"
APPROVED: Final = "approved"
REFUSED: Final = "refused"
STATES: Final[tuple[State, ...]] = get_args(State)


class Approval(BoundDocument):
    """Owner -> vault: this data holder may take part in the job, or may not.

    The owner's policy lists the keys; neither the roster nor the courier has them.
    """

    signed_by: ClassVar[Role] = Role.OWNER
    signer_field: ClassVar[str | None] = "owner"

    kind: Literal["approval"] = "approval"
    job: Digest
    holder: HolderIndex
    owner: Name
    decision: Decision
    decided_at: Timestamp


class ApprovalNotice(BoundDocument):
    """Holder -> trainer: its owners have yet to decide about the job, or did.

    Of two, the later of `STATES` holds; `approved` is for crowd jobs, which nobody joins. It binds
    nobody: it tells the analyst whom she waits for.
    """

    signed_by: ClassVar[Role] = Role.HOLDER

    kind: Literal["approval_notice"] = "approval_notice"
    job: Digest
    holder: HolderIndex
    state: State


def check_approval(signed: Signed[Approval], key: str | None) -> None:
    """Check that an owner signed an approval; `key` is the one listed for its signer, in hex.

    Raises:
        UnknownSigner: none is.
        WrongSigner: it speaks for another owner than its signer.
        BadSignature: it is not this key's.
    """
    if key is None:
        raise UnknownSigner("no owner of this name is listed in the data holder's policy")
    if signed.body.owner != signed.signer:
        raise WrongSigner("the document speaks for another party than its signer")
    signed.verify_signature(VerifyKey(bytes.fromhex(key)))


def approval_of(
    request: BoundDocument, *, holder: int, owner: str, decision: Decision, now: datetime
) -> Approval:
    """Return an owner's decision about a job of either kind, to be signed."""
    return Approval(
        manifest=request.manifest,
        job=request.digest,
        holder=holder,
        owner=owner,
        decision=decision,
        decided_at=now,
    )

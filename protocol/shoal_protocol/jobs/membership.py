"""Documents by which a data holder finds, approves, joins or leaves a job.

Its analyst may withdraw the job. Each signer has one document of each kind for a job, so sending it
again changes nothing.
"""

from datetime import datetime
from typing import ClassVar, Final, Literal, Protocol, TypeVar, get_args

from nacl.signing import VerifyKey

from shoal_protocol.trust.manifest import Parties
from shoal_protocol.wire.documents import BoundDocument, Role, Signed
from shoal_protocol.wire.encoding import Digest, HolderIndex, Name, Timestamp
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError, UnknownSigner, WrongSigner

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


class JobWithdrawn(ProtocolError):
    """A job that its analyst has withdrawn: it has no posterior, and asks nothing more."""

    code = "job-withdrawn"
    title = "The analyst has withdrawn the job"
    status = 410
    remedy = "Submit a new job, if there is still something to learn."


class HolderQuery(BoundDocument):
    """Holder -> trainer: which jobs of either kind are there? Valid for minutes, and again."""

    signed_by: ClassVar[Role] = Role.HOLDER

    kind: Literal["holder_query"] = "holder_query"
    holder: HolderIndex
    at: Timestamp


class Join(BoundDocument):
    """Holder -> trainer: this data holder takes part in the job, with all of its slots."""

    signed_by: ClassVar[Role] = Role.HOLDER

    kind: Literal["join"] = "join"
    job: Digest
    holder: HolderIndex


class JobEnding(BoundDocument):
    """A document that ends a job, of either kind, before its time."""

    signed_by: ClassVar[Role] = Role.ANALYST
    signer_field: ClassVar[str | None] = "analyst"

    job: Digest
    analyst: Name  # whose job it is


class JobWithdrawal(JobEnding):
    """Analyst -> all: the job asks nothing more; what answered rounds cost stays charged."""

    kind: Literal["job_withdrawal"] = "job_withdrawal"


class Leave(BoundDocument):
    """Holder -> trainer: this data holder answers no round of the job from now on.

    Before the population is fixed its slots do not count; afterwards they are dropouts.
    """

    signed_by: ClassVar[Role] = Role.HOLDER

    kind: Literal["leave"] = "leave"
    job: Digest
    holder: HolderIndex


EndingT = TypeVar("EndingT", bound=JobEnding)


class Asked(Protocol):
    """A job of either kind, as its analyst asked for it."""

    @property
    def digest(self) -> str: ...
    @property
    def manifest(self) -> str: ...
    @property
    def analyst(self) -> str: ...


def check_ending(signed: Signed[EndingT], request: Asked, parties: Parties) -> None:
    """Refuse to end a job unless the analyst who asked for it signed so.

    `parties` are of the manifest that `request` is bound to.

    Raises:
        MalformedDocument: it is about another job.
        WrongSigner: another analyst signed it.
        ProtocolError: it is not signed as it should be.
    """
    body = signed.body
    if (body.job, body.manifest) != (request.digest, request.manifest):
        raise MalformedDocument("what is to end a job is about another one")
    parties.verify(signed)
    if body.analyst != request.analyst:
        raise WrongSigner("only the analyst who asked for a job may end it")

"""Documents by which a data holder finds a job, and says where it stands with it.

The job's analyst may withdraw it. Sending a document again changes nothing.
"""

from datetime import datetime
from typing import ClassVar, Final, Literal, get_args

from nacl.signing import VerifyKey

from shoal_protocol.trust.manifest import Parties
from shoal_protocol.wire.documents import (
    AnalystDocument,
    BoundDocument,
    HolderDocument,
    Role,
    Signed,
)
from shoal_protocol.wire.encoding import Digest, HolderIndex, Name, Timestamp
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError, UnknownSigner, WrongSigner

Decision = Literal["approve", "refuse"]
State = Literal["waits", "approved", "refused", "joined", "left"]

WAITS: Final = "waits"
APPROVED: Final = "approved"
REFUSED: Final = "refused"
JOINED: Final = "joined"
LEFT: Final = "left"
STATES: Final[tuple[State, ...]] = get_args(State)


class Approval(BoundDocument):
    """Owner -> vault: this data holder may take part in the job, or may not.

    The owner's policy lists the verify keys, and the roster does not. The private ones are the
    owners' alone.
    """

    signed_by: ClassVar[Role] = Role.OWNER
    signer_field: ClassVar[str | None] = "owner"

    kind: Literal["approval"] = "approval"
    job: Digest
    holder: HolderIndex
    owner: Name
    decision: Decision
    decided_at: Timestamp


class Membership(HolderDocument):
    """Holder -> trainer: where it stands with the job; of two, the later of `STATES` holds.

    Its owners have yet to decide, or did: that binds nobody, and tells the analyst whom she waits
    for. Who `joined` takes part with all of its slots. Who `left` answers no round from now on;
    before the population is fixed its slots do not count, and afterwards they are dropouts. Nobody
    joins or leaves a crowd job, and `approved` is for these alone.
    """

    kind: Literal["membership"] = "membership"
    job: Digest
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

    title = "The analyst has withdrawn the job"
    status = 410
    remedy = "Submit a new job, if there is still something to learn."


class HolderQuery(HolderDocument):
    """Holder -> trainer: which jobs of either kind are there? Valid for minutes, and again."""

    kind: Literal["holder_query"] = "holder_query"
    at: Timestamp


class JobWithdrawal(AnalystDocument):
    """Analyst -> all: the job, of either kind, ends before its time; what was paid stays paid.

    A job in rounds has no posterior then. A crowd closes with what was contributed so far.
    """

    kind: Literal["job_withdrawal"] = "job_withdrawal"
    job: Digest


def check_ending(signed: Signed[JobWithdrawal], request: AnalystDocument, parties: Parties) -> None:
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

"""Who takes part in a job: a client joins it or leaves it, or its analyst withdraws it for all.

There is one document of each kind for a job and who signs it: sending it again says the same.
"""

from typing import ClassVar, Literal

from pydantic import Field

from shoal_protocol.documents import BoundDocument, Role, Signed
from shoal_protocol.encoding import LARGEST_CLIENT_INDEX, Digest, Name
from shoal_protocol.errors import MalformedDocument, ProtocolError, WrongSigner
from shoal_protocol.jobs import JobRequest
from shoal_protocol.manifest import Parties


class JobWithdrawn(ProtocolError):
    """A job that its analyst has withdrawn: it has no posterior, and asks nothing more."""

    code = "job-withdrawn"
    title = "The analyst has withdrawn the job"
    status = 410
    remedy = "Submit a new job, if there is still something to learn."


class ClientLeft(ProtocolError):
    """A join of a client that has left the job, and so an old one."""

    code = "client-left"
    title = "The client has left the job"
    status = 409
    remedy = "Nothing: who left a job does not come back to it."


class Join(BoundDocument):
    """Client -> trainer: this client takes part in the job."""

    signed_by: ClassVar[Role] = Role.CLIENT

    kind: Literal["join"] = "join"
    job: Digest
    client: int = Field(ge=0, le=LARGEST_CLIENT_INDEX)


class JobWithdrawal(BoundDocument):
    """Analyst -> all: the job asks nothing more; what answered rounds cost stays charged."""

    signed_by: ClassVar[Role] = Role.ANALYST
    signer_field: ClassVar[str | None] = "analyst"

    kind: Literal["job_withdrawal"] = "job_withdrawal"
    job: Digest
    analyst: Name  # whose job it is


class Leave(BoundDocument):
    """Client -> trainer: this client answers no round of the job from now on.

    Before the population is fixed it does not count; afterwards it is one of the dropouts.
    """

    signed_by: ClassVar[Role] = Role.CLIENT

    kind: Literal["leave"] = "leave"
    job: Digest
    client: int = Field(ge=0, le=LARGEST_CLIENT_INDEX)


def check_withdrawal(signed: Signed[JobWithdrawal], request: JobRequest, parties: Parties) -> None:
    """Refuse a withdrawal unless the analyst who asked for the job signed it.

    `parties` are of the manifest that `request` is bound to.

    Raises:
        MalformedDocument: it is about another job.
        WrongSigner: another analyst signed it.
        ProtocolError: it is not signed as it should be.
    """
    body = signed.body
    if (body.job, body.manifest) != (request.digest, request.manifest):
        raise MalformedDocument("the withdrawal is of another job")
    parties.verify(signed)
    if body.analyst != request.analyst:
        raise WrongSigner("only the analyst who asked for a job may withdraw it")

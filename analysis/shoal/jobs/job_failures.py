"""Exceptions for an analyst's job that is refused, fails or is interrupted."""

import re
from typing import Final

from shoal_kit.peers.service_calls import NoResult, Refused
from shoal_protocol.crowds.draws import CrowdJobRequest
from shoal_protocol.jobs.membership import JobWithdrawn as _WithdrawnProblem
from shoal_protocol.wire.errors import ProtocolError, UnknownJob
from shoal_protocol.wire.service_errors import ChangedReport
from shoal_studies.study_request import StudyRequest

_WITHDRAWN: Final = "the job was withdrawn by its analyst, and will have no posterior"
_TWO_KINDS: Final = (
    "`shoal job list` shows the jobs in rounds and then the crowd jobs, for which there "
    "are the commands of `shoal crowd` only"
)


class JobRefused(Refused):
    """The trainer does not take the job; the message holds the refusal's code and detail."""


class OutOfBudget(JobRefused):
    """Too few clients have enough of their privacy budget left for the job."""


class JobFailed(NoResult):
    """The job ended without a posterior; the message says why."""


class JobWithdrawn(JobFailed):
    """Its analyst has withdrawn the job: it will have no posterior."""


def naming_columns(reason: str, request: StudyRequest | CrowdJobRequest) -> str:
    """Name the column that the trainer counts: over HTTP it repeats no name that was sent."""
    read = request.task.columns if isinstance(request, CrowdJobRequest) else request.terms.read

    def named(counted: re.Match[str]) -> str:
        place = int(counted[1])
        return f"column {read[place - 1].name!r} is" if 0 < place <= len(read) else counted[0]

    return re.sub(r"\bcolumn (\d{1,9}) is", named, reason)


def failure(code: str, reason: str) -> JobFailed | JobRefused | ProtocolError:
    """Return what to raise where the trainer does not show what it has of a job, and why."""
    if code == UnknownJob.code:
        return JobRefused(f"{reason}. {_TWO_KINDS}")
    if code == ChangedReport.code:  # a trainer that made two reports lies in one
        return ChangedReport(reason.removeprefix(f"{code}: "))
    if code == _WithdrawnProblem.code:
        return JobWithdrawn(_WITHDRAWN)
    return JobFailed(reason.removeprefix("job-failed: "))


def in_doubt(job: str) -> str:
    """Say what to do about a job that the trainer may have taken, or not."""
    return (
        f"The trainer may have taken the job, or not; its id is {job}. See `shoal job list`. If it "
        f"is there, go on with it: for a model, estimator.fit_from(federation.resume({job!r})). A "
        "new fit is another job, at a price of its own"
    )


class JobInterrupted(KeyboardInterrupt):
    """Handing in a job, or the wait for it, was interrupted. `job` is its id.

    A job that the trainer `acknowledged` goes on; another one it may have, or not.
    """

    def __init__(self, job: str, *, acknowledged: bool = True) -> None:
        super().__init__(
            f"interrupted, but the job goes on; its id is {job}. To come back: "
            f"estimator.fit_from(federation.resume({job!r}))"
            if acknowledged
            else f"interrupted. {in_doubt(job)}"
        )
        self.job = job
        self.acknowledged = acknowledged

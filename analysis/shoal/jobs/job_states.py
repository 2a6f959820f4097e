"""Unsigned states of jobs, as the trainer reports them."""

from datetime import datetime

import pydantic

from shoal.jobs.job_check import Budget
from shoal_protocol.jobs.job_state import Approvals
from shoal_protocol.wire.encoding import Count, Delta, Integer, Loss, Size
from shoal_protocol.wire.phases import CrowdPhase, JobPhase
from shoal_studies.study_request import Position


class ListedJob(pydantic.BaseModel):
    """A job in the trainer's list: who asked what, when and at which price."""

    job: str
    phase: JobPhase
    submitted_at: datetime
    ends_by: datetime
    analyst: str
    task: str
    columns: tuple[str, ...]
    purpose: str
    epsilon: Loss
    delta: Delta
    reason: str | None
    approvals: Approvals = Approvals()


class JobsPage(pydantic.BaseModel):
    """Jobs, the newest first, and enrolled clients by what they have left; where to go on."""

    jobs: tuple[ListedJob, ...]
    budgets: tuple[Budget, ...]
    next: Position | None


class _Crowd(pydantic.BaseModel):
    job: str
    phase: CrowdPhase
    contributions: Count
    wanted: Count
    closes_at: datetime
    approvals: Approvals = Approvals()

    @property
    def waits_in_words(self) -> str:
        """Say at how many data holders owners have yet to approve it, or refused it, while open."""
        return self.approvals.in_words("until it closes") if self.phase is CrowdPhase.OPEN else ""


class CrowdState(_Crowd):
    """A crowd job's state, by the trainer's word.

    `contributions` of `wanted` were taken, from `contributors` clients. `spread` is the variance
    of each weight over the instances, None with a single instance.
    """

    contributors: Count
    spread: tuple[Size, ...] | None

    def __str__(self) -> str:
        said = (
            f"{self.phase}: {self.contributions:,} of {self.wanted:,} contributions, from "
            f"{self.contributors:,} clients"
        )
        if self.phase is CrowdPhase.CLOSED:
            return said
        closes = f"closes {self.closes_at:%Y-%m-%d %H:%M:%S} UTC"
        return "; ".join(filter(None, [said, closes, self.waits_in_words]))

    @property
    def has_result(self) -> bool:
        """Tell whether the result can be fetched now."""
        return self.phase is CrowdPhase.CLOSED


class ShownInstance(pydantic.BaseModel):
    """An instance of a crowd's model as it is now."""

    weights: tuple[Integer, ...]


class Snapshot(pydantic.BaseModel):
    """All instances, at one moment."""

    contributions: Count
    instances: tuple[ShownInstance, ...]


class ListedCrowd(_Crowd):
    """A crowd job in the trainer's list: `epsilon` is of one contribution."""

    analyst: str
    family: str
    epsilon: Loss


class CrowdsPage(pydantic.BaseModel):
    """Crowd jobs, the newest first; where to go on."""

    crowds: tuple[ListedCrowd, ...]
    next: Position | None

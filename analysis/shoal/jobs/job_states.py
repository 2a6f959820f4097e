"""Unsigned states of jobs, as the trainer reports them."""

from datetime import datetime

import pydantic

from shoal.jobs.job_check import Budget
from shoal_protocol.wire.encoding import Count, Delta, Integer, Loss, Size
from shoal_protocol.wire.phases import CrowdPhase, JobPhase, Phase
from shoal_studies.study_request import Position


class RoundState(pydantic.BaseModel):
    """One round's state, by the trainer's word."""

    round: str
    number: Count
    phase: str
    deadline: datetime | None = None
    asked: Count | None = None  # clients
    cohort: Count | None = None  # clients whose answers are in the sum


class Approvals(pydantic.BaseModel):
    """How many of all data holders wait for their owners' approval of a job, or were refused it."""

    waits: Count = 0
    refused: Count = 0
    holders: Count = 0

    def in_words(self, until: str) -> str:
        """Say it, with the moment until which owners may decide; nothing if nobody waits."""
        said = []
        if self.waits:
            said.append(
                f"waits for approval at {self.waits:,} of {self.holders:,} data holders, {until}"
            )
        if self.refused:
            said.append(f"refused by owners at {self.refused:,} of {self.holders:,}")
        return "; ".join(said)


class JobState(pydantic.BaseModel):
    """The state of a job in rounds, by the trainer's word.

    `round_counts` are of all its rounds by phase, `rounds` its newest ones in order.
    """

    job: str
    phase: JobPhase
    joined: Count
    population_size: Count | None = None
    round_counts: dict[str, Count] = {}
    rounds: tuple[RoundState, ...] = ()
    reason: str | None = None
    left: Count = 0  # clients, before or after the population was fixed
    ends_by: datetime | None = None  # when it is over at the latest
    approvals: Approvals = Approvals()

    @property
    def published(self) -> int:
        """How many rounds released a sum."""
        return self.round_counts.get(Phase.PUBLISHED.value, 0)

    @property
    def lost(self) -> int:
        """How many rounds ended without one."""
        return self.round_counts.get(Phase.ABANDONED.value, 0)

    def rounds_in_words(self, rounds: int) -> str:
        """Say how many of the job's `rounds` have released a sum, and how many were lost."""
        lost = f", {self.lost:,} lost" if self.lost else ""
        return f"{self.published:,} of {rounds:,} rounds published{lost}"

    def in_words(self, *, rounds: int, join_deadline: datetime) -> str:
        """Say where the job, of at most so many rounds, stands, in one line."""
        facts = [f"{self.phase}: {self.joined:,} joined"]
        if self.phase is JobPhase.JOINING:
            facts.append(f"joining is open until {join_deadline:%Y-%m-%d %H:%M:%S} UTC")
            facts.append(self.approvals.in_words("until then"))
        if self.phase is JobPhase.RUNNING and self.ends_by is not None:
            facts.append(f"the job ends by {self.ends_by:%Y-%m-%d %H:%M:%S} UTC")
        if self.rounds:
            newest = self.rounds[-1]
            facts.append(f"{self.rounds_in_words(rounds)}; round {newest.number} {newest.phase}")
        return "; ".join(filter(None, facts))

    @property
    def has_result(self) -> bool:
        """Tell whether the result can be fetched now."""
        return self.phase is JobPhase.FINISHED


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
    approvals: Approvals = Approvals()

    @property
    def waits_in_words(self) -> str:
        """Say at how many data holders owners have yet to approve it, or refused it, while open."""
        return self.approvals.in_words("until it closes") if self.phase is CrowdPhase.OPEN else ""


class CrowdState(_Crowd):
    """A crowd job's state, by the trainer's word.

    `contributions` of `wanted` were taken, from `contributors` clients. `spread` is the variance
    of each weight over the instances, None with a single instance. `turned_at` is after about
    how many contributions the truth was seen to turn, None if it was not.
    """

    contributions: Count
    wanted: Count
    contributors: Count
    spread: tuple[Size, ...] | None
    turned_at: Count | None
    closes_at: datetime

    def __str__(self) -> str:
        said = (
            f"{self.phase}: {self.contributions:,} of {self.wanted:,} contributions, from "
            f"{self.contributors:,} clients"
        )
        if self.turned_at is not None:
            said += f"; the truth turned at about contribution {self.turned_at:,}"
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
    contributions: Count
    wanted: Count
    closes_at: datetime


class CrowdsPage(pydantic.BaseModel):
    """Crowd jobs, the newest first; where to go on."""

    crowds: tuple[ListedCrowd, ...]
    next: Position | None

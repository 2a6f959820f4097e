"""States of jobs in rounds, and of their rounds: what a trainer says unsigned, and others read."""

from datetime import datetime

import pydantic

from shoal_protocol.rounds.attestations import RoundFailure
from shoal_protocol.wire.encoding import Count, Timestamp
from shoal_protocol.wire.phases import FINISHED, JobPhase, Phase


class RoundState(pydantic.BaseModel):
    """One round's state. A round that was lost says why in `failure`."""

    round: str
    number: Count
    phase: Phase
    deadline: Timestamp | None = None
    asked: Count | None = None  # clients
    cohort: Count | None = None  # clients whose answers are in the sum
    failure: RoundFailure | None = None


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
    """The state of a job in rounds.

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
    ends_by: Timestamp | None = None  # when it is over at the latest
    approvals: Approvals = Approvals()

    @property
    def published(self) -> int:
        """How many rounds released a sum."""
        return self.round_counts.get(Phase.PUBLISHED.value, 0)

    @property
    def lost(self) -> int:
        """How many rounds ended without one."""
        return self.round_counts.get(Phase.ABANDONED.value, 0)

    @property
    def has_result(self) -> bool:
        """Tell whether the result can be fetched now."""
        return self.phase is JobPhase.FINISHED

    @property
    def has_failed(self) -> bool:
        """Tell whether the job ended without a result."""
        return self.phase in {JobPhase.FAILED, JobPhase.WITHDRAWN}

    def is_past(self, number: int) -> bool:
        """Tell whether the trainer knows what became of the job's round of this number."""
        if self.has_failed or self.has_result:
            return True
        return any(
            each.number > number or (each.number == number and each.phase in FINISHED)
            for each in self.rounds
        )

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

"""The phases of a round and of a job as tables; services only carry them out."""

from enum import StrEnum
from typing import Final, TypeVar

from shoal_protocol.wire.errors import WrongPhase


class Phase(StrEnum):
    """A round's phase at one party."""

    ANNOUNCED = "announced"
    COLLECTING = "collecting"
    FROZEN = "frozen"
    AGREED = "agreed"
    PUBLISHED = "published"
    ABANDONED = "abandoned"


class Event(StrEnum):
    """An event that moves a round to another phase."""

    SHARE_STORED = "share_stored"  # the first share is durable
    FROZEN = "frozen"  # the deadline passed, or all shares are there: no more are taken
    COHORT_AGREED = "cohort_agreed"  # M equal votes are held; the partial sum is durable
    SUM_PUBLISHED = "sum_published"  # the aggregator has it, or is lost and nobody waits for it
    GIVEN_UP = "given_up"  # by this party's own decision: nothing of it was released
    CALLED_OFF = "called_off"  # by the aggregator's signed abandonment


ROUND: Final = {
    (Phase.ANNOUNCED, Event.SHARE_STORED): Phase.COLLECTING,
    (Phase.ANNOUNCED, Event.FROZEN): Phase.FROZEN,
    (Phase.COLLECTING, Event.FROZEN): Phase.FROZEN,
    (Phase.FROZEN, Event.COHORT_AGREED): Phase.AGREED,
    (Phase.AGREED, Event.SUM_PUBLISHED): Phase.PUBLISHED,
    (Phase.ANNOUNCED, Event.GIVEN_UP): Phase.ABANDONED,
    (Phase.COLLECTING, Event.GIVEN_UP): Phase.ABANDONED,
    (Phase.FROZEN, Event.GIVEN_UP): Phase.ABANDONED,
    # from `agreed` on, a partial sum may be out: only the aggregator can say that nothing was
    (Phase.ANNOUNCED, Event.CALLED_OFF): Phase.ABANDONED,
    (Phase.COLLECTING, Event.CALLED_OFF): Phase.ABANDONED,
    (Phase.FROZEN, Event.CALLED_OFF): Phase.ABANDONED,
    (Phase.AGREED, Event.CALLED_OFF): Phase.ABANDONED,
}

TAKES_SHARES: Final = (Phase.ANNOUNCED, Phase.COLLECTING)
FINISHED: Final = frozenset({Phase.PUBLISHED, Phase.ABANDONED})


class JobPhase(StrEnum):
    """A job's phase at the trainer."""

    JOINING = "joining"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"


class JobEvent(StrEnum):
    """An event that moves a job to another phase."""

    POPULATION_FIXED = "population_fixed"
    POPULATION_TOO_SMALL = "population_too_small"
    ROUND_ABANDONED = "round_abandoned"
    POSTERIOR_READY = "posterior_ready"
    TIME_OVER = "time_over"  # whatever became of it
    WITHDRAWN = "withdrawn"  # by its analyst's signature


JOB: Final = {
    (JobPhase.JOINING, JobEvent.POPULATION_FIXED): JobPhase.RUNNING,
    (JobPhase.JOINING, JobEvent.POPULATION_TOO_SMALL): JobPhase.FAILED,
    (JobPhase.RUNNING, JobEvent.ROUND_ABANDONED): JobPhase.FAILED,
    (JobPhase.RUNNING, JobEvent.POSTERIOR_READY): JobPhase.FINISHED,
    (JobPhase.RUNNING, JobEvent.TIME_OVER): JobPhase.FAILED,
    (JobPhase.JOINING, JobEvent.WITHDRAWN): JobPhase.WITHDRAWN,
    (JobPhase.RUNNING, JobEvent.WITHDRAWN): JobPhase.WITHDRAWN,
}


class CrowdPhase(StrEnum):
    """A crowd job's phase at the trainer."""

    OPEN = "open"
    CLOSED = "closed"


PhaseT = TypeVar("PhaseT", bound=StrEnum)
EventT = TypeVar("EventT", bound=StrEnum)


def after(table: dict[tuple[PhaseT, EventT], PhaseT], phase: PhaseT, event: EventT) -> PhaseT:
    """Return the phase that follows `phase` on `event`.

    Raises:
        WrongPhase: the table has no such step.
    """
    try:
        return table[phase, event]
    except KeyError:
        raise WrongPhase(f"{phase} cannot take {event}") from None

"""Counts of what a data holder did in crowd jobs; it names digests and codes, never a client."""

from dataclasses import dataclass
from typing import Final

NO_CROWDS: Final = (
    "this data holder contributes to no crowd jobs: see `maximum_local_epsilon` in its policy"
)


@dataclass(frozen=True)
class CrowdStatus:
    """One crowd job. `contributions` counts them by outcome: acknowledged, or a refusal's code.

    `verdict` is None until the job is closed and the trainer's closing was compared with what it
    signed to us: "borne out", or how the trainer cheated. `is_closed`: the closing was shown.
    """

    job: str
    ended: str | None
    contributions: dict[str, int]
    verdict: str | None
    is_closed: bool = False


@dataclass(frozen=True)
class CrowdSpending:
    """One crowd job: how often it was charged, to how many clients, at which epsilon each time."""

    job: str
    contributions: int
    clients: int
    epsilon: float


@dataclass(frozen=True)
class RecordsLeft:
    """The epsilon that a record may still spend, of the client with the least and the most."""

    maximum: float
    least: float
    most: float


@dataclass(frozen=True)
class CrowdAccounts:
    """The charges of every crowd job, in order; `left` is None if no crowd job is allowed."""

    jobs: tuple[CrowdSpending, ...]
    left: RecordsLeft | None

"""What a data holder tells its owner of crowd jobs: counts and verdicts, never a client."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

NO_CROWDS: Final = (
    "this data holder contributes to no crowd jobs: see `maximum_local_epsilon` in its policy"
)


@dataclass(frozen=True)
class CrowdStatus:
    """One crowd job. `contributions` counts them by outcome: acknowledged, or a refusal's code.

    Each was charged `epsilon`, to so many `clients` in all.
    `verdict` is None until the job is closed and the trainer's closing was compared with what it
    signed to us: "borne out", or how the trainer cheated.
    """

    job: str
    ended: str | None
    contributions: dict[str, int]
    clients: int
    epsilon: float
    verdict: str | None


BORNE_OUT: Final = "borne out"
"""The closing bears out every draw and receipt that was kept."""

UNREAD: Final = "borne out, but for logs that are too long to be fetched here"
"""The same, without what only such a log shows; draws and receipts are kept for who follows it."""

CLOSED_EARLY: Final = "; closed early by its analyst"
"""Follows one of these where she signed that the job was to be closed before its time."""

WRONG_RECEIPT: Final = "wrong-receipt"
"""The outcome of a submission whose receipt is another submission's, or is not signed."""

_MOST_NAMED: Final = 5
_NONCE: Final = re.compile(r"^(draw|submission) [0-9a-f]{64}: ")


def in_words(faults: Mapping[str, Sequence[str]], *, unread: bool, early: bool) -> str:
    """Word what is wrong and how often, without nonces, which would identify contributors.

    `faults` are those of each contribution; `unread`, whether logs were left out; `early`,
    whether the closing shows that the analyst asked for it before the job's time.
    """
    said = Counter(_NONCE.sub("", each) for several in faults.values() for each in several)
    named = [f"{what} ({times} times)" for what, times in said.most_common(_MOST_NAMED)]
    borne_out = (UNREAD if unread else BORNE_OUT) + (CLOSED_EARLY if early else "")
    return "; ".join(named) or borne_out


def is_cheating(verdict: str | None) -> bool:
    """Tell whether a verdict says that the trainer did not keep to its word."""
    return verdict is not None and not verdict.startswith(BORNE_OUT)

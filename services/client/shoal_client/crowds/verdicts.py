"""What a data holder says of a trainer when a crowd job is closed; it checks nothing itself."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

BORNE_OUT: Final = "borne out"
"""The closing bears out every draw and receipt that was kept."""

UNREAD: Final = "borne out, but for logs that are too long to be fetched here"
"""The same, without what only such a log shows; draws and receipts are kept for who follows it."""

_MOST_NAMED: Final = 5
_NONCE: Final = re.compile(r"^(draw|submission) [0-9a-f]{64}: ")


def in_words(faults: Mapping[str, Sequence[str]], *, unread: bool) -> str:
    """Say what is wrong and how often, without the nonces: they would tell whose contributions.

    `faults` are those of each contribution; `unread`, whether logs were left out.
    """
    said = Counter(_NONCE.sub("", each) for several in faults.values() for each in several)
    named = [f"{what} ({times} times)" for what, times in said.most_common(_MOST_NAMED)]
    return "; ".join(named) or (UNREAD if unread else BORNE_OUT)


def is_cheating(verdict: str | None) -> bool:
    """Tell whether a verdict says that the trainer did not keep to its word."""
    return verdict not in (None, BORNE_OUT, UNREAD)

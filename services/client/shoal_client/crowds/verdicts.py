"""What a data holder says of a trainer when a crowd job is closed; it checks nothing itself."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

BORNE_OUT: Final = "borne out"
"""The closing bears out every draw and receipt that was kept."""

_MOST_NAMED: Final = 5
_NONCE: Final = re.compile(r"^(draw|submission) [0-9a-f]{64}: ")


def in_words(faults: Mapping[str, Sequence[str]]) -> str:
    """Say what is wrong and how often, without the nonces: they would tell whose contributions.

    `faults` are those of each contribution.
    """
    said = Counter(_NONCE.sub("", each) for several in faults.values() for each in several)
    named = [f"{what} ({times} times)" for what, times in said.most_common(_MOST_NAMED)]
    return "; ".join(named) or BORNE_OUT

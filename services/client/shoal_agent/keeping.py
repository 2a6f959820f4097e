"""What a data holder's state keeps, how much of it, why, and until when.

Nothing of it goes by the consortium's `retention_days`: caps and the refusal of replays rest on it.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import pydantic

from shoal_holder.status import ENVELOPES
from shoal_protocol.wire.encoding import Count

_EVER: Final = "for ever"


class Kept(pydantic.BaseModel):
    """Documents of one kind: how many there are, until when they stay, and why."""

    kind: str
    documents: Count
    stays: str
    why: str


class Keeping(pydantic.BaseModel):
    """All that the state keeps, kind by kind."""

    kinds: list[Kept]


class _Kind(NamedTuple):
    kind: str
    why: str
    stays: str = _EVER


_KINDS: Final[Mapping[str, _Kind]] = {
    ENVELOPES: _Kind("sealed answers", "the same bytes are sent again", "until their round ends"),
    "crowd_outbox": _Kind("contributions unanswered", "they are sent again", "until answered"),
    "crowd_evidence": _Kind(
        "draws and receipts of crowds",
        "they show whether the trainer cheated",
        "until the crowd's closing bears them out",
    ),
    "jobs": _Kind("jobs, with their joins", "each is joined once"),
    "asked": _Kind("jobs that asked the owners", "each asks once"),
    "approvals": _Kind("owners' decisions", "a refusal is for good"),
    "leaves": _Kind("leaves", "what was left is not answered"),
    "withdrawals": _Kind("withdrawals", "why a job ended"),
    "rounds": _Kind("rounds", "each is answered once"),
    "crowds": _Kind("crowd jobs", "contributions are checked by them"),
    "contributions": _Kind("contributions", "each is made and charged once"),
    "adopted": _Kind("rounds that a lost state forgot", "nodes charged them"),
    "ledger": _Kind("ledger entries", "caps rest on them"),
    "node_heads": _Kind(
        "Compute nodes' ledger heads", "a node that was set back is found", "until a later one"
    ),
}


def keeping(counts: Mapping[str, int]) -> Keeping:
    """Return how much there is of each kind, from the numbers of rows by the table's name."""
    return Keeping(kinds=list(_kept(counts)))


def _kept(counts: Mapping[str, int]) -> Iterator[Kept]:
    for table, each in _KINDS.items():
        yield Kept(kind=each.kind, documents=counts[table], stays=each.stays, why=each.why)

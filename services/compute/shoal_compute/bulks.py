"""Stores many shares of one round and kind in one row, column by column.

The functions run inside a transaction of the caller. There are such rows only where one process has
the database, so their statements are SQLite's: SQLAlchemy took longer to build them than the
database to run them.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_compute.schema import bulks
from shoal_protocol.sharing.shares import ShareKind

BULK_BYTES: Final = 1 << 20  # of payloads in one row
_NEAR: Final = "SELECT number, holders FROM bulks WHERE round = ? AND first <= ? AND last >= ?"
_INSERT: Final = (
    "INSERT INTO bulks"
    " (round, kind, first, last, holders, answers, digests, signatures, payloads)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class AcceptedShare(NamedTuple):
    """One data holder's share that passed every check, with the proof that the holder sent it."""

    round_id: str
    holder: int
    answer: bytes
    digest: bytes
    signature: bytes
    kind: ShareKind
    payload: bytes

    def __repr__(self) -> str:
        return f"AcceptedShare({self.kind.name}, {len(self.payload)} bytes)"


class Packed(NamedTuple):
    """Payloads of so many shares of one kind, one behind another."""

    kind: ShareKind
    shares: int
    payloads: bytes


class Place(NamedTuple):
    """Where shares of some data holders are stored: in a row of `bulks`, or in one each."""

    bulk: int | None
    holders: BitMap


def insert_bulk(db: Connection, number: int, shares: Sequence[AcceptedShare]) -> None:
    """Store shares of one kind in the round with this number, in as few rows as `BULK_BYTES` allow.

    All shares of a kind have payloads of one length.
    """
    together = max(1, BULK_BYTES // len(shares[0].payload))
    for start in range(0, len(shares), together):
        part = shares[start : start + together]
        holders = [share.holder for share in part]
        row = (
            number,
            int(part[0].kind),
            min(holders),
            max(holders),
            np.array(holders, "<u4").tobytes(),
            b"".join([share.answer for share in part]),
            b"".join([share.digest for share in part]),
            b"".join([share.signature for share in part]),
            b"".join([share.payload for share in part]),
        )
        db.exec_driver_sql(_INSERT, row)


def bulks_with(db: Connection, number: int, holders: BitMap) -> Iterator[tuple[int, BitMap]]:
    """Yield the number of each bulk with some of `holders`, and those of them that it has."""
    if holders and db.dialect.name == "sqlite":
        near = (number, holders.max(), holders.min())
        for bulk, encoded in db.exec_driver_sql(_NEAR, near).all():
            found = BitMap(np.frombuffer(encoded, "<u4")) & holders
            if found:
                yield bulk, found


def digests_in_bulks(db: Connection, number: int, holders: BitMap) -> dict[int, bytes]:
    """Return the digests of the shares of `holders` that are in bulks."""
    found: dict[int, bytes] = {}
    for bulk, some in bulks_with(db, number, holders):
        row = db.execute(select(bulks.c.holders, bulks.c.digests).where(bulks.c.number == bulk))
        encoded, digests = row.one()
        inside = np.frombuffer(encoded, "<u4")
        chosen = np.isin(inside, some.to_array())
        found.update(zip(inside[chosen].tolist(), _entries(digests, chosen).tolist(), strict=True))
    return found


def _entries(column: bytes, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.void]:
    """Return the chosen ones of a column's entries, all of one size."""
    return np.frombuffer(column, f"V{len(column) // len(chosen)}")[chosen]


def chosen_of(row: Any, holders: BitMap) -> Packed:
    """Return the payloads of these holders, all of whom are in a row of `bulks`."""
    kind, inside = ShareKind(row.kind), np.frombuffer(row.holders, "<u4")
    if len(inside) == len(holders):
        return Packed(kind, len(inside), row.payloads)
    chosen = np.isin(inside, holders.to_array())
    payloads = _entries(row.payloads, chosen)
    return Packed(kind, len(payloads), payloads.tobytes())

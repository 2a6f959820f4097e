"""Many shares of one round and kind together: column by column, in memory and in one row.

The functions run inside a transaction of the caller. Only where one process has the database are
there such rows, so their statements are SQLite's; SQLAlchemy took longer to make them than the
database to run them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap
from sqlalchemy import Connection, select

from shoal_compute.schema import bulks
from shoal_protocol.sharing.shares import Share, ShareKind

BULK_BYTES: Final = 1 << 20  # of payloads in one row
_DIGEST_BYTES: Final = 32
_NEAR: Final = "SELECT number, holders FROM bulks WHERE round = ? AND first <= ? AND last >= ?"
_INSERT: Final = (
    "INSERT INTO bulks"
    " (round, kind, first, last, holders, answers, digests, signatures, payloads)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class AcceptedShare:
    """One data holder's share that passed every check, with the proof that the holder sent it."""

    round_id: str
    holder: int
    answer: bytes
    digest: bytes
    signature: bytes
    share: Share


@dataclass(frozen=True, slots=True)
class Bulk:
    """Shares of one round and kind that passed every check: column by column, in one order."""

    round_id: str
    kind: ShareKind
    holders: npt.NDArray[np.uint32]
    answers: Sequence[bytes]
    digests: Sequence[bytes]
    signatures: Sequence[bytes]
    payloads: Sequence[bytes]

    @staticmethod
    def of(accepted: Sequence[AcceptedShare]) -> "Bulk":
        """Return shares of one round and kind."""
        return Bulk(
            accepted[0].round_id,
            accepted[0].share.kind,
            np.array([each.holder for each in accepted], np.uint32),
            [each.answer for each in accepted],
            [each.digest for each in accepted],
            [each.signature for each in accepted],
            [each.share.payload for each in accepted],
        )

    def __len__(self) -> int:
        """Return how many shares there are."""
        return len(self.digests)

    def some(self, places: Sequence[int]) -> "Bulk":
        """Return the shares at these places."""
        columns = (self.answers, self.digests, self.signatures, self.payloads)
        chosen = ([each[place] for place in places] for each in columns)
        return Bulk(self.round_id, self.kind, self.holders[list(places)], *chosen)

    def singly(self) -> list[AcceptedShare]:
        """Return each share by itself."""
        return [
            AcceptedShare(self.round_id, holder, answer, digest, signature, Share(self.kind, share))
            for holder, answer, digest, signature, share in zip(
                self.holders.tolist(),
                self.answers,
                self.digests,
                self.signatures,
                self.payloads,
                strict=True,
            )
        ]


class Packed(NamedTuple):
    """Payloads of so many shares of one kind, one behind another."""

    kind: ShareKind
    shares: int
    payloads: bytes


class Place(NamedTuple):
    """Where shares of some data holders are stored: in a row of `bulks`, or in one each."""

    bulk: int | None
    holders: BitMap


def insert_bulk(db: Connection, number: int, bulk: Bulk) -> None:
    """Store a bulk in the round with this number, in as few rows as its length allows."""
    together = max(1, BULK_BYTES // len(bulk.payloads[0]))
    for start in range(0, len(bulk), together):
        part = bulk.some(range(len(bulk))[start : start + together])
        row = (
            number,
            int(part.kind),
            int(part.holders.min()),
            int(part.holders.max()),
            part.holders.astype("<u4").tobytes(),
            b"".join(part.answers),
            b"".join(part.digests),
            b"".join(part.signatures),
            b"".join(part.payloads),
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
        for place, holder in enumerate(np.frombuffer(encoded, "<u4").tolist()):
            if holder in some:
                found[holder] = _entry(digests, place, _DIGEST_BYTES)
    return found


def _entry(column: bytes, place: int, size: int) -> bytes:
    return column[size * place : size * (place + 1)]


def chosen_of(row: Any, holders: BitMap) -> Packed:
    """Return the payloads of these holders, all of whom are in a row of `bulks`."""
    kind, inside = ShareKind(row.kind), np.frombuffer(row.holders, "<u4")
    if len(inside) == len(holders):
        return Packed(kind, len(inside), row.payloads)
    size = len(row.payloads) // len(inside)
    places = np.flatnonzero(np.isin(inside, holders.to_array())).tolist()
    payloads = b"".join(_entry(row.payloads, place, size) for place in places)
    return Packed(kind, len(places), payloads)

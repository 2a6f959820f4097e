"""The roster: data holders' verify keys, and which slots each of them has.

A slot is one place for one individual's records: the client that a round counts. Slots are given in
ranges, one after another from 0, so a range needs no more than its holder and its length. What was
given stays: a holder that grows gets a further range, one that is revoked or gets another key keeps
its ranges. A key has one index for ever: under another one it would begin with nothing spent.

Layout, integers little-endian: b"SHOALROSTER", version (1 byte), number of holders (4 bytes),
number of ranges (4 bytes); 32 bytes for each holder: its Ed25519 verify key, or zeros if it was
revoked; 8 bytes for each range: its holder (4 bytes) and its number of slots (4 bytes).
"""

import hashlib
from functools import cached_property
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from nacl.signing import VerifyKey
from pyroaring import BitMap

from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Clients, Digest, domain, sha256
from shoal_protocol.wire.errors import MalformedDocument, RevokedHolder, UnknownHolder
from shoal_protocol.wire.versions import WIRE

_MAGIC: Final = b"SHOALROSTER"
_HEADER_BYTES: Final = len(_MAGIC) + 1 + 4 + 4
KEY_BYTES: Final = 32
_RANGE_BYTES: Final = 8
_REVOKED: Final = bytes(KEY_BYTES)
MOST_SLOTS: Final = 2**32 - 1


def roster_size(*, holders: int, ranges: int) -> int:
    """Return the length of the file of a roster with so many holders and ranges."""
    return _HEADER_BYTES + KEY_BYTES * holders + _RANGE_BYTES * ranges


def key_fingerprint(key: bytes) -> str:
    """Return the text by which people tell data holders' verify keys apart and compare them.

    It is the first 32 hexadecimal digits of the key's digest, in groups of four.
    """
    digits = sha256("holder_key", key)[:32]
    return "-".join(digits[at : at + 4] for at in range(0, len(digits), 4))


class Roster:
    """Holders by index, slots by index. Immutable; neither index is ever given away again."""

    def __init__(self, keys: bytes = b"", ranges: bytes = b"") -> None:
        """Hold `keys`, 32 bytes for each holder, and `ranges`, 8 bytes for each, as in the file.

        Raises:
            ValueError: a length is wrong, two holders share a key, a holder has no range, a range
                has no slot or no holder, or there are more than 2^32 - 1 slots.
        """
        if len(keys) % KEY_BYTES or len(ranges) % _RANGE_BYTES:
            raise ValueError("a roster's keys are 32 bytes each, and its ranges 8")
        self.holders = len(keys) // KEY_BYTES
        self._ranges: npt.NDArray[np.uint32] = np.frombuffer(ranges, "<u4").reshape(-1, 2)
        sizes = [self.holders.to_bytes(4, "little"), len(self._ranges).to_bytes(4, "little")]
        self._encoded = b"".join((_MAGIC, bytes([WIRE]), *sizes, keys, ranges))
        self._rows: npt.NDArray[np.void] = np.frombuffer(keys, np.dtype((np.void, KEY_BYTES)))
        enrolled = self._rows[self._rows != np.void(_REVOKED)]
        if np.unique(enrolled).size != enrolled.size:
            raise ValueError("two data holders of a roster share a key")
        owners, counts = self._ranges[:, 0], self._ranges[:, 1]
        if not np.array_equal(np.unique(owners), np.arange(self.holders)) or not counts.all():
            raise ValueError("a roster's ranges are of its data holders, one at least of each")
        self._ends: npt.NDArray[np.int64] = np.cumsum(counts, dtype=np.int64)
        if len(self) > MOST_SLOTS:
            raise ValueError("a roster has at most 2^32 - 1 slots")

    def __len__(self) -> int:
        """Return how many slots were ever given."""
        return int(self._ends[-1]) if self._ends.size else 0

    @property
    def ranges(self) -> int:
        """Return the number of ranges."""
        return len(self._ranges)

    @property
    def parts(self) -> tuple[bytes, bytes]:
        """Return keys and ranges, as this class takes them."""
        end = _HEADER_BYTES + KEY_BYTES * self.holders
        return self._encoded[_HEADER_BYTES:end], self._encoded[end:]

    @classmethod
    def decode(cls, encoded: bytes) -> "Roster":
        """Read a roster file.

        Raises:
            MalformedDocument: not a roster of this version, or cut short.
        """
        place = len(_MAGIC) + 1
        holders = int.from_bytes(encoded[place : place + 4], "little")
        ranges = int.from_bytes(encoded[place + 4 : _HEADER_BYTES], "little")
        if encoded[:place] != _MAGIC + bytes([WIRE]):
            raise MalformedDocument("not a roster of version 1")
        if len(encoded) != roster_size(holders=holders, ranges=ranges):
            raise MalformedDocument("the roster's length does not match its numbers")
        end = _HEADER_BYTES + KEY_BYTES * holders
        try:
            return cls(encoded[_HEADER_BYTES:end], encoded[end:])
        except ValueError as error:
            raise MalformedDocument(str(error)) from error

    def encode(self) -> bytes:
        """Return the roster file's bytes: the same object each time."""
        return self._encoded

    @cached_property
    def digest(self) -> str:
        """Return the digest by which a manifest names this roster."""
        running = hashlib.sha256(domain("roster"))
        running.update(self._encoded)
        return running.hexdigest()

    def holder_of(self, client: int) -> int:
        """Return the index of the data holder whose slot this is.

        Raises:
            UnknownHolder: the slot was never given.
        """
        if not 0 <= client < len(self):
            raise UnknownHolder
        return int(self._ranges[np.searchsorted(self._ends, client, side="right"), 0])

    def owners_of(self, slots: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """Return the index of each slot's data holder, shape (slots,).

        Raises:
            UnknownHolder: a slot was never given.
        """
        if slots.size and int(slots.max()) >= len(self):
            raise UnknownHolder
        owners: npt.NDArray[np.uint32] = self._ranges[:, 0]
        return owners[np.searchsorted(self._ends, slots, side="right")]

    def key_of(self, holder: int) -> bytes:
        """Return a data holder's verify key, 32 bytes.

        Raises:
            UnknownHolder, RevokedHolder
        """
        if not 0 <= holder < self.holders:
            raise UnknownHolder
        if (key := self.key_if_enrolled(holder)) is None:
            raise RevokedHolder
        return key

    def key_if_enrolled(self, holder: int) -> bytes | None:
        """Return the verify key of a data holder on the roster, None if it was revoked."""
        start = _HEADER_BYTES + KEY_BYTES * holder
        key = self._encoded[start : start + KEY_BYTES]
        return None if key == _REVOKED else key

    def holder_with(self, key: VerifyKey) -> int | None:
        """Return the index of the data holder with this key, None if none is enrolled."""
        found = np.flatnonzero(self._rows == np.void(bytes(key)))
        return int(found[0]) if found.size else None

    def slots_of(self, holder: int) -> BitMap:
        """Return the slots of a data holder, whether it is revoked or not."""
        slots = BitMap()
        by_owner, owners = self._by_owner
        # of the same type, or numpy would convert all owners
        first, last = np.searchsorted(owners, np.array([holder, holder + 1], owners.dtype))
        for place in by_owner[first:last]:
            end = int(self._ends[place])
            slots.add_range(end - int(self._ranges[place, 1]), end)
        return slots

    @cached_property
    def _by_owner(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.uint32]]:
        """The places of ranges in the order of their owners, and those owners."""
        places = np.argsort(self._ranges[:, 0], kind="stable")
        return places, self._ranges[places, 0]

    @cached_property
    def in_force(self) -> int:
        """The number of data holders that are not revoked."""
        return int(np.count_nonzero(self._rows != np.void(_REVOKED)))

    @cached_property
    def enrolled_set(self) -> BitMap:
        """The slots of all data holders that are not revoked."""
        owners = self._ranges[:, 0]
        is_in = np.concatenate([[False], self._rows[owners] != np.void(_REVOKED), [False]])
        begins, ends = np.flatnonzero(is_in[1:] != is_in[:-1]).reshape(-1, 2).T
        starts = np.concatenate([[0], self._ends])
        slots = BitMap()
        for begin, end in zip(begins, ends, strict=True):
            slots.add_range(int(starts[begin]), int(starts[end]))
        return slots

    def follows(self, earlier: "Roster") -> bool:
        """Tell whether this roster only enrols, grows, revokes and changes keys of `earlier`.

        One that was revoked stays so, and no key comes from another index.
        """
        if self.holders < earlier.holders or self.ranges < earlier.ranges:
            return False
        if not np.array_equal(self._ranges[: earlier.ranges], earlier._ranges):
            return False
        revoked = earlier._rows == np.void(_REVOKED)
        stay = self._rows[: earlier.holders][revoked] == np.void(_REVOKED)
        return bool(stay.all()) and not self.takes_again(earlier, since=earlier)

    def takes_again(self, older: "Roster", *, since: "Roster") -> bool:
        """Tell whether a key is new here, compared with `since`, that `older` had already.

        It was revoked or replaced since then. `self` follows `since`, and that `older`, perhaps
        not at once.
        """
        is_new = self._rows != np.void(_REVOKED)
        is_new[: since.holders] &= self._rows[: since.holders] != since._rows
        return bool(is_new.any() and np.isin(self._rows[is_new], older._rows).any())


class RosterReference(Model):
    """A roster by its digest: of how many data holders, ranges and slots, `clients`, it is."""

    digest: Digest
    holders: Clients
    ranges: Clients
    clients: Clients

    @classmethod
    def of(cls, roster: "Roster") -> Self:
        """Return what a manifest says of this roster."""
        return cls(
            digest=roster.digest,
            holders=roster.holders,
            ranges=roster.ranges,
            clients=len(roster),
        )

    @property
    def size_bytes(self) -> int:
        """Return the length of the roster file."""
        return roster_size(holders=self.holders, ranges=self.ranges)

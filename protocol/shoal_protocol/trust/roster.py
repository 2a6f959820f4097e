"""The roster: every enrolled client's verify key, by client index.

Layout: b"SHOALROSTER", version (1 byte), number of clients (4 bytes, little-endian), then 32
bytes for each client: its Ed25519 verify key, or zeros if its enrolment was revoked.
"""

import hashlib
from collections.abc import Iterable
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from nacl.signing import VerifyKey
from pyroaring import BitMap

from shoal_protocol.wire.encoding import VERSION, domain
from shoal_protocol.wire.errors import MalformedDocument, RevokedClient, UnknownClient

_MAGIC: Final = b"SHOALROSTER"
_HEADER_BYTES: Final = len(_MAGIC) + 1 + 4
_KEY_BYTES: Final = 32
_REVOKED: Final = bytes(_KEY_BYTES)


def roster_size(clients: int) -> int:
    """Return the length of the file of a roster with so many clients."""
    return _HEADER_BYTES + _KEY_BYTES * clients


def roster_digest() -> "hashlib._Hash":
    """Return a hash object that gives a roster's digest after all of the file is fed to it."""
    return hashlib.sha256(domain("roster"))


class Roster:
    """Verify keys by client index. Immutable; an index is never given to another client."""

    def __init__(self, keys: bytes) -> None:
        """Hold `keys`, 32 bytes for each client.

        Raises:
            ValueError: the length is not a multiple of 32, or two clients share a key.
        """
        if len(keys) % _KEY_BYTES:
            raise ValueError("a roster's keys are 32 bytes each")
        count = (len(keys) // _KEY_BYTES).to_bytes(4, "little")
        self._encoded = b"".join((_MAGIC, bytes([VERSION]), count, keys))
        rows: npt.NDArray[np.void] = np.frombuffer(keys, np.dtype((np.void, _KEY_BYTES)))
        enrolled = rows[rows != np.void(_REVOKED)]
        if np.unique(enrolled).size != enrolled.size:
            raise ValueError("two clients of a roster share a key")

    def __len__(self) -> int:
        return (len(self._encoded) - _HEADER_BYTES) // _KEY_BYTES

    @property
    def _keys(self) -> memoryview:
        return memoryview(self._encoded)[_HEADER_BYTES:]

    @classmethod
    def decode(cls, encoded: bytes) -> "Roster":
        """Read a roster file.

        Raises:
            MalformedDocument: not a roster of this version, or cut short.
        """
        count = int.from_bytes(encoded[len(_MAGIC) + 1 : _HEADER_BYTES], "little")
        if encoded[: len(_MAGIC) + 1] != _MAGIC + bytes([VERSION]):
            raise MalformedDocument("not a roster of version 1")
        if len(encoded) != roster_size(count):
            raise MalformedDocument("the roster's length does not match its number of clients")
        try:
            return cls(encoded[_HEADER_BYTES:])
        except ValueError as error:
            raise MalformedDocument(str(error)) from error

    def encode(self) -> bytes:
        """Return the roster file's bytes: the same object each time."""
        return self._encoded

    @cached_property
    def digest(self) -> str:
        """Return the digest by which a manifest names this roster."""
        running = roster_digest()
        running.update(self._encoded)
        return running.hexdigest()

    def verify_key_bytes(self, client: int) -> bytes:
        """Return a client's verify key, 32 bytes.

        Raises:
            UnknownClient, RevokedClient
        """
        if not 0 <= client < len(self):
            raise UnknownClient
        key = bytes(self._keys[client * _KEY_BYTES : (client + 1) * _KEY_BYTES])
        if key == _REVOKED:
            raise RevokedClient
        return key

    def indices(self, keys: Iterable[VerifyKey]) -> list[int | None]:
        """Return the client index of each key, or None for one that is not enrolled."""
        own = self._keys.tobytes()
        by_key = {
            own[client * _KEY_BYTES : (client + 1) * _KEY_BYTES]: client
            for client in range(len(self))
        }
        by_key.pop(_REVOKED, None)
        return [by_key.get(bytes(key)) for key in keys]

    def enrolled(self) -> npt.NDArray[np.uint32]:
        """Return the indices of all clients that are enrolled and not revoked, ascending."""
        rows = np.frombuffer(self._keys, np.uint8).reshape(-1, _KEY_BYTES)
        return np.flatnonzero(rows.any(axis=1)).astype(np.uint32)

    @cached_property
    def enrolled_set(self) -> BitMap:
        """The clients of `enrolled`, as a set."""
        return BitMap(self.enrolled())

    def follows(self, earlier: "Roster") -> bool:
        """Tell whether this roster only enrols and revokes clients, compared with `earlier`."""
        if len(self) < len(earlier):
            return False
        before = np.frombuffer(earlier._keys, np.uint8).reshape(-1, _KEY_BYTES)
        after = np.frombuffer(self._keys, np.uint8).reshape(-1, _KEY_BYTES)[: len(earlier)]
        kept = (before == after).all(axis=1)
        return bool((kept | ~after.any(axis=1)).all()) and not self.enrols_again(earlier)

    def enrols_again(self, earlier: "Roster") -> bool:
        """Tell whether a key of `earlier` that was revoked since has got another index here.

        Its client would begin with nothing spent. `self` follows `earlier`, perhaps not at once.
        """
        rows = np.frombuffer(self._keys, np.dtype((np.void, _KEY_BYTES)))
        new, there = rows[len(earlier) :], rows[: len(earlier)]
        new = new[new != np.void(_REVOKED)]
        if not new.size:
            return False
        before = np.frombuffer(earlier._keys, np.dtype((np.void, _KEY_BYTES)))
        revoked = before[(before != np.void(_REVOKED)) & (there == np.void(_REVOKED))]
        return bool(np.isin(revoked, new).any())

    def with_enrolled(self, keys: Iterable[VerifyKey]) -> "Roster":
        """Return a roster with further clients at the next free indices.

        Raises:
            ValueError: a key is on the roster already, or twice among `keys`.
        """
        return Roster(b"".join((self._keys, *(bytes(key) for key in keys))))

    def with_revoked(self, clients: Iterable[int]) -> "Roster":
        """Return a roster on which `clients` are revoked for good.

        Raises:
            UnknownClient: one of them was never enrolled.
        """
        keys = bytearray(self._keys)
        for client in clients:
            if not 0 <= client < len(self):
                raise UnknownClient
            keys[client * _KEY_BYTES : (client + 1) * _KEY_BYTES] = _REVOKED
        return Roster(bytes(keys))

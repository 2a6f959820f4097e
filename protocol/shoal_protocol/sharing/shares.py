"""Shares as they are written down, whatever the scheme: full vectors, and seeds that stand for one.

A seed's stream is uniformly random under the assumption that ChaCha20 (RFC 8439) is a
pseudo-random generator.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms

from shoal_protocol.wire.encoding import Uint64Vector

RandomBytes = Callable[[int], bytes]

SEED_BYTES: Final = 32


class ShareKind(IntEnum):
    """The encoding of a share."""

    SEED = 0
    VECTOR = 1


@dataclass(frozen=True)
class Share:
    """One Compute node's share: a seed of 32 bytes, or d little-endian 64-bit residues."""

    kind: ShareKind
    payload: bytes

    def __repr__(self) -> str:
        return f"Share({self.kind.name}, {len(self.payload)} bytes)"


def key_stream(seed: bytes, name: bytes) -> CipherContext:
    """Return the ChaCha20 key stream of `seed`; updating it with zeros reads on.

    RFC 8439 state words 12 to 15 are block counter 0 and a nonce, `name`, 12 bytes, which keeps
    the streams of different schemes apart. A seed is used for one stream only, so it can be fixed.

    Raises:
        ValueError: the seed is not 32 bytes.
    """
    return Cipher(algorithms.ChaCha20(seed, bytes(4) + name), mode=None).encryptor()


def read_words(stream: CipherContext, count: int) -> Uint64Vector:
    """Return the stream's next `count` words of 64 bits, little-endian."""
    return np.frombuffer(stream.update(bytes(8 * count)), "<u8")

"""Additive secret sharing modulo 2**64, with all shares but one compressed to a seed.

All shares sum to the secret; any smaller set of them is uniformly random (under the assumption
that ChaCha20 is a pseudo-random generator). It knows neither noise nor who receives a share.
Heikkilä et al. 2017, Algorithm 1; ChaCha20 as in RFC 8439.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from shoal_protocol.encoding import Uint64Vector
from shoal_protocol.errors import MalformedEnvelope, WrongLength, WrongShareKind

RandomBytes = Callable[[int], bytes]

SEED_BYTES: Final = 32
# RFC 8439 state words 12 to 15: block counter 0, then a nonce that serves as domain separation.
# A seed is used for one stream only, so the nonce can be fixed.
_COUNTER_AND_NONCE: Final = bytes(4) + b"shoal-share1"


class ShareKind(IntEnum):
    """How a share is written down."""

    SEED = 0
    VECTOR = 1


@dataclass(frozen=True)
class Share:
    """One Compute node's share: a seed of 32 bytes, or d little-endian 64-bit residues."""

    kind: ShareKind
    payload: bytes

    def __repr__(self) -> str:
        return f"Share({self.kind.name}, {len(self.payload)} bytes)"


def expand(seed: bytes, dimension: int) -> Uint64Vector:
    """Return the share, shape (d,), that `seed` stands for: the ChaCha20 key stream.

    Raises:
        ValueError: the seed is not 32 bytes.
    """
    stream = Cipher(algorithms.ChaCha20(seed, _COUNTER_AND_NONCE), mode=None).encryptor()
    return np.frombuffer(stream.update(bytes(8 * dimension)), "<u8")


class AdditiveSharing:
    """The scheme in which all M shares are needed, and M - 1 say nothing.

    The full vector goes to node `client_index mod M`, so that the load is even.
    """

    name: Final = "additive"

    def kind_for(self, *, client: int, node: int, nodes: int) -> ShareKind:
        """Return the kind of share that `node` (of `nodes`) is due from `client`."""
        return ShareKind.VECTOR if client % nodes == node else ShareKind.SEED

    def split(
        self, secret: Uint64Vector, *, client: int, nodes: int, random_bytes: RandomBytes
    ) -> list[Share]:
        """Split `secret`, shape (d,), into one share for each of `nodes`, in their order.

        `random_bytes` is the operating system's generator, except where a test vector fixes it;
        it is called once for each seed, in the order of the nodes.

        Raises:
            ValueError: fewer than 2 nodes: the only share would be the secret.
        """
        if nodes < 2:
            raise ValueError(f"need at least 2 Compute nodes, got {nodes}")
        remainder = secret.astype(np.uint64)
        shares: dict[int, Share] = {}
        for node in range(nodes):
            if self.kind_for(client=client, node=node, nodes=nodes) is ShareKind.SEED:
                seed = random_bytes(SEED_BYTES)
                remainder = remainder - expand(seed, secret.size)
                shares[node] = Share(ShareKind.SEED, seed)
        vector = Share(ShareKind.VECTOR, remainder.astype("<u8").tobytes())
        return [shares.get(node, vector) for node in range(nodes)]

    def check(self, share: Share, *, client: int, node: int, nodes: int, dimension: int) -> None:
        """Refuse a share that is not of the kind and length which `node` is due.

        Raises:
            WrongShareKind: a seed where the vector is due, or the reverse.
            WrongLength: not 32 bytes, or not 8 * dimension bytes.
        """
        if share.kind is not self.kind_for(client=client, node=node, nodes=nodes):
            raise WrongShareKind
        due = SEED_BYTES if share.kind is ShareKind.SEED else 8 * dimension
        if len(share.payload) != due:
            raise WrongLength

    def add(self, shares: Iterable[Share], dimension: int) -> Uint64Vector:
        """Return one node's partial sum, shape (d,), of the shares that it holds."""
        total = np.zeros(dimension, np.uint64)
        for share in shares:
            if share.kind is ShareKind.SEED:
                total += expand(share.payload, dimension)
            else:
                total += np.frombuffer(share.payload, "<u8")
        return total

    def combine(self, partial_sums: Iterable[Uint64Vector]) -> Uint64Vector:
        """Return the sum of the secrets, shape (d,), from all nodes' partial sums."""
        total: Uint64Vector = np.sum(list(partial_sums), axis=0, dtype=np.uint64)
        return total


_SCHEMES: Final = {AdditiveSharing.name: AdditiveSharing()}


def sharing_scheme(name: str) -> AdditiveSharing:
    """Return the scheme that a round spec names.

    Raises:
        ValueError: there is none of that name.
    """
    try:
        return _SCHEMES[name]
    except KeyError:
        raise ValueError("no such sharing scheme") from None


def share_kind(code: int) -> ShareKind:
    """Return the kind of share that a wire code stands for.

    Raises:
        MalformedEnvelope: there is none of that code.
    """
    try:
        return ShareKind(code)
    except ValueError:
        raise MalformedEnvelope("unknown kind of share") from None

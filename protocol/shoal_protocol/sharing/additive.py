"""Additive secret sharing modulo 2**64: all shares sum to the secret, and any fewer say nothing.

All shares but one are compressed to a seed.
Heikkilä et al. 2017, arXiv:1703.01106, Algorithm 1.
"""

from typing import ClassVar, Final, Literal

import numpy as np

from shoal_protocol.sharing.ring import to_ring
from shoal_protocol.sharing.shares import (
    SEED_BYTES,
    RandomBytes,
    Share,
    ShareKind,
    key_stream,
    read_words,
)
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector

STREAM: Final = b"shoal-share1"


def expand(seed: bytes, dimension: int) -> Uint64Vector:
    """Return the share, shape (d,), that `seed` stands for: the ChaCha20 key stream.

    Raises:
        ValueError: the seed is not 32 bytes.
    """
    return read_words(key_stream(seed, STREAM), dimension)


class AdditiveSharing(Model):
    """The scheme in which all M shares are needed, and M - 1 say nothing.

    The full vector goes to node `holder mod M`, so that the load is even.
    """

    modulus_bits: ClassVar[Literal[64]] = 64

    scheme: Literal["additive"] = "additive"

    def refusal(self, *, nodes: int, minimum_threshold: int | None) -> str | None:
        """Return None: it is the strictest scheme, and no policy forbids it."""
        return None

    def needed(self, nodes: int) -> int:
        """Return how many of `nodes` partial sums give the total: all."""
        return nodes

    def kind_for(self, *, holder: int, node: int, nodes: int) -> ShareKind:
        """Return the kind of share that `node` (of `nodes`) is due from a data holder."""
        return ShareKind.VECTOR if holder % nodes == node else ShareKind.SEED

    def split(
        self, secret: Uint64Vector, *, holder: int, nodes: int, random_bytes: RandomBytes
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
            if self.kind_for(holder=holder, node=node, nodes=nodes) is ShareKind.SEED:
                seed = random_bytes(SEED_BYTES)
                remainder = remainder - expand(seed, secret.size)
                shares[node] = Share(ShareKind.SEED, seed)
        vector = Share(ShareKind.VECTOR, remainder.astype("<u8").tobytes())
        return [shares.get(node, vector) for node in range(nodes)]

    def encode(self, values: Int64Vector) -> Uint64Vector:
        """Return the residues of integers in [-2**63, 2**63), shape (d,)."""
        return to_ring(values)

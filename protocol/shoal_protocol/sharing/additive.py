"""Additive secret sharing modulo 2**64: all shares sum to the secret, and any fewer say nothing.

All shares but one are compressed to a seed.
Heikkilä et al. 2017, arXiv:1703.01106, Algorithm 1.
"""

from typing import ClassVar, Final, Literal

import numpy as np

from shoal_protocol.sharing.committees import Committees
from shoal_protocol.sharing.ring import to_ring
from shoal_protocol.sharing.shares import (
    SEED_BYTES,
    RandomBytes,
    Share,
    ShareKind,
    key_stream,
    read_words,
)
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector

STREAM: Final = b"shoal-share1"


def expand(seed: bytes, dimension: int) -> Uint64Vector:
    """Return the share, shape (d,), that `seed` stands for: the ChaCha20 key stream.

    Raises:
        ValueError: the seed is not 32 bytes.
    """
    return read_words(key_stream(seed, STREAM), dimension)


class AdditiveSharing(Committees):
    """The scheme in which all shares of an answer are needed, and all but one say nothing.

    Which of its nodes gets the full vector rotates with the data holder, so that the load is even.
    """

    modulus_bits: ClassVar[Literal[64]] = 64

    scheme: Literal["additive"] = "additive"

    def refusal(
        self, *, nodes: int, minimum_threshold: int | None, minimum_committee: int | None
    ) -> str | None:
        """Return why a round may not be shared like this, or None if it may.

        Without committees it is the strictest scheme, and no policy forbids it.
        """
        return self._committee_refusal(nodes=nodes, minimum_committee=minimum_committee)

    def needed(self, nodes: int) -> int:
        """Return how many of `nodes` must be there for a total: all."""
        return nodes

    def opening(self, nodes: int) -> int:
        """Return how many shares of one answer open it: all."""
        return self.shares(nodes)

    def kind_for(self, *, holder: int, node: int, nodes: int) -> ShareKind:
        """Return the kind of share that `node` (of `nodes`) is due from a data holder.

        Raises:
            ValueError: none, for it is not of the data holder's committee.
        """
        place, vector = self._place(holder=holder, node=node, nodes=nodes)
        return ShareKind.VECTOR if place == vector else ShareKind.SEED

    def split(
        self, secret: Uint64Vector, *, holder: int, nodes: int, random_bytes: RandomBytes
    ) -> list[Share]:
        """Split `secret`, shape (d,), into one share for each of `members`, in their order.

        `random_bytes` is the operating system's generator, except where a test vector fixes it;
        it is called once for each seed, in that order.

        Raises:
            ValueError: fewer than 2 nodes: the only share would be the secret.
        """
        if nodes < 2:
            raise ValueError(f"need at least 2 Compute nodes, got {nodes}")
        remainder = secret.astype(np.uint64)
        shares: dict[int, Share] = {}
        members = self.members(holder=holder, nodes=nodes)
        for node in members:
            if self.kind_for(holder=holder, node=node, nodes=nodes) is ShareKind.SEED:
                seed = random_bytes(SEED_BYTES)
                remainder = remainder - expand(seed, secret.size)
                shares[node] = Share(ShareKind.SEED, seed)
        vector = Share(ShareKind.VECTOR, remainder.astype("<u8").tobytes())
        return [shares.get(node, vector) for node in members]

    def encode(self, values: Int64Vector) -> Uint64Vector:
        """Return the residues of integers in [-2**63, 2**63), shape (d,)."""
        return to_ring(values)

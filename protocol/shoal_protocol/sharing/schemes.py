"""The sharing schemes that a round can have; a spec holds one, and that object does the work.

Additive sharing modulo 2**64: all shares sum to the secret, and fewer say nothing. All shares but
one are compressed to a seed. Heikkilä et al. 2017, arXiv:1703.01106, Algorithm 1.

Threshold sharing modulo 2**61 - 1: any t shares give the secret, and t - 1 say nothing. The module
`shamir` has the arithmetic. It is loaded when a round needs it. Proofs: docs/mathematics.md,
theorems 3 and 4.
"""

from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from shoal_protocol.sharing.shares import (
    SEED_BYTES,
    Committees,
    RandomBytes,
    Share,
    ShareKind,
    key_stream,
    read_words,
    to_ring,
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
    """The scheme in which all shares of an answer are needed, and all but one say nothing."""

    modulus_bits: ClassVar[Literal[64]] = 64

    scheme: Literal["additive"] = "additive"

    def refusal(
        self, *, nodes: int, minimum_threshold: int | None, minimum_committee: int | None
    ) -> str | None:
        """Return why a round may not be shared like this, or None if it may.

        Without committees it is the strictest scheme, and no policy forbids it.
        """
        return self._committee_refusal(nodes=nodes, minimum_committee=minimum_committee)

    def opening(self, nodes: int) -> int:
        """Return how many shares of one answer open it: all."""
        return self.shares(nodes)

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


class ThresholdSharing(Committees):
    """The scheme in which `threshold` shares open an answer, and one fewer says nothing."""

    modulus_bits: ClassVar[Literal[61]] = 61

    scheme: Literal["threshold"] = "threshold"
    threshold: int = Field(ge=2, le=255)

    def refusal(
        self, *, nodes: int, minimum_threshold: int | None, minimum_committee: int | None
    ) -> str | None:
        """Return why a round may not be shared like this, or None if it may.

        `minimum_threshold` is the policy's, None if it allows additive sharing only; so is
        `minimum_committee`, None if it allows none. More than half of an answer's nodes must be
        needed: two disjoint sets of them could else release two cohorts.
        """
        if minimum_threshold is None:
            return "the policy allows additive sharing only"
        if self.threshold < minimum_threshold:
            return f"the policy demands a sharing threshold of at least {minimum_threshold}"
        if not (shares := self.shares(nodes)) < 2 * self.threshold <= 2 * shares:
            return "the sharing threshold must be more than half of the Compute nodes, at most all"
        return self._committee_refusal(nodes=nodes, minimum_committee=minimum_committee)

    def opening(self, nodes: int) -> int:
        """Return how many shares of one answer open it."""
        return self.threshold

    def split(
        self, secret: Uint64Vector, *, holder: int, nodes: int, random_bytes: RandomBytes
    ) -> list[Share]:
        """Split `secret`, residues of shape (d,), into a share for each of `members`, in order.

        `random_bytes` is the operating system's generator, except where a test vector fixes it;
        it is called once for each seed, in that order.

        Raises:
            ValueError: fewer nodes than the threshold.
        """
        members = self.members(holder=holder, nodes=nodes)
        if len(members) < self.threshold:
            raise ValueError(f"need at least {self.threshold} Compute nodes, got {nodes}")
        from shoal_protocol.sharing import shamir

        kinds = [self.kind_for(holder=holder, node=node, nodes=nodes) for node in members]
        return shamir.split(secret, kinds, random_bytes=random_bytes)

    def encode(self, values: Int64Vector) -> Uint64Vector:
        """Return the residues of integers of magnitude up to (p - 1) / 2, shape (d,).

        Raises:
            ValueError: one is larger.
        """
        from shoal_protocol.sharing import shamir

        return shamir.to_field(values)


Sharing = Annotated[AdditiveSharing | ThresholdSharing, Field(discriminator="scheme")]

ADDITIVE: Final = AdditiveSharing()

"""Threshold secret sharing modulo 2**61 - 1: any t shares give the secret, any t - 1 say nothing.

The arithmetic is in `shamir`, which is loaded when a round needs it.
"""

from typing import ClassVar, Literal

from pydantic import Field

from shoal_protocol.sharing.committees import Committees
from shoal_protocol.sharing.shares import RandomBytes, Share, ShareKind
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector


class ThresholdSharing(Committees):
    """The scheme in which `threshold` shares of an answer are enough, and one fewer says nothing.

    Of an answer's M shares M - threshold + 1 are full vectors, the others seeds; which ones rotates
    with the data holder, so that the load is even.
    """

    modulus_bits: ClassVar[Literal[61]] = 61

    scheme: Literal["threshold"] = "threshold"
    threshold: int = Field(ge=2, le=255)

    def refusal(
        self, *, nodes: int, minimum_threshold: int | None, minimum_committee: int | None
    ) -> str | None:
        """Return why a round may not be shared like this, or None if it may.

        `minimum_threshold` is the policy's, None if it allows additive sharing only; so is
        `minimum_committee`, None if it allows none. More than half of an answer's nodes must be
        needed, lest two disjoint sets of them release two cohorts.
        """
        if minimum_threshold is None:
            return "the policy allows additive sharing only"
        if self.threshold < minimum_threshold:
            return f"the policy demands a sharing threshold of at least {minimum_threshold}"
        if not (shares := self.shares(nodes)) < 2 * self.threshold <= 2 * shares:
            return "the sharing threshold must be more than half of the Compute nodes, at most all"
        return self._committee_refusal(nodes=nodes, minimum_committee=minimum_committee)

    def needed(self, nodes: int) -> int:
        """Return how many of `nodes` must be there for a total: of all the part that opens one."""
        return -(-nodes * self.threshold // self.shares(nodes))

    def opening(self, nodes: int) -> int:
        """Return how many shares of one answer open it."""
        return self.threshold

    def kind_for(self, *, holder: int, node: int, nodes: int) -> ShareKind:
        """Return the kind of share that `node` (of `nodes`) is due from a data holder.

        Raises:
            ValueError: none, for it is not of the data holder's committee.
        """
        place, first = self._place(holder=holder, node=node, nodes=nodes)
        shares = self.shares(nodes)
        is_vector = (place - first) % shares <= shares - self.threshold
        return ShareKind.VECTOR if is_vector else ShareKind.SEED

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
        return shamir.Shamir(self.threshold).split(secret, kinds, random_bytes=random_bytes)

    def encode(self, values: Int64Vector) -> Uint64Vector:
        """Return the residues of integers of magnitude up to (p - 1) / 2, shape (d,).

        Raises:
            ValueError: one is larger.
        """
        from shoal_protocol.sharing import prime_field

        return prime_field.to_field(values)

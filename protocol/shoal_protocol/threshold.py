"""Threshold secret sharing modulo 2**61 - 1: any t shares give the secret, any t - 1 say nothing.

Shamir's scheme on vectors: a random polynomial of degree t - 1 whose value at 0 is the secret, and
whose value at k + 1 is node k's share. The t - 1 values that may be chosen freely are compressed
to seeds. It knows neither noise nor who receives a share.
Shamir 1979, How to share a secret, doi:10.1145/359168.359176.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from shoal_protocol import prime_field
from shoal_protocol.documents import Model
from shoal_protocol.encoding import Int64Vector, Uint64Vector
from shoal_protocol.errors import WrongResidue
from shoal_protocol.sharing import (
    SEED_BYTES,
    Combined,
    RandomBytes,
    Share,
    ShareKind,
    check_form,
    key_stream,
    read_words,
)

_STREAM: Final = b"shoal-field1"


def expand(seed: bytes, dimension: int) -> Uint64Vector:
    """Return the share, residues of shape (d,), that `seed` stands for.

    Raises:
        ValueError: the seed is not 32 bytes.
    """
    stream = key_stream(seed, _STREAM)
    return prime_field.uniform(lambda count: read_words(stream, count), dimension)


class ThresholdSharing(Model):
    """The scheme in which `threshold` of the M shares are enough, and one fewer says nothing.

    Of each client M - threshold + 1 nodes get the full vector, counted from node
    `client_index mod M` on, so that the load is even; the others get seeds.
    """

    modulus_bits: ClassVar[Literal[61]] = prime_field.MODULUS_BITS

    scheme: Literal["threshold"] = "threshold"
    threshold: int = Field(ge=2, le=255)

    def refusal(self, *, nodes: int, minimum_threshold: int | None) -> str | None:
        """Return why a round may not be shared like this, or None if it may.

        `minimum_threshold` is the policy's, None if it allows additive sharing only. More than
        half of the nodes must be needed, lest two disjoint sets of them release two cohorts.
        """
        if minimum_threshold is None:
            return "the policy allows additive sharing only"
        if self.threshold < minimum_threshold:
            return f"the policy demands a sharing threshold of at least {minimum_threshold}"
        if not nodes < 2 * self.threshold <= 2 * nodes:
            return "the sharing threshold must be more than half of the Compute nodes, at most all"
        return None

    def needed(self, nodes: int) -> int:
        """Return how many of `nodes` partial sums give the total."""
        return self.threshold

    def kind_for(self, *, client: int, node: int, nodes: int) -> ShareKind:
        """Return the kind of share that `node` (of `nodes`) is due from `client`."""
        is_vector = (node - client) % nodes <= nodes - self.threshold
        return ShareKind.VECTOR if is_vector else ShareKind.SEED

    def split(
        self, secret: Uint64Vector, *, client: int, nodes: int, random_bytes: RandomBytes
    ) -> list[Share]:
        """Split `secret`, residues of shape (d,), into one share for each of `nodes`, in order.

        `random_bytes` is the operating system's generator, except where a test vector fixes it;
        it is called once for each seed, in the order of the nodes.

        Raises:
            ValueError: fewer nodes than the threshold.
        """
        if nodes < self.threshold:
            raise ValueError(f"need at least {self.threshold} Compute nodes, got {nodes}")
        shares: dict[int, Share] = {}
        known = {0: secret}  # the polynomial's values, by x
        for node in range(nodes):
            if self.kind_for(client=client, node=node, nodes=nodes) is ShareKind.SEED:
                seed = random_bytes(SEED_BYTES)
                shares[node] = Share(ShareKind.SEED, seed)
                known[node + 1] = expand(seed, secret.size)
        for node in range(nodes):
            if node not in shares:
                values = _value_at(node + 1, known)
                shares[node] = Share(ShareKind.VECTOR, values.astype("<u8").tobytes())
        return [shares[node] for node in range(nodes)]

    def check(self, share: Share, *, client: int, node: int, nodes: int, dimension: int) -> None:
        """Refuse a share that is not of the kind and length which `node` is due.

        Raises:
            WrongShareKind, WrongLength
            WrongResidue: a coordinate of a vector is not below the modulus.
        """
        check_form(share, self.kind_for(client=client, node=node, nodes=nodes), dimension)
        if share.kind is ShareKind.VECTOR:
            self.check_residues(np.frombuffer(share.payload, "<u8"))

    def check_residues(self, vector: Uint64Vector) -> None:
        """Refuse a vector, shape (d,), with a coordinate that is not below the modulus.

        Raises:
            WrongResidue
        """
        if np.any(vector >= prime_field.MODULUS):
            raise WrongResidue

    def add(self, shares: Iterable[Share], dimension: int) -> Uint64Vector:
        """Return one node's partial sum, shape (d,), of the shares that it holds."""
        return prime_field.sum_of(
            (
                expand(share.payload, dimension)
                if share.kind is ShareKind.SEED
                else np.frombuffer(share.payload, "<u8")
                for share in shares
            ),
            dimension,
        )

    def plus(self, one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
        """Return the sum of two vectors of residues, shape (d,)."""
        return prime_field.plus(one, other)

    def minus(self, one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
        """Return the difference of two vectors of residues, shape (d,)."""
        return prime_field.minus(one, other)

    def combine(self, sums: Mapping[int, Uint64Vector], *, nodes: int) -> Combined | None:
        """Return the total of at least `threshold` partial sums, given by the node's index.

        More of them than that are checked against each other. If they do not lie on one
        polynomial and there are threshold + 2 or more, at most one choice of a wrong one explains
        the others; it is named, and the total is that of the others. None if they contradict each
        other beyond that: nobody can say what the total is.

        Raises:
            ValueError: there are too few sums, or one of no node.
        """
        if len(sums) < self.threshold or not sums.keys() <= set(range(nodes)):
            raise ValueError(f"the partial sums of {self.threshold} Compute nodes are needed")
        values = {node + 1: sums[node] for node in sorted(sums)}
        if self._agree(values):
            return Combined(self._value_at_zero(values))
        if len(values) < self.threshold + 2:
            return None
        for suspect in values:
            others = {x: vector for x, vector in values.items() if x != suspect}
            if self._agree(others):
                return Combined(self._value_at_zero(others), frozenset({suspect - 1}))
        return None

    def _agree(self, values: Mapping[int, Uint64Vector]) -> bool:
        """Tell whether these values, by x, are those of one polynomial of degree threshold - 1."""
        base, others = self._halves(values)
        known = {x: values[x] for x in base}
        return all(np.array_equal(_value_at(x, known), values[x]) for x in others)

    def _value_at_zero(self, values: Mapping[int, Uint64Vector]) -> Uint64Vector:
        base, _ = self._halves(values)
        return _value_at(0, {x: values[x] for x in base})

    def _halves(self, values: Mapping[int, Uint64Vector]) -> tuple[Sequence[int], Sequence[int]]:
        points = list(values)
        return points[: self.threshold], points[self.threshold :]

    def encode(self, values: Int64Vector) -> Uint64Vector:
        """Return the residues of integers of magnitude up to (p - 1) / 2, shape (d,).

        Raises:
            ValueError: one is larger.
        """
        return prime_field.to_field(values)

    def decode(self, residues: Uint64Vector) -> Int64Vector:
        """Return the integers of magnitude up to (p - 1) / 2 that residues stand for."""
        return prime_field.from_field(residues)


def _value_at(x: int, known: Mapping[int, Uint64Vector]) -> Uint64Vector:
    """Return the value at `x` of the polynomial through `known`, vectors of one shape by point."""
    weighted = [
        prime_field.times(vector, weight)
        for vector, weight in zip(known.values(), prime_field.weights_at(x, known), strict=True)
    ]
    return prime_field.sum_of(weighted, len(weighted[0]))

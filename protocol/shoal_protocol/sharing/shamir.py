"""Shamir's scheme on vectors modulo 2**61 - 1, loaded only where a round is shared by threshold.

A random polynomial of degree t - 1 has the secret as its value at 0, and node k's share as its
value at k + 1. The t - 1 values that may be chosen freely are compressed to seeds.
Shamir 1979, How to share a secret, doi:10.1145/359168.359176.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal_protocol.sharing import prime_field
from shoal_protocol.sharing.shares import (
    SEED_BYTES,
    RandomBytes,
    Share,
    ShareKind,
    key_stream,
    read_words,
)
from shoal_protocol.wire.encoding import Uint64Vector

STREAM: Final = b"shoal-field1"


def expand(seed: bytes, dimension: int) -> Uint64Vector:
    """Return the share, residues of shape (d,), that `seed` stands for.

    Raises:
        ValueError: the seed is not 32 bytes.
    """
    stream = key_stream(seed, STREAM)
    return prime_field.uniform(lambda count: read_words(stream, count), dimension)


def total(shares: Iterable[Share], dimension: int) -> Uint64Vector:
    """Return the sum, shape (d,), of one node's shares."""
    return prime_field.sum_of(
        (
            expand(share.payload, dimension)
            if share.kind is ShareKind.SEED
            else np.frombuffer(share.payload, "<u8")
            for share in shares
        ),
        dimension,
    )


@dataclass(frozen=True)
class Combined:
    """The total that partial sums give, residues of shape (d,), and who sent a wrong one."""

    total: Uint64Vector
    wrong: frozenset[int] = frozenset()  # indices of Compute nodes


@dataclass(frozen=True)
class Shamir:
    """Splits, adds and opens vectors of residues of which `threshold` shares are needed."""

    threshold: int

    def split(
        self, secret: Uint64Vector, kinds: Sequence[ShareKind], *, random_bytes: RandomBytes
    ) -> list[Share]:
        """Split `secret`, shape (d,), into a share of each of `kinds`, in their order.

        All but `threshold` - 1 of them are vectors.
        """
        shares: dict[int, Share] = {}
        known = {0: secret}  # the polynomial's values, by x
        for node, kind in enumerate(kinds):
            if kind is ShareKind.SEED:
                seed = random_bytes(SEED_BYTES)
                shares[node] = Share(ShareKind.SEED, seed)
                known[node + 1] = expand(seed, secret.size)
        for node in range(len(kinds)):
            if node not in shares:
                values = _value_at(node + 1, known)
                shares[node] = Share(ShareKind.VECTOR, values.astype("<u8").tobytes())
        return [shares[node] for node in range(len(kinds))]

    def combine(self, sums: Mapping[int, Uint64Vector]) -> Combined | None:
        """Return the total of at least `threshold` partial sums; None if they contradict.

        At most one choice of a wrong one explains `threshold` + 1 others.
        """
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


def _value_at(x: int, known: Mapping[int, Uint64Vector]) -> Uint64Vector:
    """Return the value at `x` of the polynomial through `known`, vectors of one shape by point."""
    weighted = [
        prime_field.times(vector, weight)
        for vector, weight in zip(known.values(), prime_field.weights_at(x, known), strict=True)
    ]
    return prime_field.sum_of(weighted, len(weighted[0]))

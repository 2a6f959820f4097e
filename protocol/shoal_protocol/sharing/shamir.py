"""Shamir's scheme on vectors modulo the Mersenne prime p = 2**61 - 1, in exact integers.

It is loaded only where a round is shared by threshold. A random polynomial of degree t - 1 has the
secret as its value at 0, and node k's share as its value at k + 1. The t - 1 values that may be
chosen freely are compressed to seeds. Vectors that go in or come out hold residues below p.
Shamir 1979, How to share a secret, doi:10.1145/359168.359176.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Final

import numpy as np

from shoal_protocol.sharing.shares import (
    SEED_BYTES,
    RandomBytes,
    Share,
    ShareKind,
    key_stream,
    read_words,
)
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector

MODULUS_BITS: Final = 61
MODULUS: Final = 2**61 - 1
LARGEST_INTEGER: Final = (MODULUS - 1) // 2

_P: Final = np.uint64(MODULUS)
_BITS: Final = np.uint64(MODULUS_BITS)
_HALF: Final = np.uint64(32)
_LOW_HALF: Final = np.uint64(2**32 - 1)
_SPARE: Final = np.uint64(29)  # 61 - 32
_LOW_SPARE: Final = np.uint64(2**29 - 1)


def reduced(values: Uint64Vector) -> Uint64Vector:
    """Return any 64-bit integers modulo p, shape (d,)."""
    folded = (values & _P) + (values >> _BITS)  # at most p + 7, since 2**61 is 1 modulo p
    return _smaller(folded, folded - _P)  # below p, folded - p wraps round and is larger


def plus(one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
    """Return the sum modulo p, shape (d,)."""
    total = one + other
    return _smaller(total, total - _P)


def minus(one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
    """Return the difference modulo p, shape (d,)."""
    difference = one - other  # where it is negative it wraps round, and adding p brings it back
    return _smaller(difference, difference + _P)


def times(values: Uint64Vector, constant: int) -> Uint64Vector:
    """Return the product with an integer modulo p, shape (d,).

    Both are cut into halves of 32 and at most 29 bits, so that no product passes 64 bits:
    with 2**64 = 8 and 2**61 = 1 modulo p, every part folds back below 2**61.
    """
    constant %= MODULUS
    low, high = np.uint64(constant & 0xFFFFFFFF), np.uint64(constant >> 32)
    values_low, values_high = values & _LOW_HALF, values >> _HALF
    middle = values_high * low + values_low * high  # below 2**62
    lowest = values_low * low
    folded = (values_high * high << np.uint64(3)) + (middle >> _SPARE)
    folded += (middle & _LOW_SPARE) << _HALF
    folded += (lowest & _P) + (lowest >> _BITS)
    return reduced(folded)  # it was below 2**63


def _smaller(one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
    smaller: Uint64Vector = np.minimum(one, other)
    return smaller


def sum_of_rows(vectors: Uint64Vector) -> Uint64Vector:
    """Return the sum modulo p, shape (d,), of up to 2**32 vectors, shape (vectors, d)."""
    low, high = (vectors & _LOW_HALF).sum(axis=0), (vectors >> _HALF).sum(axis=0)
    return plus(times(reduced(high), 2**32), reduced(low))


def uniform(words: Callable[[int], Uint64Vector], dimension: int) -> Uint64Vector:
    """Return uniform residues, shape (dimension,), from a source of uniform 64-bit words.

    Each word gives its lowest 61 bits; the one value in 2**61 that is p itself is passed over,
    so every residue is equally likely. `words(n)` returns the source's next n words.
    """
    found = words(dimension) & _P
    while not np.all(found != _P):
        kept = found[found != _P]
        found = np.concatenate([kept, words(dimension - len(kept)) & _P])
    return found


def to_field(values: Int64Vector) -> Uint64Vector:
    """Map integers, shape (d,), to their residues.

    Raises:
        ValueError: one is larger in magnitude than (p - 1) / 2.
    """
    if np.any((values > LARGEST_INTEGER) | (values < -LARGEST_INTEGER)):
        raise ValueError("an integer is too large for the prime field")
    return np.where(values < 0, values + MODULUS, values).astype(np.uint64)


def from_field(residues: Uint64Vector) -> Int64Vector:
    """Map residues, shape (d,), to the integers of magnitude up to (p - 1) / 2 they stand for."""
    values = residues.astype(np.int64)
    return np.where(values > LARGEST_INTEGER, values - MODULUS, values)


def weights_at(x: int, points: Iterable[int], *, modulus: int = MODULUS) -> list[int]:
    """Return Lagrange's weights: f(x) is the sum of weight times f(point) modulo a prime.

    It holds for every polynomial f of a degree below the number of `points`, which are distinct.
    """
    points = list(points)
    weights = []
    for point in points:
        above, below = 1, 1
        for other in points:
            if other != point:
                above = above * (x - other) % modulus
                below = below * (point - other) % modulus
        weights.append(above * pow(below, -1, modulus) % modulus)
    return weights


STREAM: Final = b"shoal-field1"


def expand(seed: bytes, dimension: int) -> Uint64Vector:
    """Return the share, residues of shape (d,), that `seed` stands for.

    Raises:
        ValueError: the seed is not 32 bytes.
    """
    stream = key_stream(seed, STREAM)
    return uniform(lambda count: read_words(stream, count), dimension)


def split(
    secret: Uint64Vector, kinds: Sequence[ShareKind], *, random_bytes: RandomBytes
) -> list[Share]:
    """Split `secret`, shape (d,), into a share of each of `kinds`, in their order.

    As many shares open it as `kinds` has seeds, and one more.
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
            values = value_at(node + 1, known)
            shares[node] = Share(ShareKind.VECTOR, values.astype("<u8").tobytes())
    return [shares[node] for node in range(len(kinds))]


def value_at(x: int, known: Mapping[int, Uint64Vector]) -> Uint64Vector:
    """Return the value at `x` of the polynomial through `known`, vectors of one shape by point."""
    weights = weights_at(x, known)
    return reduce(plus, map(times, known.values(), weights))

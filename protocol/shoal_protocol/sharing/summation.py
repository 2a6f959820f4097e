"""Checks and adds the shares that data holders split, and opens the sums, whatever the scheme.

Compute nodes and whoever opens or audits a total do so; a data holder only splits. A library
computes one ChaCha20 stream at a time (RFC 8439), and setting it up takes as long as a thousand
words of it. So the block function here works on the seeds of many short streams together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from shoal_protocol.sharing import schemes, shamir
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.shares import (
    SEED_BYTES,
    Share,
    ShareKind,
    from_ring,
    key_stream,
    read_words,
)
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector
from shoal_protocol.wire.service_errors import WrongShare

Words = npt.NDArray[np.uint32]

SHORT: Final = 96  # words of 64 bits, up to which this is quicker than a library
_CONSTANTS: Final = np.frombuffer(b"expand 32-byte k", "<u4")
_DOUBLE_ROUNDS: Final = 10
_BLOCK_WORDS: Final = 8  # of 64 bits
_LANES: Final = 4096  # blocks worked on at once: the state stays in a processor's caches


def streams(seeds: bytes, name: bytes, count: int) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the first `count` words of each seed's key stream, shape (some seeds, count), in order.

    `seeds` has 32 bytes for each; `name` is as in `key_stream`.

    Raises:
        ValueError: a seed is cut short.
    """
    if len(seeds) % SEED_BYTES:
        raise ValueError(f"a seed has {SEED_BYTES} bytes")
    if count > SHORT:
        for start in range(0, len(seeds), SEED_BYTES):
            yield read_words(key_stream(seeds[start : start + SEED_BYTES], name), count)[None]
        return
    keys = np.frombuffer(seeds, "<u4").reshape(-1, 8)
    blocks = -(-count // _BLOCK_WORDS)
    together = _LANES // blocks
    for start in range(0, len(keys), together):
        yield _blocks(keys[start : start + together], name, blocks)[:, :count]


def total(seeds: bytes, name: bytes, count: int) -> Uint64Vector:
    """Return the sum modulo 2**64, shape (count,), of the `streams` of these seeds."""
    added = np.zeros(count, np.uint64)
    for some in streams(seeds, name, count):
        added += some[0] if len(some) == 1 else some.sum(axis=0, dtype=np.uint64)
    return added


def _blocks(keys: Words, name: bytes, blocks: int) -> npt.NDArray[np.uint64]:
    """Return the first blocks of the streams of `keys`, (n, 8): shape (n, 8 * blocks)."""
    last = np.empty((4, 1, blocks), np.uint32)
    last[0] = np.arange(blocks, dtype=np.uint32)
    last[1:] = np.frombuffer(name, "<u4")[:, None, None]
    return _mixed(keys, last).view("<u8").reshape(len(keys), -1)


def _mixed(keys: Words, last: Words) -> Words:
    """Return blocks of 16 words, shape (n, blocks, 16), of `keys`, (n, 8).

    `last`, of a shape that fits (4, n, blocks), are words 12 to 15 of the states (2.3).
    """
    state = np.empty((4, 4, len(keys), last.shape[-1]), np.uint32)
    state[0] = _CONSTANTS[:, None, None]
    state[1:3] = keys.T.reshape(2, 4, -1, 1)
    state[3] = last
    a, b, c, d = (row.reshape(4, -1).copy() for row in state)
    spare = np.empty_like(a)
    for _ in range(_DOUBLE_ROUNDS):
        _quarter_rounds(a, b, c, d, spare)
        b, c, d = b[[1, 2, 3, 0]], c[[2, 3, 0, 1]], d[[3, 0, 1, 2]]  # diagonals become columns
        _quarter_rounds(a, b, c, d, spare)
        b, c, d = b[[3, 0, 1, 2]], c[[2, 3, 0, 1]], d[[1, 2, 3, 0]]
    mixed = np.stack([a, b, c, d]).reshape(state.shape) + state
    return mixed.reshape(16, *state.shape[2:]).transpose(1, 2, 0).astype("<u4", order="C")


def _quarter_rounds(a: Words, b: Words, c: Words, d: Words, spare: Words) -> None:
    """Do the quarter round, 2.1, on every column of these rows, (4, lanes) each, in place."""
    for one, two, three, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        one += two
        three ^= one
        np.right_shift(three, np.uint32(32 - bits), out=spare)
        three <<= np.uint32(bits)
        three |= spare


def check(
    sharing: Sharing, share: Share, *, holder: int, node: int, nodes: int, dimension: int
) -> None:
    """Refuse a share that is not of the kind and length which `node` is due.

    Raises:
        WrongShare: a seed where the vector is due, or the reverse; not 32 bytes, or not
            8 * dimension bytes; or as `check_residues`, of a vector.
    """
    due = sharing.kind_for(holder=holder, node=node, nodes=nodes)
    if share.kind is not due:
        raise WrongShare("this node is due the other kind of share from this data holder")
    if len(share.payload) != (SEED_BYTES if due is ShareKind.SEED else 8 * dimension):
        raise WrongShare("the share does not have the round's length")
    if share.kind is ShareKind.VECTOR:
        check_residues(sharing, np.frombuffer(share.payload, "<u8"))


def check_residues(sharing: Sharing, vector: Uint64Vector) -> None:
    """Refuse a vector, shape (d,), with a coordinate that is not below the modulus.

    Modulo 2**64 each 64-bit word is a residue.

    Raises:
        WrongShare
    """
    if sharing.scheme == "threshold" and np.any(vector >= shamir.MODULUS):
        raise WrongShare("a coordinate is not a residue of the round's modulus")


def add_packed(sharing: Sharing, kind: ShareKind, payloads: bytes, dimension: int) -> Uint64Vector:
    """Return the sum, shape (d,), of shares of one kind, one behind another in `payloads`.

    Raises:
        ValueError: a share is cut short.
    """
    is_threshold = sharing.scheme == "threshold"
    if kind is ShareKind.VECTOR:
        vectors = np.frombuffer(payloads, "<u8").reshape(-1, dimension)
        return shamir.sum_of_rows(vectors) if is_threshold else vectors.sum(axis=0)
    if is_threshold:
        return _total_of_seeds(payloads, dimension)
    return total(payloads, schemes.STREAM, dimension)


def _total_of_seeds(seeds: bytes, dimension: int) -> Uint64Vector:
    """Return the sum of the vectors of residues that seeds stand for, as `shamir.expand`."""
    added, expanded = np.zeros(dimension, np.uint64), 0
    for words in streams(seeds, shamir.STREAM, dimension):
        residues = words & np.uint64(shamir.MODULUS)
        # a word that gives no residue, as one in 2**61 does, is passed over by its stream
        for row in np.flatnonzero((residues == shamir.MODULUS).any(axis=1)).tolist():
            start = SEED_BYTES * (expanded + row)
            residues[row] = shamir.expand(seeds[start : start + SEED_BYTES], dimension)
        added = shamir.plus(added, shamir.sum_of_rows(residues))
        expanded += len(words)
    return added


def plus(sharing: Sharing, one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
    """Return the sum of two vectors of residues, shape (d,)."""
    return shamir.plus(one, other) if sharing.scheme == "threshold" else one + other


def minus(sharing: Sharing, one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
    """Return the difference of two vectors of residues, shape (d,)."""
    return shamir.minus(one, other) if sharing.scheme == "threshold" else one - other


@dataclass(frozen=True)
class Combined:
    """The total that partial sums give, residues of shape (d,), and who sent a wrong one."""

    total: Uint64Vector
    wrong: frozenset[int] = frozenset()  # indices of Compute nodes


def combine(sharing: Sharing, sums: Mapping[int, Uint64Vector], *, nodes: int) -> Combined | None:
    """Return the total of partial sums, given by the node's index: of all, or of a threshold.

    Under additive sharing it is never None: nothing shows in a sum that it is wrong. By threshold
    more sums than that are checked against each other. If they do not lie on one polynomial and
    there are threshold + 2 or more, at most one choice of a wrong one explains the others; it is
    named, and the total is that of the others. None if they contradict each other beyond that:
    nobody can say what the total is.

    With committees `sums` are those of all nodes that are named in each: they are weighted, so they
    are just added up, and nothing shows that one is wrong.

    Raises:
        ValueError: there are too few sums, or one of no node.
    """
    needed = sharing.needed(nodes)
    if len(sums) < needed or not sums.keys() <= set(range(nodes)):
        raise ValueError(f"the partial sums of {needed} Compute nodes are needed")
    if sharing.scheme == "threshold" and sharing.committee is None:
        return _checked(sums, threshold=sharing.threshold)
    return Combined(reduce(partial(plus, sharing), sums.values()))


def _checked(sums: Mapping[int, Uint64Vector], *, threshold: int) -> Combined | None:
    """Return what `combine` does by threshold: docs/mathematics.md, theorem 4."""
    values = {node + 1: sums[node] for node in sorted(sums)}
    if (total := _value_at_0(values, threshold)) is not None:
        return Combined(total)
    if len(values) < threshold + 2:
        return None
    for suspect in values:
        others = {x: vector for x, vector in values.items() if x != suspect}
        if (total := _value_at_0(others, threshold)) is not None:
            return Combined(total, frozenset({suspect - 1}))
    return None


def _value_at_0(values: Mapping[int, Uint64Vector], threshold: int) -> Uint64Vector | None:
    """Return the value at 0 of the polynomial of degree threshold - 1 through `values`, by x.

    None if they do not lie on one.
    """
    known = dict(islice(values.items(), threshold))
    others = (x for x in values if x not in known)
    if all(np.array_equal(shamir.value_at(x, known), values[x]) for x in others):
        return shamir.value_at(0, known)
    return None


def decode(sharing: Sharing, residues: Uint64Vector) -> Int64Vector:
    """Return the integers, shape (d,), around 0 that residues stand for.

    They are in [-2**63, 2**63), or by threshold of magnitude up to (p - 1) / 2.
    """
    return shamir.from_field(residues) if sharing.scheme == "threshold" else from_ring(residues)

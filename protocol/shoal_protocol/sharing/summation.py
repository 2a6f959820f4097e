"""Checks and adds the shares that data holders split, and opens the sums, whatever the scheme.

Compute nodes and whoever opens or audits a total do so; a data holder only splits.
"""

from collections.abc import Mapping
from functools import partial, reduce

import numpy as np

from shoal_protocol.sharing import schemes, shamir
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.shamir import Combined
from shoal_protocol.sharing.shares import (
    SEED_BYTES,
    Share,
    ShareKind,
    from_ring,
)
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector
from shoal_protocol.wire.service_errors import WrongShare


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
    expand = shamir.expand if is_threshold else schemes.expand
    total = np.zeros(dimension, np.uint64)
    for start in range(0, len(payloads), SEED_BYTES):
        seed = payloads[start : start + SEED_BYTES]
        total = plus(sharing, total, expand(seed, dimension))
    return total


def plus(sharing: Sharing, one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
    """Return the sum of two vectors of residues, shape (d,)."""
    return shamir.plus(one, other) if sharing.scheme == "threshold" else one + other


def minus(sharing: Sharing, one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
    """Return the difference of two vectors of residues, shape (d,)."""
    return shamir.minus(one, other) if sharing.scheme == "threshold" else one - other


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
        return shamir.combine(sums, threshold=sharing.threshold)
    return Combined(reduce(partial(plus, sharing), sums.values()))


def decode(sharing: Sharing, residues: Uint64Vector) -> Int64Vector:
    """Return the integers, shape (d,), around 0 that residues stand for.

    They are in [-2**63, 2**63), or by threshold of magnitude up to (p - 1) / 2.
    """
    return shamir.from_field(residues) if sharing.scheme == "threshold" else from_ring(residues)

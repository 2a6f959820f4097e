"""Checks and adds the shares that data holders split, and opens the sums, whatever the scheme.

Compute nodes and whoever opens or audits a total do so; a data holder only splits.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from shoal_protocol.sharing import additive, many_streams, prime_field, shamir
from shoal_protocol.sharing.ring import from_ring
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.shamir import Combined, Shamir
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector
from shoal_protocol.wire.service_errors import WrongLength, WrongResidue, WrongShareKind


def check(
    sharing: Sharing, share: Share, *, holder: int, node: int, nodes: int, dimension: int
) -> None:
    """Refuse a share that is not of the kind and length which `node` is due.

    Raises:
        WrongShareKind: a seed where the vector is due, or the reverse.
        WrongLength: not 32 bytes, or not 8 * dimension bytes.
        WrongResidue: as `check_residues`, of a vector.
    """
    due = sharing.kind_for(holder=holder, node=node, nodes=nodes)
    if share.kind is not due:
        raise WrongShareKind
    if len(share.payload) != (SEED_BYTES if due is ShareKind.SEED else 8 * dimension):
        raise WrongLength
    if share.kind is ShareKind.VECTOR:
        check_residues(sharing, np.frombuffer(share.payload, "<u8"))


def check_residues(sharing: Sharing, vector: Uint64Vector) -> None:
    """Refuse a vector, shape (d,), with a coordinate that is not below the modulus.

    Modulo 2**64 each 64-bit word is a residue.

    Raises:
        WrongResidue
    """
    if sharing.scheme == "threshold" and np.any(vector >= prime_field.MODULUS):
        raise WrongResidue


def add(sharing: Sharing, shares: Iterable[Share], dimension: int) -> Uint64Vector:
    """Return one node's partial sum, shape (d,), of the shares that it holds."""
    if sharing.scheme == "threshold":
        return shamir.total(shares, dimension)
    total = np.zeros(dimension, np.uint64)
    for share in shares:
        if share.kind is ShareKind.SEED:
            total += additive.expand(share.payload, dimension)
        else:
            total += np.frombuffer(share.payload, "<u8")
    return total


def add_packed(sharing: Sharing, kind: ShareKind, payloads: bytes, dimension: int) -> Uint64Vector:
    """Return the sum, shape (d,), of shares of one kind, one behind another in `payloads`.

    Raises:
        ValueError: a share is cut short.
    """
    is_threshold = sharing.scheme == "threshold"
    if kind is ShareKind.VECTOR:
        vectors = np.frombuffer(payloads, "<u8").reshape(-1, dimension)
        return prime_field.sum_of_rows(vectors) if is_threshold else vectors.sum(axis=0)
    if is_threshold:
        return _total_of_seeds(payloads, dimension)
    return many_streams.total(payloads, additive.STREAM, dimension)


def _total_of_seeds(seeds: bytes, dimension: int) -> Uint64Vector:
    """Return the sum of the vectors of residues that seeds stand for, as `shamir.expand`."""
    added, expanded = np.zeros(dimension, np.uint64), 0
    for words in many_streams.streams(seeds, shamir.STREAM, dimension):
        residues = words & np.uint64(prime_field.MODULUS)
        # a word that gives no residue, as one in 2**61 does, is passed over by its stream
        for row in np.flatnonzero((residues == prime_field.MODULUS).any(axis=1)).tolist():
            start = SEED_BYTES * (expanded + row)
            residues[row] = shamir.expand(seeds[start : start + SEED_BYTES], dimension)
        added = prime_field.plus(added, prime_field.sum_of_rows(residues))
        expanded += len(words)
    return added


def plus(sharing: Sharing, one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
    """Return the sum of two vectors of residues, shape (d,)."""
    return prime_field.plus(one, other) if sharing.scheme == "threshold" else one + other


def minus(sharing: Sharing, one: Uint64Vector, other: Uint64Vector) -> Uint64Vector:
    """Return the difference of two vectors of residues, shape (d,)."""
    return prime_field.minus(one, other) if sharing.scheme == "threshold" else one - other


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
    if sharing.committee is not None:
        if len(sums) < sharing.needed(nodes) or not sums.keys() <= set(range(nodes)):
            raise ValueError(f"the partial sums of {sharing.needed(nodes)} nodes are needed")
        total, *others = sums.values()
        for other in others:
            total = plus(sharing, total, other)
        return Combined(total)
    if sharing.scheme == "threshold":
        if len(sums) < sharing.threshold or not sums.keys() <= set(range(nodes)):
            raise ValueError(f"the partial sums of {sharing.threshold} Compute nodes are needed")
        return Shamir(sharing.threshold).combine(sums)
    if sums.keys() != set(range(nodes)):
        raise ValueError("the partial sums of all Compute nodes are needed")
    return Combined(np.sum(list(sums.values()), axis=0, dtype=np.uint64))


def decode(sharing: Sharing, residues: Uint64Vector) -> Int64Vector:
    """Return the integers, shape (d,), around 0 that residues stand for.

    They are in [-2**63, 2**63), or by threshold of magnitude up to (p - 1) / 2.
    """
    return (
        prime_field.from_field(residues) if sharing.scheme == "threshold" else from_ring(residues)
    )

"""Judges partial sums and adds them up: pure; knows no peer, no clock and no storage."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from shoal_protocol.attestations import PartialSum, PartialSumReference, Result
from shoal_protocol.encoding import decode_uint64, encode_uint64
from shoal_protocol.errors import WrongCohort, WrongLength
from shoal_protocol.rounds import RoundSpec
from shoal_protocol.sums import is_possible

_RESIDUE_BYTES: Final = 8


def check_partial_sum(body: PartialSum, spec: RoundSpec) -> None:
    """Refuse a partial sum of this round that cannot be part of its result.

    Raises:
        WrongCohort, WrongLength
        MalformedDocument: the values are not whole residues.
    """
    if not spec.minimum_cohort <= body.cohort_size <= spec.population_size:
        raise WrongCohort(
            "the cohort is smaller than minimum_cohort, or larger than the population"
        )
    if decode_uint64(body.values).nbytes != spec.dimension * _RESIDUE_BYTES:
        raise WrongLength("values must hold 8 bytes for each coordinate of the round's query")


def add_up(spec: RoundSpec, sums: Sequence[PartialSum]) -> Result | None:
    """Return the round's result: the sum modulo 2**64, in which all blinding has cancelled.

    None if no clients' answers add up to that: then nothing may be released. The bytes of a
    residue are those of the signed integer that it stands for, so nothing is left to decode.

    Raises:
        ValueError: `sums` are not one of each Compute node, over one cohort.
    """
    by_node = {each.node: each for each in sums}
    if len(sums) != len(by_node) or by_node.keys() != set(spec.compute_nodes):
        raise ValueError("exactly one partial sum of each Compute node is needed")
    cohorts = {(each.cohort, each.cohort_size) for each in sums}
    if len(cohorts) != 1:
        raise ValueError("the partial sums are over different cohorts")
    ((cohort, cohort_size),) = cohorts
    total = np.zeros(spec.dimension, np.uint64)
    for each in sums:
        total += decode_uint64(each.values)
    if not is_possible(spec, total, cohort_size=cohort_size):
        return None
    return Result(
        manifest=spec.manifest,
        round=spec.digest,
        cohort=cohort,
        cohort_size=cohort_size,
        values=encode_uint64(total),
        partial_sums=tuple(
            PartialSumReference(node=node, digest=by_node[node].digest)
            for node in spec.compute_nodes
        ),
    )

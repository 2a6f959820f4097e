"""Validates partial sums and adds them up, without input or output."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shoal_protocol.privacy.ledger_checks import check_charge
from shoal_protocol.rounds.attestations import PartialSum, PartialSumReference, Result, check_nodes
from shoal_protocol.rounds.outcomes import IMPOSSIBLE, is_possible
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.shamir import Combined
from shoal_protocol.sharing.shares import to_ring
from shoal_protocol.wire.service_errors import WrongCohort, WrongLength
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64

_RESIDUE_BYTES: Final = 8
CONTRADICTORY: Final = (
    "the Compute nodes' partial sums contradict each other, and it cannot be told which one is "
    "wrong. Let the nodes' operators compare software and storage; then submit the job again"
)


@dataclass(frozen=True)
class Summed:
    """A round's result, and the nodes whose partial sums contradict it and were left out.

    `ledgers` has the digest of the ledger entry in each partial sum that it rests on, by node.
    """

    result: Result
    wrong: tuple[str, ...]
    ledgers: Mapping[str, str]


@dataclass(frozen=True)
class Unusable:
    """There is no total that may be released, and why."""

    reason: str


def check_partial_sum(body: PartialSum, spec: RoundSpec) -> None:
    """Refuse a partial sum of this round that cannot be part of its result.

    Raises:
        WrongCharge, WrongCohort, WrongLength, WrongResidue
        MalformedDocument: the values are not whole residues.
    """
    check_charge(body.charge, spec, node=body.node)
    if not spec.minimum_cohort <= body.cohort_size <= spec.population_size:
        raise WrongCohort(
            "the cohort is smaller than minimum_cohort, or larger than the population"
        )
    check_nodes(spec, body.node, body.nodes)
    residues = decode_uint64(body.values)
    if residues.nbytes != spec.dimension * _RESIDUE_BYTES:
        raise WrongLength("values must hold 8 bytes for each coordinate of the round's query")
    summation.check_residues(spec.sharing, residues)


def of_largest_cohort(sums: Sequence[PartialSum]) -> list[PartialSum]:
    """Return the partial sums over the cohort that has the most of them.

    Only one cohort can have a threshold of them, for that is more than half of the nodes.
    """
    cohorts = [each.over for each in sums]
    largest = max(cohorts, key=cohorts.count)
    return [each for each in sums if each.over == largest]


def add_up(spec: RoundSpec, sums: Sequence[PartialSum]) -> Summed | Unusable:
    """Return the round's result: the total that the partial sums give, without blinding.

    Unusable if they contradict each other, or no clients' answers add up to that.

    Raises:
        ValueError: `sums` are not of enough Compute nodes, one of each, over one cohort.
    """
    by_node = {each.node: each for each in sums}
    cohorts = {each.over for each in sums}
    if len(sums) != len(by_node) or not by_node.keys() <= set(spec.compute_nodes):
        raise ValueError("at most one partial sum of each Compute node is needed")
    if len(cohorts) != 1:
        raise ValueError("the partial sums are not over one cohort")
    ((cohort, cohort_size, _),) = cohorts
    combined = _combined(spec, sums)
    if combined is None:
        return Unusable(CONTRADICTORY)
    total = summation.decode(spec.sharing, combined.total)
    if not is_possible(spec, total, cohort_size=cohort_size):
        return Unusable(IMPOSSIBLE)
    wrong = tuple(spec.compute_nodes[index] for index in sorted(combined.wrong))
    result = Result(
        manifest=spec.manifest,
        round=spec.digest,
        cohort=cohort,
        cohort_size=cohort_size,
        values=encode_uint64(to_ring(total)),
        partial_sums=tuple(
            PartialSumReference(node=node, digest=by_node[node].digest)
            for node in spec.compute_nodes
            if node in by_node and node not in wrong
        ),
    )
    ledgers = {each.node: by_node[each.node].charge.digest for each in result.partial_sums}
    return Summed(result, wrong, ledgers)


def contradicts(spec: RoundSpec, used: Sequence[PartialSum], late: PartialSum) -> bool:
    """Tell whether a partial sum contradicts a published result's sums over the same cohort."""
    combined = _combined(spec, [*used, late])
    return combined is None or bool(combined.wrong)


def blamed(
    spec: RoundSpec, used: Sequence[PartialSum], others: Sequence[PartialSum], late: PartialSum
) -> tuple[str, ...]:
    """Return whose partial sum is wrong, if one contradicts a result; none if it cannot be told.

    It may be one that the result is made of, if that rests on too few to be checked.
    """
    same = [each for each in others if each.over == late.over]
    for sums in ([*used, late], [*used, *same, late]):
        combined = _combined(spec, sums)
        if combined is not None and combined.wrong:
            return tuple(spec.compute_nodes[index] for index in sorted(combined.wrong))
    return ()


def _combined(spec: RoundSpec, sums: Sequence[PartialSum]) -> Combined | None:
    values = {each.node: decode_uint64(each.values) for each in sums}
    nodes = spec.compute_nodes
    by_index = {index: values[node] for index, node in enumerate(nodes) if node in values}
    return summation.combine(spec.sharing, by_index, nodes=len(nodes))

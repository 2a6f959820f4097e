"""Under threshold sharing the trainer adds up exactly the partial sums that a result names."""

from collections.abc import Sequence

import numpy as np
import pytest

from shoal_aggregator.aggregator import Summed, add_up
from shoal_protocol.rounds.attestations import PartialSum, Result
from shoal_protocol.rounds.outcomes import verified_outcome
from shoal_protocol.sharing.shamir import MODULUS
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.service_errors import RefusedResult, WrongCohort, WrongShare
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from tests.aggregator.test_threshold import FIVE, SPEC, SUMS
from tests.world import examples


def result_of(nodes: Sequence[int]) -> Result:
    summed = add_up(SPEC, [SUMS[node] for node in nodes])
    assert isinstance(summed, Summed)
    return summed.result.model_copy(update={"entry": examples.PLACE})


def judge(result: Result, sums: Sequence[PartialSum]) -> list[str]:
    """Return the nodes whose sums the trainer keeps."""
    end = examples.named("aggregator", result)
    shown = [end, *(examples.named(each.node, each) for each in sums)]
    outcome = canonical_json({"documents": [each.to_json() for each in shown]})
    _, kept = verified_outcome(outcome, SPEC, FIVE)
    return [each.body.node for each in kept]


@pytest.mark.parametrize("nodes", [(0, 1, 2), (1, 3, 4), (0, 1, 3, 4), range(5)], ids=str)
def test_a_result_of_a_threshold_of_sums_or_more_is_borne_out_by_them(nodes) -> None:
    sums = [SUMS[node] for node in reversed(nodes)]
    assert judge(result_of(nodes), sums) == [f"compute-{node}" for node in nodes]


def test_a_result_of_fewer_sums_than_the_threshold_is_refused() -> None:
    result = result_of((0, 1, 2))
    few = result.model_copy(update={"partial_sums": result.partial_sums[:2]})
    with pytest.raises(WrongCohort, match="3 Compute nodes"):
        judge(few, SUMS[:2])


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 0, 1), (2, 1, 0)], ids=str)
def test_a_result_names_each_node_once_and_in_order(order) -> None:
    result = result_of((0, 1, 2))
    references = tuple(result.partial_sums[position] for position in order)
    with pytest.raises(WrongCohort, match="in their order"):
        judge(result.model_copy(update={"partial_sums": references}), SUMS[:3])


@pytest.mark.parametrize("nodes", [(0, 1), (0, 1, 2, 3), (0, 1, 3), (0, 1, 2, 2)], ids=str)
def test_other_sums_than_those_that_the_result_names_are_refused(nodes) -> None:
    with pytest.raises(RefusedResult, match="the result names"):
        judge(result_of((0, 1, 2)), [SUMS[node] for node in nodes])


def test_sums_that_contradict_each_other_are_refused_also_if_one_could_be_left_out() -> None:
    values = decode_uint64(SUMS[2].values)
    values[0] = (values[0] + np.uint64(1)) % np.uint64(MODULUS)
    lie = SUMS[2].model_copy(update={"values": encode_uint64(values)})
    sums = [*SUMS[:2], lie, *SUMS[3:]]
    references = tuple(
        reference.model_copy(update={"digest": each.digest})
        for reference, each in zip(result_of(range(5)).partial_sums, sums, strict=True)
    )
    result = result_of(range(5)).model_copy(update={"partial_sums": references})
    with pytest.raises(RefusedResult, match="contradict each other"):
        judge(result, sums)


def test_a_total_that_the_sums_do_not_give_is_refused() -> None:
    result = result_of((0, 1, 2))
    values = decode_uint64(result.values) + np.uint64(1)
    with pytest.raises(RefusedResult, match="not the total"):
        judge(result.model_copy(update={"values": encode_uint64(values)}), SUMS[:3])


def test_a_sum_with_a_word_that_is_no_residue_is_refused() -> None:
    values = np.full(SPEC.dimension, MODULUS, np.uint64)
    bad = SUMS[0].model_copy(update={"values": encode_uint64(values)})
    with pytest.raises(WrongShare, match="residue"):
        judge(result_of((0, 1, 2)), [bad, *SUMS[1:3]])

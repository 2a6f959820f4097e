"""An aggregator that signs, with its real key, another total than the Compute nodes' sums have."""

from dataclasses import replace

import numpy as np
import pytest

from shoal_aggregator import aggregator
from shoal_aggregator.aggregator import Summed
from shoal_protocol.rounds.attestations import PartialSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from tests.world.federation import Federation


async def test_an_aggregator_that_changes_the_total_gets_no_posterior(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = aggregator.add_up

    def lie(spec: RoundSpec, sums: list[PartialSum]) -> Summed:
        summed = honest(spec, sums)
        assert isinstance(summed, Summed)
        values = decode_uint64(summed.result.values)
        values[1] += np.uint64(spec.query.largest_value)  # a total that is possible
        lied = summed.result.model_copy(update={"values": encode_uint64(values)})
        return replace(summed, result=lied)

    monkeypatch.setattr(aggregator, "add_up", lie)
    job = await federation.submit()
    state = await federation.finish(job)

    assert state["phase"] == "failed"
    assert (
        "the aggregator's word on it is not valid (outcome_refused; refused-result: "
        "the result is not the total of the Compute nodes' partial sums)"
    ) in state["reason"]
    signed = await federation.result(state["rounds"][0]["round"])
    assert signed is not None, "the lie was told"

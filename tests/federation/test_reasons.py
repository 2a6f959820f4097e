"""Why something fails, and what to do, is said to who must act, by the party that knows it."""

import pytest

from shoal.jobs.job_failures import JobRefused
from tests.world.federation import Federation

HOURS = 10 * 3600.0
WEAKENS = ("SHOAL_WITHOUT_NODES", "trust_clock", "--trust-clock", "accept")
"""What no message may advise where a clock is wrong."""


@pytest.mark.parametrize(
    ("ahead", "said"), [(HOURS, "ahead of"), (-HOURS, "behind")], ids=["ahead", "behind"]
)
async def test_an_analyst_whose_clock_is_wrong_reads_by_how_much(
    federation: Federation, ahead: float, said: str
) -> None:
    await federation.step()
    federation.clock.skew_seconds["analyst"] = ahead
    with pytest.raises(JobRefused, match=rf"10:00:00 \(h:mm:ss\) {said} the clock here"):
        await federation.after(federation.analyst.jobs())
    with pytest.raises(JobRefused, match=r"(10:00:00|9:59:50|1[45] days.*) .*clock .* is wrong"):
        await federation.submit(join_seconds=10 if ahead < 0 else 14 * 86_400 - 60)


async def test_a_data_holder_whose_clock_is_wrong_reads_it_of_everyone_it_asks(
    federation: Federation,
) -> None:
    federation.clock.skew_seconds["clinic-a"] = HOURS
    for _ in range(40):
        await federation.step()
        federation.clock.move(1.0)
    unheard = (await federation.party("clinic-a").status()).unheard
    assert set(unheard) >= set(federation.nodes)
    for said in unheard.values():
        assert "10:00:00 (h:mm:ss) ahead of the clock here: one of the two is wrong" in said
        assert not any(each in said for each in WEAKENS)


async def test_a_node_whose_clock_is_wrong_is_named_to_the_analyst(federation: Federation) -> None:
    await federation.step()
    job = await federation.submit()
    federation.clock.skew_seconds["compute-1"] = HOURS
    state = await federation.finish(job, seconds=3600)
    assert state["phase"] == "failed"
    assert "compute-1" in state["reason"]
    assert "the deadline has passed, 9:59:" in state["reason"] and "clock" in state["reason"]

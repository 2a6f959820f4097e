"""Clients that go missing while a round is open."""

from tests.world.audit import audit
from tests.world.federation import Federation


async def test_too_many_dropouts_end_the_job_with_nothing_released(federation: Federation) -> None:
    job, round_id = await federation.collecting()
    federation.absent.add("clinic-b")
    await federation.crash("clinic-b")
    await federation.until(lambda: federation.is_over(job))
    federation.absent.clear()
    state = await federation.finish(job)

    assert state["phase"] == "failed"
    assert "cohort_too_small" in state["reason"]
    assert await audit(federation) == {round_id: None}
    for node in federation.nodes:
        seen = (await federation.ask(node, f"/v1/rounds/{round_id}")).json()
        assert seen["phase"] == "abandoned"

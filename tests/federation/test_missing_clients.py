"""Clients that go missing, come late, come twice or are revoked while a round is open."""

from tests.world.audit import audit
from tests.world.federation import ROUND_SECONDS, Federation
from tests.world.trust import SITES
from tests.world.wire import Fault

CLIENTS = sum(SITES.values())
MISSING = SITES["clinic-c"]


async def test_clients_that_drop_out_within_the_tolerance_are_left_out(
    federation: Federation,
) -> None:
    job, round_id = await federation.collecting()
    federation.absent.add("clinic-c")
    await federation.crash("clinic-c")
    await federation.until(lambda: federation.is_over(job))
    federation.absent.clear()
    state = await federation.finish(job)

    assert state["phase"] == "finished", state
    result = (await audit(federation))[round_id]
    assert result is not None
    assert result["cohort_size"] == CLIENTS - MISSING


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


async def test_shares_that_come_after_the_deadline_are_left_out(federation: Federation) -> None:
    cut = federation.wire.cut("clinic-c", "compute-2", "/shares")
    job, round_id = await federation.collecting()
    await federation.step(list(SITES))
    federation.wire.rules.remove(cut)
    late = next(m for m in federation.wire.log if m.fault is Fault.LOST)
    federation.clock.move(ROUND_SECONDS + 1)  # nobody has noticed yet
    answer = await federation.ask("compute-2", late.path, method="POST", content=late.body)
    assert (answer.status_code, answer.json()["type"]) == (410, "urn:shoal:problem:too-late")
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    result = (await audit(federation))[round_id]
    assert result is not None
    assert result["cohort_size"] == CLIENTS - MISSING

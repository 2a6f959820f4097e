"""A node that lost shares while a round collects is made whole by those who sent them."""

import shutil
from pathlib import Path

from tests.world.audit import audit
from tests.world.federation import Federation
from tests.world.trust import SITES

NODE = "compute-1"
CLIENTS = sum(SITES.values())
LATE = "clinic-c"  # nobody holds all shares while it is away, so the round goes on collecting
EARLY = {site: count for site, count in SITES.items() if site != LATE}


async def collecting(federation: Federation) -> tuple[str, str]:
    job, round_id = await federation.collecting()
    await leave(federation, LATE)
    return job, round_id


async def leave(federation: Federation, name: str) -> None:
    federation.absent.add(name)
    await federation.crash(name)


async def lose(federation: Federation, store: Path, backup: Path | None = None) -> None:
    """Take a node down and put a backup, or nothing, where its store was."""
    await federation.crash(NODE)
    shutil.rmtree(store)
    if backup is not None:
        shutil.copytree(backup, store)


async def pass_time(federation: Federation, seconds: int) -> None:
    for _ in range(seconds):
        await federation.step()
        federation.clock.move(1.0)


async def held(federation: Federation, round_id: str) -> int:
    return int((await federation.ask(NODE, f"/v1/rounds/{round_id}")).json()["held"])


async def cohort_at_the_end(federation: Federation, job: str, round_id: str) -> int:
    federation.absent.clear()
    state = await federation.finish(job)
    assert state["phase"] == "finished", state["reason"]
    result = (await audit(federation))[round_id]
    assert result is not None
    return int(result["cohort_size"])


async def test_a_node_that_comes_back_from_an_older_backup_is_uploaded_to_again(
    federation: Federation, tmp_path: Path
) -> None:
    job, round_id = await collecting(federation)
    await federation.step(["clinic-a"])
    await federation.crash(NODE)  # a backup is taken of a store at rest
    backup = Path(shutil.copytree(tmp_path / NODE, tmp_path / "backup"))
    await federation.step()
    assert await held(federation, round_id) == len(EARLY)
    await lose(federation, tmp_path / NODE, backup)
    assert await held(federation, round_id) == 1

    await pass_time(federation, 25)  # past half-time
    assert await held(federation, round_id) == len(EARLY)
    assert await cohort_at_the_end(federation, job, round_id) == CLIENTS


async def test_who_cannot_send_again_in_time_is_left_out_and_nobody_else(
    federation: Federation, tmp_path: Path
) -> None:
    job, round_id = await federation.collecting()
    cut = federation.wire.cut("clinic-a", "compute-0")  # so that the round goes on collecting
    also = federation.wire.cut("clinic-a", NODE)
    await federation.step()
    await leave(federation, LATE)
    await lose(federation, tmp_path / NODE)
    await federation.step()
    federation.wire.rules.remove(cut)
    federation.wire.rules.remove(also)
    await federation.until(lambda: federation.is_over(job))

    assert await cohort_at_the_end(federation, job, round_id) == CLIENTS - SITES[LATE]


async def test_a_node_that_forgot_what_it_attested_makes_nobody_release_anything(
    federation: Federation, tmp_path: Path
) -> None:
    cut = federation.wire.cut(LATE, "compute-0")
    job, round_id = await federation.collecting()
    await federation.step()  # the node has everybody's shares, and signs its holdings
    await lose(federation, tmp_path / NODE)
    await pass_time(federation, 30)
    federation.wire.rules.remove(cut)
    state = await federation.finish(job)

    assert state["phase"] == "failed"
    # a peer compares what it signed twice, unless it was shown first that it was set back and stops
    assert any(why in state["reason"] for why in ("misconduct", "partial_sums_missing"))
    assert await audit(federation) == {round_id: None}

"""A node that is killed at any moment goes on where it was, and never contradicts itself."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, text

from shoal_protocol.rounds.attestations import Holdings, Vote, cohort_of
from tests.world.around_node import (
    POPULATION,
    Federation,
    envelopes,
    expected,
    holdings,
)

PHASES = ["announced", "collecting", "frozen", "agreed", "published"]


async def advance(federation: Federation, spec: object, phase: str) -> None:
    """Bring node 0 to a phase."""
    reached = PHASES.index(phase)
    await federation.announce(spec)
    if reached >= 1:
        await federation.upload_all(spec, range(11))
    if reached >= 2:
        federation.clock.move(60)
        if reached == 2:
            federation.wire.cut |= {"compute-1.example", "compute-2.example"}
        if reached <= 3:
            federation.wire.cut.add("aggregator.example")
        await federation.step([0] if reached == 2 else None, times=1 if reached == 2 else 3)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
async def test_a_node_goes_on_after_a_crash_in_any_phase(
    federation: Federation, phase: str
) -> None:
    spec = federation.spec()
    await advance(federation, spec, phase)
    assert (await federation.state(0, spec))["phase"] == phase
    federation.crash(0)
    assert (await federation.state(0, spec))["phase"] == phase
    federation.wire.cut.clear()
    if phase == "announced":
        await federation.upload_all(spec, range(11))
    federation.clock.move(60 if phase in ("announced", "collecting") else 6)
    await federation.step(times=3)
    assert await federation.phases(spec) == ["published"] * 3
    assert np.array_equal(federation.result(spec), expected(spec.body, range(11)))


@pytest.mark.slow
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_whatever_is_lost_and_whoever_crashes_no_two_different_sums_come_out(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    federation = Federation(tmp_path_factory.mktemp("federation"))
    hosts = [f"compute-{node}.example" for node in range(3)] + ["aggregator.example"]
    try:
        spec = federation.spec()
        await federation.announce(spec)
        for node in range(3):
            missing = data.draw(st.sets(st.sampled_from(range(12)), max_size=2), "missing")
            await federation.upload_all(spec, set(POPULATION) - missing, nodes=[node])
        for _ in range(8):
            federation.wire.cut = data.draw(st.sets(st.sampled_from(hosts)), "cut")
            federation.wire.lost_replies = data.draw(st.sets(st.sampled_from(hosts)), "lost")
            for node in data.draw(st.sets(st.sampled_from(range(3)), max_size=1), "crash"):
                federation.crash(node)
            federation.clock.move(data.draw(st.sampled_from([1, 6, 20]), "seconds"))
            await federation.step(data.draw(st.permutations(range(3)), "order"))
        federation.wire.cut, federation.wire.lost_replies = set(), set()
        federation.clock.move(100)
        await federation.step(times=4)
        await check_consistency(federation, spec)
    finally:
        await federation.close()


async def check_consistency(federation: Federation, spec: object) -> None:
    documents = [signed for node in range(3) for signed in await federation.documents(node, spec)]
    for kind in (Holdings, Vote):
        for signer in federation.names:
            own = {each.digest for each in documents if _is(each, kind, signer)}
            assert len(own) <= 1
    phases = await federation.phases(spec)
    sums = federation.aggregator.sums.get(spec.digest, {})
    if len(sums) == 3:
        # the aggregator has them all, so nobody may claim that nothing was released
        assert "abandoned" not in phases
        population = spec.body.clients()
        cohort = cohort_of(h.body.held(population) for h in documents if _is(h, Holdings)).holders
        assert len(cohort) >= spec.body.minimum_cohort
        assert np.array_equal(federation.result(spec), expected(spec.body, cohort))
    for signer in sums:
        assert phases[federation.names.index(signer)] != "abandoned"


def _is(signed: object, kind: type, signer: str | None = None) -> bool:
    return isinstance(signed.body, kind) and signer in (None, signed.signer)


async def test_a_node_that_was_set_back_does_not_attest_a_second_time(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec, [0])
    await federation.upload_all(spec, range(11), nodes=[0])
    # what it attested before an old backup of its disk was put back
    await federation.gossip(0, [holdings(spec.body, "compute-0", range(12))])
    federation.clock.move(60)
    await federation.step([0], times=2)
    assert (await federation.state(0, spec))["reason"] == "misconduct"
    documents = await federation.documents(0, spec)
    assert [h.body.count for h in documents if _is(h, Holdings)] == [12]


async def test_no_payload_is_left_on_disk_when_a_round_is_over(
    federation: Federation, tmp_path: Path
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec, range(11))
    engine = create_engine(f"sqlite:///{tmp_path}/0/compute.sqlite")
    with engine.connect() as db:
        rows = db.execute(text("SELECT payloads FROM bulks")).scalars().all()
    engine.dispose()
    assert len(rows) == 2  # seeds and vectors
    assert all(payload in files_of(tmp_path / "0") for payload in rows)
    federation.clock.move(60)
    await federation.step(times=3)
    assert (await federation.state(0, spec))["phase"] == "published"
    left = files_of(tmp_path / "0")
    assert not any(payload in left for payload in rows)
    # what proves that the share was sent is still there
    assert envelopes(spec.body, 3)[0][-64:] in left


def files_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.glob("compute.sqlite*"))


async def test_erasure_goes_on_after_a_crash(federation: Federation, tmp_path: Path) -> None:
    spec = federation.spec()
    await federation.announce(spec, [0])
    await federation.upload_all(spec, range(11), nodes=[0])
    engine = create_engine(f"sqlite:///{tmp_path}/0/compute.sqlite")
    with engine.begin() as db:
        payloads = db.execute(text("SELECT payloads FROM bulks")).scalars().all()
        db.execute(text("UPDATE rounds SET phase = 'abandoned', reported = true"))
    engine.dispose()
    federation.crash(0)
    await federation.step([0])
    assert not any(payload in files_of(tmp_path / "0") for payload in payloads)

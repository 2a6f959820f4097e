"""When answers leave tells nothing of their noise; all of it on a timer that is moved by hand."""

from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shoal_holder import admission, release_timing
from shoal_holder.release_timing import (
    GRID_SECONDS,
    MOST_SECONDS,
    release_time,
    sampling_seconds,
)
from shoal_holder.release_timing import _most as most
from shoal_protocol.privacy.mechanisms import GaussianPart, LaplacePart, NoisePart
from shoal_protocol.wire.encoding import Int64Vector
from tests.world.around_holder import COLUMNS, World
from tests.world.clock import HandMovedTimer
from tests.world.people import people
from tests.world.spending import costs_of

TRIALS = 12
BLOCKS_OF_QUERY = 3  # each is a call of the sampler
PARTS = st.one_of(
    st.builds(GaussianPart, scale=st.floats(4.0, 2.0**50)),
    st.builds(LaplacePart, scale=st.floats(1.0, 2.0**50), parties=st.integers(1, 100_000)),
)
BLOCKS = st.lists(st.tuples(st.integers(1, 5_000), PARTS), min_size=1, max_size=4)


class SlowNoise:
    """Noise that takes the longer to draw the larger it is, as no sampler of ours does so plainly.

    `seconds` turns its mean magnitude, in scales, into the time that it takes.
    """

    def __init__(self, seed: int, timer: HandMovedTimer, seconds: Callable[[float], float]) -> None:
        self._generator = np.random.default_rng(seed)
        self._timer, self._seconds = timer, seconds
        self.magnitudes: list[float] = []
        self.took: list[float] = []

    def __call__(self, part: NoisePart, count: int) -> Int64Vector:
        drawn = np.rint(self._generator.normal(0.0, part.scale, count)).astype(np.int64)
        self.magnitudes.append(float(np.abs(drawn).mean()) / part.scale)
        self.took.append(self._seconds(self.magnitudes[-1]))
        self._timer.passed += self.took[-1]
        return drawn


async def sent_at(
    directory: Path,
    noise: SlowNoise,
    timer: HandMovedTimer,
    *,
    clients: int = 1,
    records: float = 50.0,
) -> list[float]:
    """Let a data holder answer a round; return when each of its requests with shares came."""
    world = World(directory, clients, others=12)
    times: list[float] = []

    def stamp(request: httpx.Request) -> None:
        if "/shares" in request.url.path:
            times.append(timer.now())

    for node in world.nodes:
        world.wire.scripts[f"compute-{node.index}"] = stamp
    values = np.full((clients, len(COLUMNS)), records)
    holder = world.holder(
        records=people(COLUMNS, values),
        noise=noise,
        timer=timer,
    )
    try:
        request = world.submit()
        await holder.step()
        world.announce(request)
        await holder.step()
    finally:
        await holder.close()
    assert all(sorted(node.held) == [0] for node in world.nodes)
    return times


@pytest.mark.slow
async def test_the_time_of_an_upload_is_not_correlated_with_its_noise(tmp_path: Path) -> None:
    magnitudes, took, left = [], [], []
    for trial in range(TRIALS):
        timer = HandMovedTimer()
        noise = SlowNoise(trial, timer, lambda magnitude: 0.2 * GRID_SECONDS * magnitude)
        times = await sent_at(tmp_path / f"{trial}", noise, timer)
        magnitudes.append(sum(noise.magnitudes))
        took.append(sum(noise.took))
        left.append(times)
    assert np.corrcoef(magnitudes, took)[0, 1] > 0.99, "the test would not see a leak"
    assert len(set(took)) == TRIALS
    assert {tuple(times) for times in left} == {(GRID_SECONDS,) * 3}  # one for each node


async def test_noise_that_takes_too_long_to_draw_leaves_at_the_next_moment_of_the_grid(
    tmp_path: Path,
) -> None:
    for trial, part in enumerate((1.004, 1.6, 1.996)):
        timer, seconds = HandMovedTimer(), part * GRID_SECONDS
        noise = SlowNoise(trial, timer, lambda magnitude, each=seconds: each / BLOCKS_OF_QUERY)
        assert await sent_at(tmp_path / f"{trial}", noise, timer) == [2 * GRID_SECONDS] * 3


@pytest.mark.parametrize("clients", [1, 12])
async def test_the_noise_of_all_slots_is_drawn_once_and_before_anything_leaves(
    tmp_path: Path, clients: int
) -> None:
    timer = HandMovedTimer()
    noise = SlowNoise(0, timer, lambda magnitude: 0.2 * GRID_SECONDS * magnitude)
    times = await sent_at(tmp_path, noise, timer, clients=clients)
    assert len(noise.took) == BLOCKS_OF_QUERY
    assert times == [GRID_SECONDS] * 3


async def test_answers_that_could_leave_only_after_the_deadline_are_not_paid_for(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)

    class Late(HandMovedTimer):
        def sleep(self, seconds: float) -> None:
            world.clock.move(61.0)

    holder = world.holder(timer=Late())
    request = world.submit()
    await holder.step()
    world.announce(request)
    await holder.step()
    assert await costs_of(holder) == {}
    await holder.close()
    assert not any("/shares" in each.path for each in world.wire.log)


async def test_a_round_whose_answers_would_leave_too_late_is_neither_drawn_nor_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_timing, "_DRAW_SECONDS", 0.2)  # at least 14 s for anyone
    monkeypatch.setattr(admission, "MOST_SECONDS", 3600.0)
    world, timer, told = World(tmp_path), HandMovedTimer(), []
    noise = SlowNoise(0, timer, lambda magnitude: 0.0)
    holder = world.holder(
        noise=noise, timer=timer, report=lambda event, **facts: told.append((event, facts))
    )
    request = world.submit()
    await holder.step()
    spec = world.announce(request)
    world.clock.move(55.0)  # of 60
    await holder.step()
    assert noise.took == []
    assert ("too late to answer", {"round": spec.digest, "slots": 12}) in told
    world.clock.move(5.0)
    await holder.step()
    [job] = (await holder.status()).jobs
    assert [each.ended for each in job.rounds] == ["missed"] and job.ended is None
    assert await costs_of(holder) == {}
    await holder.close()


async def test_noise_that_would_take_too_long_ends_the_job_before_it_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_timing, "_DRAW_SECONDS", MOST_SECONDS)
    world, timer = World(tmp_path), HandMovedTimer()
    noise = SlowNoise(0, timer, lambda magnitude: 0.0)
    holder = world.holder(noise=noise, timer=timer)
    request = world.submit()
    await holder.step()
    world.announce(request)
    await holder.step()
    [job] = (await holder.status()).jobs
    assert job.ended == "refused: drawing the answer's noise would take too long"
    assert noise.took == [] and timer.passed == 0.0
    await holder.close()


@given(blocks=BLOCKS, began=st.floats(0.0, 1e6), data=st.data())
def test_the_moment_follows_from_public_numbers_as_long_as_the_draw_is_in_time(
    blocks: list, began: float, data: st.DataObject
) -> None:
    allowed = sampling_seconds(blocks)
    took = data.draw(st.floats(0.0, allowed))
    leaves = release_time(began=began, ready=began + took, allowed_seconds=allowed)
    assert leaves == release_time(began=began, ready=began, allowed_seconds=allowed)
    assert allowed <= leaves - began + 1e-9
    assert leaves - began <= allowed + GRID_SECONDS + 1e-9


@pytest.mark.parametrize("mean", [1.0, 2.5, 10.0, 66.0, 1e3, 1e5, 1e7])
def test_the_time_that_is_given_is_exceeded_less_often_than_one_in_2_to_the_40(
    mean: float,
) -> None:
    at_most = most(mean)
    # a sum of geometric numbers of trials is exceeded no more often than one of exponential times
    assert stats.gamma.sf(at_most, mean) <= 2.0**-41
    assert stats.poisson.sf(np.floor(at_most), mean) <= 2.0**-41

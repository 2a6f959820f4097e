"""An analyst in crowd jobs: what she is shown by the trainer's word, and what must be signed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.jobs import trainer_line
from shoal.jobs.analyst import Analyst, CrowdJob
from shoal.jobs.job_failures import JobFailed
from shoal_hosting.peers.exchange import Unavailable
from shoal_protocol.crowds.draws import CrowdClosing
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.errors import BadSignature, MalformedDocument, UnknownJob
from tests.client.test_crowd_lies import another_seed, changed, other_end, rewritten
from tests.world.around_holder import problem
from tests.world.around_holder_crowds import CrowdWorld, Lies
from tests.world.examples import signing_key


@pytest.fixture
async def world(tmp_path: Path) -> CrowdWorld:
    """A job to which four clients contributed three times each."""
    world = CrowdWorld(tmp_path)
    holder = world.holder()
    await world.run(holder, seconds=1000, tick=50)
    await holder.close()
    assert len(world.crowds.taken) == 12
    return world


def job_of(world: CrowdWorld, job: str | None = None) -> CrowdJob:
    key = signing_key("analyst")
    transport = world.transport
    analyst = Analyst(
        name="analyst", key=key, book=world.book, clock=world.clock, transport=transport
    )
    return analyst.crowd(job or world.job)


def test_an_open_job_has_no_result_and_cannot_be_verified(world: CrowdWorld) -> None:
    assert job_of(world).result() is None
    assert job_of(world).verify() is None


def test_an_analyst_closes_her_job_early_and_has_its_model(world: CrowdWorld) -> None:
    world.clock.move(-600.0)
    job = job_of(world)
    closing = job.close()
    assert closing.closing_request is not None and closing.closed_at < world.crowds.closes_at
    assert job.verify() == closing == job.close()
    assert str(closing).endswith("early, as analyst asked, after 12 contributions.")
    assert job.wait() == job.result()


def test_a_trainer_that_closes_the_job_early_by_itself_is_not_believed(world: CrowdWorld) -> None:
    world.clock.move(-600.0)
    world.crowds.closed = True
    with pytest.raises(MalformedDocument, match="its analyst did not ask"):
        job_of(world).verify()


def test_a_trainer_that_only_says_that_it_closed_a_job_is_found_out(world: CrowdWorld) -> None:
    world.scripts["trainer"] = lambda request: (
        httpx.Response(200, json={}) if request.method == "POST" else None
    )
    with pytest.raises(JobFailed, match="still open"):
        job_of(world).close()


SNAPSHOTS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "of fewer instances": lambda shown: shown | {"instances": shown["instances"][1:]},
    "of other weights": lambda shown: (
        shown | {"instances": [{"revision": 0, "weights": [1]}] * len(shown["instances"])}
    ),
    "of no contributions": lambda shown: {"instances": shown["instances"]},
    "of fractions": lambda shown: (
        shown | {"instances": [{"revision": 0, "weights": [0.5, 0.5]}] * len(shown["instances"])}
    ),
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_snapshot_that_is_none_is_refused(world: CrowdWorld, name: str) -> None:
    world.crowds.lies = Lies(snapshot=SNAPSHOTS[name])
    with pytest.raises(MalformedDocument):
        job_of(world).snapshot()


@pytest.mark.parametrize("lie", [another_seed, other_end])
def test_a_closing_that_does_not_follow_is_no_result_or_is_not_verified(
    world: CrowdWorld, lie: Callable[[CrowdClosing], CrowdClosing]
) -> None:
    """Another seed shows at once; weights that no log leads to, when the logs are followed."""
    world.crowds.closed = True
    world.crowds.lies = Lies(closing=lie)
    with pytest.raises(MalformedDocument):
        job_of(world).verify()
    if lie is another_seed:
        with pytest.raises(MalformedDocument, match="another seed"):
            job_of(world).result()


def test_a_log_that_was_rewritten_is_not_verified(world: CrowdWorld) -> None:
    world.crowds.closed = True
    world.crowds.lies = Lies(log=rewritten)
    with pytest.raises(MalformedDocument, match="instance"):
        job_of(world).verify()


def test_a_closing_of_another_job_is_no_result(world: CrowdWorld) -> None:
    world.crowds.closed = True
    world.crowds.lies = Lies(closing=lambda closing: changed(closing, job="f" * 64))
    with pytest.raises(MalformedDocument, match="another job"):
        job_of(world).result()


def test_a_closing_that_the_trainer_did_not_sign_is_no_result(world: CrowdWorld) -> None:
    world.crowds.closed = True
    key = signing_key("compute-0")
    world.crowds.signed = lambda body: sign(body, "trainer", key).to_json()  # type: ignore[method-assign]
    with pytest.raises(BadSignature):
        job_of(world).result()


def test_a_request_of_another_job_is_not_taken_for_it(world: CrowdWorld) -> None:
    other = world.crowd_request()
    world.scripts["trainer"] = lambda request: (
        httpx.Response(200, content=other.encode())
        if request.url.path.endswith("request")
        else None
    )
    with pytest.raises(UnknownJob):
        job_of(world).request()


def test_a_trainer_that_does_not_answer_is_asked_several_times(
    world: CrowdWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def no_time(seconds: float) -> None:
        world.clock.move(seconds)

    def silent(request: Any) -> Any:
        asked.append(request.url.path)
        return problem(503, "storage-unavailable")

    monkeypatch.setattr(trainer_line.asyncio, "sleep", no_time)
    world.scripts["trainer"] = silent
    with pytest.raises(Unavailable, match="does not answer"):
        job_of(world).state()
    assert len(asked) == trainer_line.TRIES

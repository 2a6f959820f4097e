"""An analyst's side: the request that is signed, the report that is believed, and patience."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from nacl.signing import SigningKey

from shoal.jobs import trainer_line
from shoal.jobs.analyst import Analyst, Job
from shoal.jobs.job_settings import JobSettings
from shoal_hosting.peers.exchange import Unavailable
from shoal_protocol.wire.errors import BadSignature, ProtocolError, UnknownJob
from tests.world.around_analyst import ReportingTrainer
from tests.world.around_holder import PRIVACY, TASK, World, problem
from tests.world.examples import signing_key

JOB: dict[str, Any] = {
    **PRIVACY.model_dump(),
    "minimum_population": 10,
    "maximum_population": 12,
    "join_seconds": 60,
    "round_seconds": 30,
    "grace_seconds": 20,
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def trainer(world: World) -> ReportingTrainer:
    scripted = ReportingTrainer(world)
    world.scripts["trainer"] = scripted
    return scripted


def arguments(world: World, key: SigningKey | None = None) -> dict[str, Any]:
    return {
        "name": "analyst",
        "key": key or signing_key("analyst"),
        "book": world.book,
        "clock": world.clock,
        "random_bytes": world.random_bytes,
        "transport": world.transport,
    }


@pytest.fixture
def analyst(world: World) -> Analyst:
    return Analyst(**arguments(world))


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, world: World) -> list[float]:
    """Let no test wait: sleeping moves the clock."""
    slept: list[float] = []
    really = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        world.clock.move(seconds)
        await really(0)

    monkeypatch.setattr(trainer_line.asyncio, "sleep", sleep)
    return slept


def handed_in(analyst: Analyst) -> Job:
    return analyst.submit(TASK, JobSettings(**JOB))


def test_a_trainer_that_stumbles_gets_the_same_request_again(
    world: World, analyst: Analyst, trainer: ReportingTrainer, waits: list[float]
) -> None:
    bodies: list[bytes] = []

    def stumble(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return problem(404, "unknown-manifest")
        bodies.append(request.content)
        if len(bodies) == 1:
            raise httpx.ReadTimeout("the answer was lost")
        if len(bodies) == 2:
            return problem(503, "storage-unavailable", **{"Retry-After": "3"})
        return trainer(request)

    world.scripts["trainer"] = stumble
    handed_in(analyst)
    assert len(bodies) == 3 and len(set(bodies)) == 1
    assert waits[1] >= 3


def test_a_trainer_that_is_away_for_good_is_given_up(
    world: World, analyst: Analyst, waits: list[float]
) -> None:
    world.scripts["trainer"] = lambda request: httpx.Response(502)
    with pytest.raises(Unavailable, match=r"https://trainer\.example.*answered 502"):
        handed_in(analyst)
    assert len(waits) == trainer_line.TRIES - 1
    assert 15.0 < sum(waits) < 25.0


def test_a_report_signed_by_the_trainer_is_believed(
    analyst: Analyst, trainer: ReportingTrainer
) -> None:
    job = handed_in(analyst)
    assert job.result() is None
    body = trainer.finish(job.id)
    assert job.result() == body


@pytest.mark.parametrize(
    ("forge", "error"),
    [
        (lambda trainer, job: trainer.finish(job, signer="aggregator"), BadSignature),
        (lambda trainer, job: trainer.finish("3" * 64), UnknownJob),
        (lambda trainer, job: trainer.finish(job, manifest="4" * 64), ProtocolError),
    ],
    ids=["another signer", "another job", "another manifest"],
)
def test_any_other_report_is_not_believed(
    analyst: Analyst,
    trainer: ReportingTrainer,
    forge: Callable[[ReportingTrainer, str], object],
    error: type[Exception],
) -> None:
    job = handed_in(analyst)
    forge(trainer, job.id)
    with pytest.raises(error):
        job.result()

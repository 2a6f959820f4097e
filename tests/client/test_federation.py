"""A federation as estimators see it: jobs that are waited for, fail, are interrupted, resumed."""

import asyncio
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from shoal.estimators import LinearRegressionInBounds
from shoal.jobs import analyst as analyst_module
from shoal.jobs import trainer_line
from shoal.jobs.analyst import Analyst
from shoal.jobs.federation import Federation
from shoal.jobs.job_failures import JobFailed, JobInterrupted, failure
from shoal.jobs.job_settings import JobSettings
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.certificates.release_certificate import Participations
from shoal_protocol.privacy.job_costs import PrivacySpent
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.wire.documents import decode, sign
from shoal_protocol.wire.errors import BadSignature, ProtocolError, UnknownJob
from shoal_protocol.wire.service_errors import ChangedReport
from shoal_studies.catalogue.linear_regression import LinearRegressionPosterior
from shoal_studies.posterior_report import (
    PosteriorReport,
)
from shoal_studies.study_request import StudyRequest
from tests.world.around_holder import PRIVACY, TASK, World, problem
from tests.world.examples import LINK, signing_key

ASKED: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "dropouts": 2,
    "colluders": 2,
    "minimum_population": 10,
    "maximum_population": 12,
    "join_seconds": 60,
    "round_seconds": 30,
    "grace_seconds": 20,
}


class ReportingTrainer:
    """A trainer that takes jobs and, when told to, has a report or a failure."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.requests: list[bytes] = []
        self.phase = "joining"
        self.reason = "too few joined"
        self.rounds: list[dict[str, object]] = []
        self.request: bytes | None = None
        self.report: bytes | None = None
        self.asked: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        self.asked.append(path)
        if path == "/v1/dictionary":
            return problem(404, "unknown-dictionary")
        if request.method == "POST":
            self.requests.append(request.content)
            signed = decode(request.content, StudyRequest)
            self.world.consortium.verify(signed)
            return httpx.Response(201, json={"job": signed.digest})
        if path.endswith("/request"):
            return httpx.Response(200, content=self.request or self.requests[-1])
        if path.endswith("/certificate"):
            return problem(409, "wrong-phase")
        if not path.endswith("/result"):
            job = path.rpartition("/")[2]
            state: dict[str, object] = {"job": job, "phase": self.phase, "joined": 12, "more": 1}
            phases = Counter(each["phase"] for each in self.rounds)
            state |= {"rounds": self.rounds, "round_counts": phases}
            state |= {"reason": self.reason if self.phase == "failed" else None}
            return httpx.Response(200, json=state)
        if self.phase == "failed":
            kind = "urn:shoal:problem:job-failed"
            return httpx.Response(410, json={"type": kind, "detail": self.reason})
        if self.report is None:
            return httpx.Response(202, json={})
        return httpx.Response(200, content=self.report)

    def finish(self, job: str, *, signer: str = "trainer", **changes: Any) -> PosteriorReport:
        fields: dict[str, Any] = {
            "manifest": self.world.consortium.digest,
            "job": job,
            "rounds": ("1" * 64,),
            "results": ("2" * 64,),
            "lost_rounds": (),
            "record": "3" * 64,
            "population_size": 12,
            "participations": Participations(least=1, most=1),
            "cohort_sizes": (12,),
            "sharing": ADDITIVE,
            "compute_nodes": (3,),
            "partial_sums": (3,),
            "entry": LINK,
            "privacy": PrivacySpent(
                epsilon=1.0,
                delta=1e-6,
                mu=PRIVACY.cost.mu,
            ),
            "posterior": LinearRegressionPosterior(
                names=("intercept", "age"),
                target="pressure",
                coefficients=(1.0, 2.0),
                covariance=((1.0, 0.0), (0.0, 1.0)),
                residual_sd=1.0,
                records=12,
                prior_mean=(0.0, 0.0),
                prior_sd=(100.0, 100.0),
            ),
        }
        body = PosteriorReport(**(fields | changes))
        self.report = sign(body, "trainer", signing_key(signer)).encode()
        self.phase = "finished"
        return body


@pytest.fixture
def trainer(world: World) -> ReportingTrainer:
    """A trainer that finishes every job, unless its phase is set to another one."""
    scripted = ReportingTrainer(world)
    scripted.phase = "finished"

    def prompt(request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and scripted.phase == "finished" and scripted.requests:
            scripted.finish(decode(scripted.requests[-1], StudyRequest).digest)
        return scripted(request)

    world.wire.scripts["trainer"] = prompt
    return scripted


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyst_module, "SHORTEST_PAUSE_SECONDS", 0.001)


def analyst(world: World) -> Analyst:
    return Analyst(
        name="analyst",
        key=signing_key("analyst"),
        book=world.book,
        clock=world.clock,
        random_bytes=world.random_bytes,
        transport=world.transport,
    )


def federation(world: World, *, show_progress: bool = False, **changes: Any) -> Federation:
    settings = JobSettings(**(ASKED | changes))
    return Federation(analyst(world), settings, show_progress=show_progress)


def regression(**changes: Any) -> LinearRegressionInBounds:
    fields = {name: getattr(TASK, name) for name in type(TASK).model_fields if name != "name"}
    return LinearRegressionInBounds(**(fields | changes))


def test_an_estimator_is_fitted_by_a_job_of_its_own(
    world: World, trainer: ReportingTrainer
) -> None:
    model = regression().fit(federation(world))
    request = decode(trainer.requests[0], StudyRequest).body
    assert request.task == TASK
    assert (request.privacy.epsilon, request.privacy.delta) == (1.0, 1e-6)
    assert (request.minimum_population, request.maximum_population) == (10, 12)
    assert model.report_ is not None
    assert model.report_.job == request.digest
    assert model.posterior_ == model.report_.posterior
    assert model.predict([[30.0], [40.0]]).tolist() == [61.0, 81.0]
    assert "Privacy spent: epsilon 1 at delta 1e-06" in str(model.summary())
    assert model.certificate() is None  # this trainer has none yet


def test_a_job_that_fails_says_what_the_trainer_knows_of_why(
    world: World, trainer: ReportingTrainer
) -> None:
    trainer.phase, trainer.reason = "failed", "3 clients joined, 10 are needed"
    with pytest.raises(JobFailed, match=r"^3 clients joined, 10 are needed$"):
        regression().fit(federation(world))


def test_a_job_can_be_submitted_now_and_waited_for_later(
    world: World, trainer: ReportingTrainer
) -> None:
    trainer.phase = "joining"
    job = federation(world).submit(regression().to_task())
    assert job.id in repr(job)
    trainer.phase = "finished"
    model = regression().fit_from(federation(world).resume(job.id))
    assert model.report_ is not None and model.report_.job == job.id


def forged(world: World, trainer: ReportingTrainer, **changes: Any) -> bytes:
    body = decode(trainer.requests[-1], StudyRequest).body.model_copy(update=changes)
    signer = "trainer" if not changes else "analyst"
    return sign(body, "analyst", signing_key(signer)).encode()


@pytest.mark.parametrize(
    ("changes", "error"), [({}, BadSignature), ({"maximum_population": 11}, UnknownJob)]
)
def test_a_request_that_is_not_the_jobs_is_not_believed(
    world: World, trainer: ReportingTrainer, changes: Any, error: type[Exception]
) -> None:
    job = federation(world).submit(regression().to_task())
    trainer.request = forged(world, trainer, **changes)
    with pytest.raises(error):
        job.request()


@pytest.fixture
def interrupt() -> Iterator[Callable[[], None]]:
    """Return what does as Ctrl-C does, from whatever thread."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    assert main is not None
    yield lambda: signal.pthread_kill(main, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def interrupting(
    world: World, trainer: ReportingTrainer, interrupt: Callable[[], None], path: str
) -> None:
    """Let the trainer press Ctrl-C when it is first asked for a path that ends so."""
    pressed = threading.Event()

    def script(request: httpx.Request) -> httpx.Response:
        answer = trainer(request)
        if request.url.path.endswith(path) and not pressed.is_set():
            pressed.set()
            interrupt()
        return answer

    trainer.phase = "running"
    world.wire.scripts["trainer"] = script


@pytest.mark.parametrize("path", ["/jobs", "/result"])
def test_an_interrupted_fit_leaves_a_job_that_can_be_resumed(
    world: World, trainer: ReportingTrainer, interrupt: Callable[[], None], path: str
) -> None:
    interrupting(world, trainer, interrupt, path)
    there = federation(world)
    with pytest.raises(JobInterrupted) as raised:
        regression().fit(there)
    job = raised.value.job
    assert raised.value.acknowledged == (path == "/result")
    assert f"federation.resume('{job}')" in str(raised.value)
    assert job == decode(trainer.requests[0], StudyRequest).digest
    trainer.finish(job)
    assert regression().fit_from(there.resume(job)).report_ is not None


def test_an_interruption_ends_the_conversation() -> None:
    ended: list[bool] = []

    async def conversation() -> None:
        try:
            while True:  # a signal just before the main thread waits shows only with the next one
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                await asyncio.sleep(5)
        finally:
            ended.append(True)

    with pytest.raises(KeyboardInterrupt):
        trainer_line.run(conversation)
    assert ended == [True]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, world: World) -> list[float]:
    """Let no test wait: sleeping moves the clock."""
    slept: list[float] = []
    really = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        world.clock.move(seconds)
        await really(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return slept


def test_a_trainer_that_stumbles_gets_the_same_request_again(
    world: World, trainer: ReportingTrainer, waits: list[float]
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

    world.wire.scripts["trainer"] = stumble
    federation(world).submit(regression().to_task())
    assert len(bodies) == 3 and len(set(bodies)) == 1
    assert waits[1] >= 3


def test_a_trainer_that_is_away_for_good_is_given_up(world: World, waits: list[float]) -> None:
    world.wire.scripts["trainer"] = lambda request: httpx.Response(502)
    there = federation(world)
    with pytest.raises(Unavailable, match=r"https://trainer\.example.*answered 502"):
        there.variables()
    assert len(waits) == trainer_line.TRIES - 1
    assert 15.0 < sum(waits) < 25.0


def test_a_silent_trainer_is_told_in_one_traceback(world: World, waits: list[float]) -> None:
    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("no answer in time")

    there = federation(world)
    world.wire.scripts["trainer"] = silent
    with pytest.raises(Unavailable, match="no answer in time") as raised:
        there.variables()
    told = "".join(traceback.format_exception(raised.value))
    assert told.count("Traceback") == 1 and "httpx" not in told


def test_who_hears_nothing_of_a_job_that_was_handed_in_is_told_its_id_and_not_to_pay_twice(
    world: World, trainer: ReportingTrainer, waits: list[float]
) -> None:
    def silent(request: httpx.Request) -> httpx.Response:
        trainer(request)
        raise httpx.ReadTimeout("no answer in time")

    world.wire.scripts["trainer"] = silent
    with pytest.raises(Unavailable, match="may have taken the job, or not") as raised:
        federation(world).submit(regression().to_task())
    sent = decode(trainer.requests[-1], StudyRequest).digest
    assert f"federation.resume('{sent}')" in str(raised.value)
    assert raised.value.__suppress_context__
    assert len(waits) >= trainer_line.PATIENT_TRIES - 1


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
    world: World,
    trainer: ReportingTrainer,
    forge: Callable[[ReportingTrainer, str], object],
    error: type[Exception],
) -> None:
    job = federation(world).submit(regression().to_task())
    world.wire.scripts["trainer"] = trainer
    forge(trainer, job.id)
    with pytest.raises(error):
        job.wait()


def test_a_report_that_changed_is_the_trainer_s_lie_and_no_failed_job() -> None:
    said = failure("changed-report", "changed-report: compute-1 signed its total for another")
    assert isinstance(said, ChangedReport)
    assert str(said) == "compute-1 signed its total for another"

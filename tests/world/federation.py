"""All parties in one process: the services and data holders as they are, on a made-up network.

Time stands still until it is moved, that of timeouts too. A party that crashes is dropped as it is
and assembled again over its files. The same labels and faults give the same messages in the same
order.
"""

import asyncio
import gc
import json
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from starlette.types import ASGIApp

from shoal.jobs.analyst import Analyst
from shoal.jobs.job_settings import JobSettings
from shoal_agent.data_holder import DataHolder
from shoal_agent.directory import ShutOut
from shoal_aggregator import assembly as aggregator
from shoal_compute import assembly as compute
from shoal_holder.noise import NoiseSampler
from shoal_holder.site import Sources
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.party import load_party
from shoal_kit.startup import read_pin
from shoal_protocol.jobs.job_request import PrivacyDemand
from shoal_protocol.wire.documents import Signed
from shoal_service.view import Operator
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.study_request import StudyRequest
from shoal_trainer import assembly as trainer
from tests.world.chance import FixedNoise, fixed_bytes
from tests.world.clock import HandMovedClock, HandMovedTimer
from tests.world.lives import Life, keep_track_of_tasks, quiet
from tests.world.one_thread import one_thread
from tests.world.trust import HOLDER_POLICY, SITES, TASK, Trust
from tests.world.wire import Wire

PRIVACY = PrivacyDemand(epsilon=2.0, delta=1e-6, dropouts=2, colluders=2)
JOIN_SECONDS, ROUND_SECONDS, GRACE_SECONDS = 10, 40, 40

T = TypeVar("T")


class InThread:
    """An analyst or one of her jobs, whose methods are awaited: each runs in a thread.

    Those of `inner` run where they are called.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.inner, name)
        if name in ("job", "crowd") and isinstance(self.inner, Analyst):
            return lambda job: InThread(attribute(job))
        return partial(asyncio.to_thread, attribute) if callable(attribute) else attribute


@dataclass
class Running:
    """A party that is up."""

    life: Life
    step: Callable[[], Awaitable[None]]
    release: Callable[[], Awaitable[None]]  # of file handles, as the system does for the dead
    party: Any
    stepping: asyncio.Task[None] | None = None


class Federation:
    """A consortium at work.

    `noise` None is a rounded Gaussian that is the same every time; with `same_noise` it is drawn
    again from the start by a data holder that starts again, so that a job of one round has the same
    sum whatever happens. `holders` are other arguments of data holders, by site; `operator` runs
    all services.
    """

    def __init__(
        self,
        trust: Trust,
        directory: Path,
        *,
        noise: NoiseSampler | None = None,
        same_noise: bool = False,
        absent: Iterable[str] = (),
        holders: Mapping[str, Mapping[str, Any]] | None = None,
        operator: Operator | None = None,
    ) -> None:
        self.trust = trust
        self.clock = HandMovedClock()
        self.wire = Wire(trust.party_of)
        self.noise = {site: noise or FixedNoise(f"noise of {site}") for site in SITES}
        self._same_noise = same_noise
        self.absent = set(absent)
        """Parties that are not started, nor started again by `step`."""
        self.accept_loss: dict[str, str] = {}
        """Tokens that services are started with, by their names."""
        self._directory = directory
        self._holder_arguments = holders or {}
        self._operator = operator
        self._up: dict[str, Running] = {}
        self._starts: dict[str, int] = {}
        self._analyst_life = Life("analyst")
        self._stack = AsyncExitStack()
        manifest = trust.consortium.manifest
        self.nodes = [node.name for node in manifest.compute_nodes]
        self.services = [*self.nodes, "aggregator", "trainer"]
        self.names = [*SITES, "trainer", *self.nodes, "aggregator"]  # in the order of their steps

    async def __aenter__(self) -> Self:
        keep_track_of_tasks()
        self._stack.enter_context(self.clock.of_timeouts())
        self._stack.enter_context(one_thread())
        self._stack.push_async_callback(self.wire.close)
        await self.start_the_dead()
        self.analyst_book = self._book("analyst")
        self.analyst = InThread(self.open_analyst())
        return self

    def open_analyst(self) -> Analyst:
        """Return the analyst, whose methods are called in a thread."""
        home = self.trust.directory / "parties" / "analyst"
        return Analyst(
            name="analyst",
            key=load_party(home).signing_key,
            book=self.analyst_book,
            clock=self.clock.of("analyst"),
            random_bytes=fixed_bytes("analyst"),
            transport=self.wire.of(self._analyst_life),
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._up):
            await self.crash(name)
        self._analyst_life.kill()
        await self._analyst_life.buried()
        await self._stack.aclose()

    def _data(self, name: str) -> Path:
        directory = self._directory / name
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return directory

    def _book(self, name: str) -> ManifestBook:
        home = "clients" if name in SITES else "parties"
        pin = read_pin(self.trust.directory / home / name)
        return ManifestBook.open(self.trust.directory / "consortium", pin, self._data(name))

    def _start(self, name: str) -> None:
        start = self._holder if name in SITES else self._service
        while name not in self._up:
            life = self.wire.lives[name] = Life(name)
            try:
                self._up[name] = life.run(start, name, life)
            except asyncio.CancelledError:
                assert life.ended  # it died while it started
            if life.ended:
                gc.collect()  # the system lets go of the files that it had open

    def _holder(self, name: str, life: Life) -> Running:
        self._starts[name] = self._starts.get(name, 0) + 1
        noise = self.noise[name]
        if self._same_noise and isinstance(noise, FixedNoise):
            noise.begin_again()
        arguments: dict[str, Any] = {
            "key": self.trust.key(name),
            "records": self.trust.records(name),
            "policy": HOLDER_POLICY,
            "book": self._book(name),
            "data_directory": self._data(name),
            "clock": self.clock.of(name),
            # other bytes after each start: nothing that is sent again may be made again
            "random_bytes": fixed_bytes(f"{name} started {self._starts[name]} times"),
            "transport": self.wire.of(life),
        }
        arguments |= dict(self._holder_arguments.get(name, {}))
        arguments["sources"] = Sources(
            noise=arguments.pop("noise", noise),
            clock=arguments["clock"],
            random_bytes=arguments["random_bytes"],
            timer=HandMovedTimer(),
        )
        holder = DataHolder.inside(**arguments)
        return Running(life, lambda: _as_an_agent(holder), holder.close, holder)

    def _service(self, name: str, life: Life) -> Running:
        party = load_party(self.trust.directory / "parties" / name)
        assembly: Any = {"aggregator": aggregator, "trainer": trainer}.get(party.card.role, compute)
        service = assembly.assemble(
            party=party,
            book=self._book(name),
            data_directory=self._data(name),
            database_url=None,
            clock=self.clock.of(name),
            transport=self.wire.of(life),
            operator=self._operator,
            accept_loss=self.accept_loss.get(name),
        )
        self.wire.apps[name] = service.app
        return Running(life, service.step, service.resources.storage.close, service)

    def app(self, name: str) -> ASGIApp:
        """Return a service's application."""
        return self.wire.apps[name]

    def party(self, name: str) -> Any:
        """Return a party that is up, as it was assembled."""
        return self._up[name].party

    def holder(self, name: str) -> DataHolder:
        """Return a data holder that is up."""
        holder = self._up[name].party
        assert isinstance(holder, DataHolder)
        return holder

    def is_up(self, name: str) -> bool:
        """Tell whether a party runs."""
        return name in self._up and not self._up[name].life.ended

    async def crash(self, name: str) -> None:
        """Kill a party where it stands; nothing of it is closed or finished."""
        running = self._up.pop(name)
        running.life.kill()
        await running.life.buried()
        await running.release()

    async def copy_of(self, name: str, to: Path) -> None:
        """Copy all that a party has on file, as a backup of its machine would."""
        await self.crash(name)
        shutil.copytree(self._directory / name, to)
        await self.start_the_dead()

    async def set_back(self, name: str, copy: Path | None) -> None:
        """Kill a party, and set its files back to a copy; None: they are lost."""
        await self.crash(name)
        shutil.rmtree(self._directory / name)
        if copy is not None:
            shutil.copytree(copy, self._directory / name)

    async def start_the_dead(self) -> None:
        """Start every party that is down again, over its files."""
        for name in self.names:
            if name in self._up and self._up[name].life.ended:
                await self.crash(name)
            if name not in self._up and name not in self.absent:
                self._start(name)

    async def step(self, names: Sequence[str] | None = None) -> None:
        """Start the dead, deliver what is late and let each party do what is due now, in turn."""
        await self.start_the_dead()
        await self.wire.deliver_late()
        for name in self.names if names is None else names:
            running = self._up.get(name)
            if running is not None and not running.life.ended:
                await self._step(running)

    async def _step(self, running: Running) -> None:
        """Let a party begin a step, or go on with one that waited for its time."""
        if running.stepping is None:
            running.stepping = running.life.spawn(_of(running.step))
        await quiet()
        if running.stepping.done():
            await running.life.outcome(running.stepping)
            running.stepping = None

    async def until(
        self, holds: Callable[[], Awaitable[Any]], *, seconds: float = 300, tick: float = 1.0
    ) -> None:
        """Step and move the clock until something holds."""
        latest = self.clock.now + timedelta(seconds=seconds)
        while not await holds():
            assert self.clock.now < latest, "it never came about"
            await self.step()
            self.clock.move(tick)

    async def after(self, work: Coroutine[Any, Any, T]) -> T:
        """Step and move the clock until the analyst has done something; return its outcome."""
        task = self._analyst_life.spawn(work)

        async def is_done() -> bool:
            await quiet()
            return task.done()

        await self.until(is_done)
        return task.result()

    async def ask(
        self, name: str, path: str, *, method: str = "GET", content: bytes | None = None
    ) -> httpx.Response:
        """Speak to a service directly, past the wire and its faults."""
        await self.start_the_dead()
        transport = httpx.ASGITransport(self.app(name))
        async with httpx.AsyncClient(transport=transport, base_url="https://direct") as client:
            return await client.request(method, path, content=content)

    def request(self, **changes: Any) -> Signed[StudyRequest]:
        """Return a new job request of the analyst's."""
        arguments: dict[str, Any] = {
            **PRIVACY.model_dump(),
            "minimum_population": 10,
            "maximum_population": sum(SITES.values()),
            "join_seconds": JOIN_SECONDS,
            "round_seconds": ROUND_SECONDS,
            "grace_seconds": GRACE_SECONDS,
        }
        arguments |= changes
        if "privacy" in changes:
            arguments |= arguments.pop("privacy").model_dump()
        task = arguments.pop("task", TASK)
        request: Signed[StudyRequest] = self.analyst.inner.signed_request(
            task, JobSettings(**arguments)
        )
        return request

    async def submit(self, **changes: Any) -> str:
        """Hand in a new job and return its id."""
        return await self.hand_in(self.request(**changes))

    async def hand_in(self, request: Signed[StudyRequest]) -> str:
        """Hand in a request and return the job's id."""
        await self.after(self.analyst.job(request.digest).hand_in(request))
        return request.digest

    async def state(self, job: str) -> dict[str, Any]:
        """Return what the trainer says of a job."""
        return dict((await self.ask("trainer", f"/v1/jobs/{job}")).json())

    async def is_collecting(self, job: str) -> bool:
        """Tell whether the job's newest round takes answers."""
        rounds = (await self.state(job))["rounds"]
        return bool(rounds) and rounds[-1]["phase"] == "collecting"

    async def is_over(self, job: str) -> bool:
        return (await self.state(job))["phase"] in ("finished", "failed", "withdrawn")

    async def finish(self, job: str, **limits: float) -> dict[str, Any]:
        """Step until a job is over, and until every party has done with it; return its state."""
        await self.until(lambda: self.is_over(job), **limits)
        self.wire.rules.clear()
        for _ in range(3):
            await self.step()
            self.clock.move(30.0)
        return await self.state(job)

    async def report(self, job: str) -> PosteriorReport:
        """Return a finished job's report, verified by the analyst."""
        report = await self.after(self.analyst.job(job).result())
        assert report is not None
        return report

    async def result(self, round_id: str) -> dict[str, Any] | None:
        """Return the body of a round's result, None if there is none."""
        shown = await self.outcome(round_id)
        is_result = bool(shown) and shown[0]["body"]["kind"] == "result"
        return dict(shown[0]["body"]) if is_result else None

    async def outcome(self, round_id: str) -> list[Any]:
        """Return the documents of a round's outcome, none if there is none."""
        answer = await self.ask("aggregator", f"/v1/rounds/{round_id}/outcome")
        return list(json.loads(answer.content)["documents"]) if answer.status_code == 200 else []

    async def collecting(self, **changes: Any) -> tuple[str, str]:
        """Submit a job and stop when its round takes answers; return job and round."""
        job = await self.submit(**changes)
        await self.until(lambda: self.is_collecting(job))
        return job, str((await self.state(job))["rounds"][-1]["round"])

    async def learn(self, **changes: Any) -> PosteriorReport:
        """Run a job that must succeed."""
        job = await self.submit(**changes)
        state = await self.finish(job)
        assert state["phase"] == "finished", state
        return await self.report(job)


async def _as_an_agent(holder: DataHolder) -> None:
    """Let a data holder do what is due; one that was revoked stays up, and does nothing."""
    with suppress(ShutOut):
        await holder.step()


async def _of(work: Callable[[], Awaitable[None]]) -> None:
    await work()  # made here: a life may end before its task begins

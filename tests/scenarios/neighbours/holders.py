"""Data sets that differ in one client's records in any way, and what data holders do with them."""

import io
import logging
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import httpx
import numpy as np
import structlog
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_agent import assembly
from shoal_agent.client_files import write_holder_key
from shoal_agent.data_holder import DataHolder
from shoal_agent.settings import Settings
from shoal_agent.vault_link import VaultGone
from shoal_consortium.consortium_files import create
from shoal_holder.policy import Policy
from shoal_holder.site import Sources
from shoal_kit.settings import read_settings
from shoal_kit.web.logs import configure_logs
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.queries import QueryName
from shoal_studies.catalogue.linear_regression import LinearRegressionTask, query_for
from shoal_studies.catalogue.variational import LogisticRegressionTask
from shoal_studies.registry import Task
from tests.scenarios.neighbours.leaving import Leaving, work_that_takes_time
from tests.world.around_holder import COLUMNS, POLICY, PRIVACY, TASK, World, problem
from tests.world.around_holder_crowds import TASK as CROWD_TASK
from tests.world.around_holder_crowds import CrowdWorld
from tests.world.chance import FixedNoise
from tests.world.one_thread import one_thread
from tests.world.people import people
from tests.world.spending import costs_of

CLIENTS = 12
MANY = 9  # more records than a job takes of a client
Rows = Sequence[Sequence[float | None]]

CELLS = st.none() | st.floats(-1e300, 1e300) | st.sampled_from((0.0, 50.0, 120.0, 1e9, -5e-324))
ROWS = st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=MANY)


@dataclass(frozen=True)
class Case:
    """What is asked: "rounds", "batches", "crowd" or "studies", of how many records, and of whom.

    Records have these `columns`; a crowd learns `crowd`, and a study is one of `studies`.
    """

    kind: str
    records_per_client: int
    agent: bool
    columns: tuple[str, ...] = COLUMNS
    crowd: CrowdTask = CROWD_TASK
    studies: tuple[Task, ...] = ()
    bare: bool = False
    """Whether nobody else there has a record that is whole."""


CASES = st.builds(
    Case,
    kind=st.sampled_from(("rounds", "batches", "crowd")),
    records_per_client=st.sampled_from((1, 2, 5)),
    agent=st.booleans(),
    bare=st.booleans(),
)


def everybody(
    rows: Rows, *, at: int = 0, columns: Sequence[str] = COLUMNS, bare: bool = False
) -> list[Rows]:
    """Return the rows of each client, of which the one `at` has these; `bare`: nobody else any."""
    others: list[Rows] = [
        [tuple(None if bare else 30.0 + 70.0 * place + each for place in range(len(columns)))]
        for each in range(CLIENTS)
    ]
    others[at] = rows
    return others


async def leaving(directory: Path, rows: Sequence[Rows], case: Case) -> Leaving:
    """Let a data holder with these records do all that the case asks; return what left it."""
    if case.kind == "crowd":
        task = case.crowd.model_copy(update={"records_per_client": case.records_per_client})
        crowd = CrowdWorld(directory, CLIENTS, contributions_per_client=2, task=task)
        left = Leaving(crowd)
    elif case.kind == "studies":
        left = Leaving(World(directory, CLIENTS, queries=get_args(QueryName)))
    else:
        queries: Any = ("second_moments", "second_moment_matrix", "gradient_sum")
        left = Leaving(World(directory, CLIENTS, queries=queries))
    with ExitStack() as stack:
        stack.enter_context(work_that_takes_time(left.timer))
        stack.enter_context(one_thread())
        runner = _Agent if case.agent else _Library
        running = runner(left, rows, case, stack)
        try:
            if case.kind == "crowd":
                await _contribute(left, running)
            elif case.kind == "studies":
                await _play_studies(left, running, case)
            else:
                await _answer(left, running, case)
        except (VaultGone, OSError) as error:
            left.note("the process ended", type(error).__name__)
        await running.close()
    return left


async def _answer(left: Leaving, running: "_Library | _Agent", case: Case) -> None:
    world, tasks = left.world, _tasks(case)
    refused = world.submit(task=tasks[0], join_deadline=world.clock() - timedelta(seconds=1))
    await running.step()
    jobs = [world.submit(task=each) for each in tasks]
    await running.step()
    for number in range(tasks[0].rounds if case.kind == "batches" else 1):
        for job, task in zip(jobs, tasks, strict=True):
            world.announce(job, number, **_round(task, number, case))
        world.wire.scripts["compute-1"] = _fails_once()
        for _ in range(4):
            await running.step()
            world.clock.move(17.0)
    assert refused.digest not in world.trainer.joined
    assert len(world.trainer.joined) == len(jobs)
    world.trainer.ended |= {job.digest for job in jobs}
    await running.step()


async def _play_studies(left: Leaving, running: "_Library | _Agent", case: Case) -> None:
    """Ask every round that each study's terms have."""
    world = left.world
    for task in case.studies:
        request = world.submit(task=task)
        await running.step()
        asked = [kind.query for kind in request.body.terms.kinds for _ in range(kind.rounds)]
        mu = 0.9 * PRIVACY.cost.mu / len(asked) ** 0.5
        for number, query in enumerate(asked):
            asked_clients = BitMap(range(request.body.terms.batch or CLIENTS))
            spec = world.announce(request, number, query=query, mu=mu, population=asked_clients)
            await running.step()
            assert all(node.held for node in world.nodes), (task.name, query.name)
            left.asked.append((spec.digest, query))
            for node in world.nodes:
                node.held.clear()
        world.trainer.ended.add(request.digest)
        await running.step()


def _tasks(case: Case) -> list[Any]:
    if case.kind == "batches":
        task = LogisticRegressionTask(
            features=TASK.features,
            target=TASK.target,
            rounds=3,
            batch=10,
            records_per_client=case.records_per_client,
        )
        return [task]
    update = {"records_per_client": case.records_per_client}
    return [TASK.model_copy(update=update)] * 2


def _round(task: LinearRegressionTask | LogisticRegressionTask, number: int, case: Case) -> Any:
    if isinstance(task, LinearRegressionTask):
        return {"query": query_for(task, CLIENTS, ())}
    return {
        "query": task.gradient_query([0.1 * number] * task.model.dimension(2)),
        "population": BitMap(each for each in range(CLIENTS) if each % 6 != number),
        "mu": PRIVACY.cost.mu * 0.3,
    }


def _fails_once() -> Any:
    calls = iter(range(2**31))

    def script(request: httpx.Request) -> httpx.Response | None:
        first = "/shares" in request.url.path and next(calls) == 0
        return problem(503, "not-ready") if first else None

    return script


async def _contribute(left: Leaving, running: "_Library | _Agent") -> None:
    world = left.world
    assert isinstance(world, CrowdWorld)
    for _ in range(13):
        await running.step()
        world.clock.move(90.0)
    world.crowds.closed = True
    for _ in range(3):
        await running.step()
        world.clock.move(90.0)


def _policy(case: Case) -> Policy:
    rules: dict[str, Any] = {
        "queries": ("second_moments", "second_moment_matrix", "gradient_sum"),
    }
    if case.kind == "crowd":
        families = ("linear", "logistic", "poisson")
        rules |= {"maximum_local_epsilon": 2.0, "crowd_families": families}
    if case.kind == "studies":
        rules |= {"queries": get_args(QueryName), "maximum_epsilon": 100.0}
    rules |= {"columns": case.columns}
    return Policy.model_validate(POLICY.model_dump() | rules)


class _Library:
    """A `DataHolder` in a program of its owner's."""

    def __init__(self, left: Leaving, rows: Sequence[Rows], case: Case, stack: ExitStack) -> None:
        values = [[np.nan if cell is None else cell for cell in row] for own in rows for row in own]
        starts = np.concatenate([[0], np.cumsum([len(own) for own in rows])])
        self._left = left
        self._holder = DataHolder.inside(
            records=people(case.columns, np.array(values, np.float64), starts),
            key=left.world.key,
            policy=_policy(case),
            book=left.world.book,
            data_directory=left.world.directory / "data",
            clock=left.world.clock,
            transport=left.world.transport,
            report=left.report,
            random_bytes=left.world.random_bytes,
            sources=_chance(left),
        )

    async def step(self) -> None:
        await self._holder.step()
        self._left.note("status", await self._holder.status())

    async def close(self) -> None:
        self._left.note("spent", await costs_of(self._holder), await self._holder.committed())
        await self._holder.close()


class _Agent:
    """The agent's process, with its files, its page, its log and its metrics."""

    def __init__(self, left: Leaving, rows: Sequence[Rows], case: Case, stack: ExitStack) -> None:
        world, self._left, self._log = left.world, left, io.StringIO()
        home = world.directory
        (home / "party").mkdir(parents=True)
        create(home / "consortium", world.consortium.signed_manifest, world.consortium.roster)
        (home / "party" / "pin").write_text(world.consortium.digest + "\n")
        write_holder_key(home / "party" / "holder.key", world.key, slots=world.clients)
        lines = [",".join(["who", *case.columns])]
        for client, own in enumerate(rows):
            cells = (["" if cell is None else repr(cell) for cell in row] for row in own)
            lines += [",".join([f"c{client}", *each]) for each in cells]
        (home / "records.csv").write_text("\n".join(lines))
        policy = _policy(case).model_dump()
        (home / "policy.toml").write_text(_toml(policy))
        environment = {
            "SHOAL_PARTY": str(home / "party"),
            "SHOAL_CONSORTIUM": str(home / "consortium"),
            "SHOAL_DATA": str(home / "data"),
            "SHOAL_PORT": "0",
            "SHOAL_METRICS_FOR_ANYBODY": "true",
            "SHOAL_AGENT_KEY": str(home / "party" / "holder.key"),
            "SHOAL_AGENT_RECORDS": str(home / "records.csv"),
            "SHOAL_AGENT_POLICY": str(home / "policy.toml"),
            "SHOAL_AGENT_ID_COLUMN": "who",
        }
        stack.callback(structlog.configure, **structlog.get_config())
        root = logging.getLogger()
        stack.callback(setattr, root, "handlers", root.handlers)
        stack.callback(root.setLevel, root.level)
        configure_logs(level="debug", stream=self._log)
        self._service = assembly.assemble(
            read_settings(Settings, environment),
            clock=world.clock,
            transport=left.world.transport,
            inside=_chance(left),
        )

    async def step(self) -> None:
        await self._service.step()
        transport = httpx.ASGITransport(app=self._service.app)
        async with httpx.AsyncClient(transport=transport, base_url="https://agent") as client:
            token = (self._left.world.directory / "data" / "owner.token").read_text().strip()
            for headers in ({}, {"Authorization": f"Bearer {token}"}):
                for path in ("/healthz", "/readyz", "/v1/status", "/v1/policy", "/v1/ledger"):
                    answer = await client.get(path, headers=headers)
                    # a contribution's digest is of its weights, which are paid for
                    shown = re.sub(rb'"round":"[0-9a-f]+"', b'"round"', answer.content)
                    self._left.note(path, answer.status_code, shown)
            self._left.metrics((await client.get("/metrics")).text)
        self._left.log(self._log.getvalue())
        self._log.seek(0)
        self._log.truncate()

    async def close(self) -> None:
        await self._service.close()
        self._left.log(self._log.getvalue())


def _chance(left: Leaving) -> Sources:
    world = left.world
    return Sources(FixedNoise("of both"), world.clock, world.random_bytes, left.timer)


def _toml(policy: dict[str, Any]) -> str:
    spelt = {
        name: list(value) if isinstance(value, tuple) else value for name, value in policy.items()
    }
    return "\n".join(
        f"{name} = {_spelt(value)}" for name, value in spelt.items() if value is not None
    )


def _spelt(value: object) -> str:
    return repr(value).replace("'", '"').replace("False", "false").replace("True", "true")

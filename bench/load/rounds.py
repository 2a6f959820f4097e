"""Runs many clients through jobs of one round, on made-up records.

The clients are one `DataHolder`: what is measured is what data holders run.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import nacl.utils
import numpy as np
from nacl.signing import SigningKey

from bench.load.metering import Meter, Monotonic, RequestFigures
from shoal.jobs.analyst import Analyst
from shoal.jobs.job_settings import JobSettings
from shoal_agent.data_holder import DataHolder
from shoal_holder.noise import exact_noise
from shoal_holder.policy import Policy
from shoal_holder.records import Identity, Records
from shoal_holder.site import Sources
from shoal_kit.clock import Clock
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.outcome import ACKNOWLEDGED, OK
from shoal_kit.party import Party
from shoal_kit.peers.exchange import Connection, Unavailable
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import ComputeParty
from shoal_studies.catalogue.linear_regression import LinearRegressionTask
from shoal_studies.posterior_report import PosteriorReport

IDLE_SECONDS: Final = 0.1  # between two steps of the data holder
SHARES_STORED: Final = "shoal_compute_shares_stored_total "
LOWER, UPPER = -1.0, 1.0  # of every made-up column


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run. `features` and a target make the records' columns; one record for each client.

    `dropouts` and `colluders` are those of each job; `epsilon` and `delta` what it may cost;
    `seconds` how long joining, answering and adding up may each take.
    """

    features: int
    jobs: int
    epsilon: float
    delta: float
    dropouts: int
    colluders: int
    seconds: int

    @property
    def task(self) -> LinearRegressionTask:
        """Return what every job asks for."""
        *features, target = made_up_columns(self.features)
        return LinearRegressionTask(features=tuple(features), target=target, method="plain")


@dataclass(frozen=True, kw_only=True)
class JobFigures:
    """One job, its first round. Seconds begin at what their names say first.

    `complete` clients are those of an answer whose shares every node acknowledged: they, and nobody
    else, must be the cohort.
    """

    job: str
    clients: int
    joined: int
    complete: int
    refused_envelopes: int
    cohort_size: int
    submitted_to_round_seconds: float
    submitted_to_posterior_seconds: float
    clients_per_second: float
    """Clients that went the whole way, from submission to posterior."""


@dataclass(frozen=True)
class LoadFigures:
    """All jobs, the requests that they took, by kind, and what failed on the way.

    `nodes` says how many shares each Compute node stored, by its own metrics.
    """

    jobs: tuple[JobFigures, ...]
    requests: Mapping[str, RequestFigures]
    failures: Mapping[str, int]
    nodes: Mapping[str, int]


_FAILURES: Final = {
    "no list of jobs",
    "join not sent",
    "no round",
    "round not believed",
    "envelope not sent",
    "held not known",
}


@dataclass
class Watch:
    """Takes a data holder's events. `rounds` says when each was taken."""

    monotonic: Monotonic
    rounds: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)

    def __call__(self, event: str, /, **facts: object) -> None:
        """Note an event."""
        now = self.monotonic()
        match event, facts:
            case "round taken", {"round": str(round_id)}:
                self.rounds[round_id] = now
            case "job refused", {"job": str(job), "reason": str(reason)}:
                self.refusals[job] = reason
            case _ if event in _FAILURES:
                self.failures[event] += 1


@dataclass
class RoundsLoad:
    """The first of a data holder's slots, the analyst that submits the jobs, and the clocks."""

    plan: Plan
    key: SigningKey = field(repr=False)
    clients: int
    analyst: Party
    book: ManifestBook
    data: Path
    clock: Clock
    monotonic: Monotonic
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = Watch(self.monotonic)

    async def run(self) -> LoadFigures:
        """Run the jobs one after another.

        Raises:
            JobRefused, JobFailed, Unavailable, ProtocolError: as `Analyst`.
            ValueError: none of the clients would join.
        """
        plan, consortium = self.plan, self.book.current
        meter = Meter(consortium, self.monotonic, connections=16)
        holder = DataHolder.inside(
            key=self.key,
            records=made_up_records(plan.task.columns, self.clients, nacl.utils.random),
            policy=self._policy(),
            book=self.book,
            data_directory=self.data,
            clock=self.clock,
            sources=Sources(exact_noise, clock=self.clock),
            transport=meter,
            report=self.watch,
        )
        try:
            before = await _stored(consortium.manifest.compute_nodes)
            jobs = [await self._job(holder) for _ in range(plan.jobs)]
            after = await _stored(consortium.manifest.compute_nodes)
        finally:
            await holder.close()
            await meter.close()
        nodes = {name: after[name] - before[name] for name in after}
        failures = dict(meter.errors + self.watch.failures)
        return LoadFigures(tuple(jobs), meter.figures(), failures, nodes)

    def _policy(self) -> Policy:
        task, consortium = self.plan.task, self.book.current.manifest.policy
        return Policy(
            analysts=(self.analyst.name,),
            queries=task.query_names(),
            columns=tuple(column.name for column in task.columns),
            maximum_epsilon=consortium.maximum_epsilon,
            delta=consortium.delta,
            minimum_population=2,
            minimum_colluders=0,
            approval="automatic",
        )

    async def _job(self, holder: DataHolder) -> JobFigures:
        analyst = Analyst(
            name=self.analyst.name,
            key=self.analyst.signing_key,
            book=self.book,
            clock=self.clock,
        )
        submitted = self.monotonic()
        job = await asyncio.to_thread(analyst.submit, self.plan.task, self._settings())
        waiting = asyncio.create_task(asyncio.to_thread(job.wait))
        while not waiting.done():
            await holder.step()
            if job.id in self.watch.refusals:
                await asyncio.to_thread(job.withdraw)  # or the thread waits on until its deadline
                raise ValueError(f"the clients do not join: {self.watch.refusals[job.id]}")
            await asyncio.wait({waiting}, timeout=IDLE_SECONDS)
        return await self._figures(holder, job.id, await waiting, submitted)

    def _settings(self) -> JobSettings:
        plan = self.plan
        return JobSettings(
            epsilon=plan.epsilon,
            delta=plan.delta,
            dropouts=plan.dropouts,
            colluders=plan.colluders,
            minimum_population=self.clients - plan.dropouts,
            maximum_population=self.clients,
            join_seconds=plan.seconds,
            round_seconds=plan.seconds,
            grace_seconds=plan.seconds,
        )

    async def _figures(
        self,
        holder: DataHolder,
        job: str,
        report: PosteriorReport,
        submitted: float,
    ) -> JobFigures:
        seconds = self.monotonic() - submitted
        [status] = [each for each in (await holder.status()).jobs if each.job == job]
        [answered] = status.rounds
        refused = sum(answered.envelopes.values()) - answered.envelopes.get(ACKNOWLEDGED, 0)
        [cohort_size] = report.cohort_sizes
        return JobFigures(
            job=job,
            clients=self.clients,
            joined=report.population_size,
            complete=0 if refused else answered.answers,
            refused_envelopes=refused,
            cohort_size=cohort_size,
            submitted_to_round_seconds=self.watch.rounds[answered.round_id] - submitted,
            submitted_to_posterior_seconds=seconds,
            clients_per_second=cohort_size / seconds,
        )


def made_up_columns(features: int) -> tuple[ColumnBounds, ...]:
    """Return so many features, and a target."""
    names = (*(f"feature_{number}" for number in range(features)), "target")
    return tuple(ColumnBounds(name=name, lower=LOWER, upper=UPPER) for name in names)


def made_up_records(
    columns: Sequence[ColumnBounds], clients: int, random_bytes: RandomBytes
) -> Records:
    """Return one record for each client, uniform between its columns' bounds; they mean nothing."""
    drawn = np.frombuffer(random_bytes(8 * clients * len(columns)), np.uint64)
    parts = drawn.reshape(clients, len(columns)) / 2.0**64
    lower = np.array([column.lower for column in columns])
    upper = np.array([column.upper for column in columns])
    return Records(
        tuple(column.name for column in columns),
        lower + (upper - lower) * parts,
        np.arange(clients + 1),
        Identity("id", tuple(map(str, range(clients))), 1),
    )


async def _stored(nodes: Sequence[ComputeParty]) -> dict[str, int]:
    """Return how many shares each node says that it stored, since it began."""
    stored = {}
    for node in nodes:
        async with Connection(node.url, node.certificate) as connection:
            reply = await connection.ask("GET", "/metrics")
        if reply.status != OK:
            raise Unavailable(
                f"{node.name} shows no metrics: status {reply.status}; start it with "
                "SHOAL_METRICS_FOR_ANYBODY=true"
            )
        [line] = [
            each for each in reply.body.decode().splitlines() if each.startswith(SHARES_STORED)
        ]
        stored[node.name] = round(float(line.removeprefix(SHARES_STORED)))
    return stored

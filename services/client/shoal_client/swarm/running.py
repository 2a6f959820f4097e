"""Runs many clients against a federation that exists, on made-up records; it prints nothing.

The clients are one `DataHolder`: what is measured is what data holders run.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import nacl.utils
import numpy as np
from nacl.signing import SigningKey

from shoal_client.async_analyst import AsyncAnalyst
from shoal_client.clock import Clock
from shoal_client.holder import DataHolder
from shoal_client.peer import ACKNOWLEDGED, OK
from shoal_client.policy import Policy
from shoal_client.records import Records
from shoal_client.swarm.figures import (
    JobFigures,
    SwarmFigures,
    node_figures,
    read_metrics,
)
from shoal_client.swarm.metering import Meter, Monotonic
from shoal_client.swarm.watching import Watch
from shoal_hosting.exchange import Connection, Unavailable
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.party import Party
from shoal_protocol.documents import Signed
from shoal_protocol.jobs import JobRequest, PosteriorReport, PrivacyDemand
from shoal_protocol.manifest import ComputeParty
from shoal_protocol.sharing import RandomBytes
from shoal_protocol.tasks import ColumnBounds, LinearRegressionTask

IDLE_SECONDS: Final = 0.1  # between two steps of the data holder
LOWER, UPPER = -1.0, 1.0  # of every made-up column


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run. `features` and a target make the records' columns; one record for each client.

    `dropouts` and `colluders` are those of each job; `epsilon` and `delta` what it may cost.
    """

    features: int
    jobs: int
    epsilon: float
    delta: float
    dropouts: int
    colluders: int
    join_seconds: int
    round_seconds: int
    grace_seconds: int
    bulk: bool
    concurrency: int

    @property
    def task(self) -> LinearRegressionTask:
        """Return what every job asks for."""
        features = [f"feature_{number}" for number in range(self.features)]
        bounds = [ColumnBounds(name=name, lower=LOWER, upper=UPPER) for name in features]
        target = ColumnBounds(name="target", lower=LOWER, upper=UPPER)
        return LinearRegressionTask(features=tuple(bounds), target=target, method="plain")


@dataclass
class Swarm:
    """Clients by their keys, the analyst that submits the jobs, and the clocks."""

    plan: Plan
    keys: Sequence[SigningKey] = field(repr=False)
    analyst: Party
    book: ManifestBook
    data: Path
    clock: Clock
    monotonic: Monotonic
    executor: Executor | None = None
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = Watch(self.monotonic)

    async def run(self) -> SwarmFigures:
        """Run the jobs one after another.

        Raises:
            JobRefused, JobFailed, Unavailable, ProtocolError: as `AsyncAnalyst`.
            ValueError: none of the clients would join.
        """
        plan, consortium = self.plan, self.book.current
        meter = Meter(consortium, self.monotonic, connections=max(16, plan.concurrency))
        holder = DataHolder(
            keys=self.keys,
            records=made_up_records(plan.task.columns, len(self.keys), nacl.utils.random),
            policy=self._policy(),
            book=self.book,
            data_directory=self.data,
            clock=self.clock,
            transport=meter,
            executor=self.executor,
            bulk=plan.bulk,
            concurrency=plan.concurrency,
            report=self.watch,
        )
        try:
            before = await _metrics(consortium.manifest.compute_nodes)
            jobs = [await self._job(holder) for _ in range(plan.jobs)]
            after = await _metrics(consortium.manifest.compute_nodes)
        finally:
            await holder.close()
            await meter.close()
        nodes = {name: node_figures(before[name], after[name]) for name in after}
        failures = dict(meter.errors + self.watch.failures)
        return SwarmFigures(tuple(jobs), meter.figures(), failures, nodes)

    def _policy(self) -> Policy:
        task, consortium = self.plan.task, self.book.current.manifest.policy
        return Policy(
            analysts=(self.analyst.name,),
            tasks=(task.name,),
            queries=task.query_names(),
            columns=tuple(column.name for column in task.columns),
            maximum_epsilon=consortium.maximum_epsilon,
            delta=consortium.delta,
            minimum_population=2,
            minimum_colluders=0,
        )

    async def _job(self, holder: DataHolder) -> JobFigures:
        async with AsyncAnalyst(
            name=self.analyst.name,
            key=self.analyst.signing_key,
            book=self.book,
            clock=self.clock,
        ) as analyst:
            submitted = self.monotonic()
            job = await analyst.submit(self._request(analyst))
            waiting = asyncio.create_task(analyst.wait(job, lambda state: None))
            try:
                while not waiting.done():
                    await holder.step()
                    if job in self.watch.refusals:
                        why = self.watch.refusals[job]
                        raise ValueError(f"the swarm's clients do not join: {why}")
                    await asyncio.wait({waiting}, timeout=IDLE_SECONDS)
            finally:
                waiting.cancel()
            report = (await waiting).body
            ended = self.monotonic()
        return await self._figures(holder, job, report, submitted, ended)

    def _request(self, analyst: AsyncAnalyst) -> Signed[JobRequest]:
        plan = self.plan
        privacy = PrivacyDemand(
            epsilon=plan.epsilon,
            delta=plan.delta,
            dropouts=plan.dropouts,
            colluders=plan.colluders,
        )
        return analyst.request(
            plan.task,
            privacy=privacy,
            minimum_population=len(self.keys) - plan.dropouts,
            maximum_population=len(self.keys),
            join_seconds=plan.join_seconds,
            round_seconds=plan.round_seconds,
            grace_seconds=plan.grace_seconds,
        )

    async def _figures(
        self,
        holder: DataHolder,
        job: str,
        report: PosteriorReport,
        submitted: float,
        ended: float,
    ) -> JobFigures:
        watch = self.watch
        [status] = [each for each in (await holder.status()).jobs if each.job == job]
        [answered] = status.rounds
        uploads = watch.uploads[answered.round_id]
        first = watch.rounds[answered.round_id]
        acknowledged, sent = (
            answered.envelopes.get(ACKNOWLEDGED, 0),
            sum(answered.envelopes.values()),
        )
        return JobFigures(
            job=job,
            clients=len(self.keys),
            joined=report.population_size,
            complete=answered.complete,
            refused_envelopes=sent - acknowledged,
            repaired_envelopes=answered.repaired,
            cohort_size=report.cohort_sizes[0],
            joins_per_second=watch.joins[job].rate,
            uploads_per_second=tuple(span.rate for _, span in sorted(uploads.items())),
            submitted_to_round_seconds=first - submitted,
            first_upload_to_posterior_seconds=ended - first,
            submitted_to_posterior_seconds=ended - submitted,
        )


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
    )


async def _metrics(nodes: Sequence[ComputeParty]) -> dict[str, dict[str, float]]:
    async def read(node: ComputeParty) -> dict[str, float]:
        async with Connection(node.url, node.certificate) as connection:
            reply = await connection.ask("GET", "/metrics")
        if reply.status != OK:
            raise Unavailable(f"{node.name} shows no metrics: status {reply.status}")
        return read_metrics(reply.body.decode())

    readings = await asyncio.gather(*map(read, nodes))
    return dict(zip((node.name for node in nodes), readings, strict=True))

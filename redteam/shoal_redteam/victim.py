"""Runs a real data holder on a fake network, where it reaches a lying trainer alone.

The analyst's key signs the jobs, the trainer's the specs. The fake network acknowledges and keeps
what the data holder sends to Compute nodes; no budget is spent.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np

from shoal_agent.data_holder import DataHolder
from shoal_holder.noise import NoiseSampler, exact_noise
from shoal_holder.policy import Policy
from shoal_holder.records import Identity, Records
from shoal_holder.site import Sources
from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.jobs.charges import Charges, ChargesQuery
from shoal_protocol.jobs.membership import JOINED, Membership
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed, decode
from shoal_redteam.findings import CannotAttack
from shoal_redteam.target import Target
from shoal_studies.study_request import StudyRequest

PRIVATE_COLUMN: Final = "diagnosis"
"""A column that the data holder has, and lets nobody ask for."""
_PATIENCE_SECONDS: Final = 30.0
_TICK_SECONDS: Final = 0.01
_STEPS: Final = 4  # of a data holder, from a job to its answer
_OK, _CREATED, _ACCEPTED, _NOT_FOUND, _GONE = 200, 201, 202, 404, 410


@dataclass
class FakeNetwork(httpx.AsyncBaseTransport):
    """The network as the data holder sees it."""

    target: Target
    job: Signed[StudyRequest]
    specs: dict[int, bytes] = field(default_factory=dict)  # by number, as the trainer shows them
    newest: bytes | None = None  # shown whatever number is asked for
    served: dict[str, float] = field(default_factory=dict)  # when a job's round was first fetched
    uploads: dict[str, list[float]] = field(default_factory=dict)  # when, by the round's id
    envelopes: dict[str, list[bytes]] = field(default_factory=dict, repr=False)  # as `uploads`
    joined: set[str] = field(default_factory=set)  # jobs
    waiting: set[str] = field(default_factory=set)  # jobs whose next round is still to come

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer as a trainer and as Compute nodes that have agreed to everything."""
        body, parts = await request.aread(), request.url.path.strip("/").split("/")
        match parts:
            case ["v1", "jobs", "joining"]:
                return _json({"jobs": [{"job": self.job.digest, "phase": "joining"}]})
            case ["v1", "jobs", _, "request"]:
                return httpx.Response(_OK, content=self.job.encode())
            case ["v1", "jobs", job, "memberships"]:
                if decode(body, Membership).body.state == JOINED:  # else its owners are asked
                    self.joined.add(job)
                return _json({"job": self.job.digest}, _CREATED)
            case ["v1", "jobs", job, "rounds", number]:
                if job != self.job.digest:
                    return _json({}, _ACCEPTED if job in self.waiting else _GONE)
                return self._round(int(number))
            case ["v1", "rounds", round_id, "shares"]:
                self.uploads.setdefault(round_id, []).append(self.target.timer())
                self.envelopes.setdefault(round_id, []).append(body)
                return _json({"status": _CREATED}, _CREATED)
            case ["v1", "charges"]:
                return self._no_charges(request, body)
        return _json({}, _NOT_FOUND)

    def _no_charges(self, request: httpx.Request, body: bytes) -> httpx.Response:
        """Answer as a node that has charged this data holder nothing."""
        asked = decode(body, ChargesQuery).body
        urls = {
            each.name: httpx.URL(each.url) for each in self.target.consortium.manifest.compute_nodes
        }
        [node] = [name for name, url in urls.items() if url.netloc == request.url.netloc]
        told = Charges(
            manifest=asked.manifest,
            node=node,
            nonce=asked.nonce,
            holder=asked.holder,
            after=int(request.url.params["after"]),
            through=0,
            head=0,
            rounds=(),
        )
        return httpx.Response(_OK, content=self.target.sign(told, node).encode())

    def _round(self, number: int) -> httpx.Response:
        spec = self.specs.get(number, self.newest)
        if spec is None:
            return _json({}, _ACCEPTED)
        self.served.setdefault(self.job.digest, self.target.timer())
        return httpx.Response(_OK, content=spec)


@dataclass
class Victim:
    """A data holder of the crew, with a policy and a ledger that are thrown away."""

    target: Target
    network: FakeNetwork
    holder: DataHolder
    refusals: list[str]

    @property
    def refusal(self) -> str:
        """Return why it refused a round or a job last, "" if it refused none."""
        return self.refusals[-1] if self.refusals else ""

    async def step(self) -> None:
        """Let it do what is due, and time pass for as long as that takes."""
        task = asyncio.create_task(self.holder.step())
        latest = self.target.after(_PATIENCE_SECONDS)
        while not task.done() and self.target.clock() < latest:
            await asyncio.wait({task}, timeout=0)
            if not task.done():
                await self.target.pause(_TICK_SECONDS)
        if not task.done():
            task.cancel()
        await task

    async def shown(self, spec: RoundSpec, *, steps: int = _STEPS) -> bool:
        """Show it a signed round as its job's newest one; return whether it answered."""
        self.network.newest = self.target.sign(spec, self.target.trainer).encode()
        for _ in range(steps):
            if spec.digest not in self.network.uploads:
                await self.step()
        return spec.digest in self.network.uploads

    async def answer(self, job: Signed[StudyRequest], spec: RoundSpec) -> None:
        """Show it a job, the only one that is not over, and its round, and have it answered.

        Raises:
            CannotAttack: it does not answer.
        """
        self.network.job = job
        if not await self.shown(spec):
            raise CannotAttack(f"the data holder does not answer: {self.refusal}")


@asynccontextmanager
async def victim(
    target: Target,
    job: Signed[StudyRequest],
    *,
    noise: NoiseSampler = exact_noise,
    owner: Mapping[str, Any] | None = None,
    value: float = 0.0,
) -> AsyncIterator[Victim]:
    """Start the data holder of the crew's first client, each record's values all `value`.

    Its policy allows what `job` asks for, but where `owner` has another rule.
    """
    request = job.body
    policy = Policy(
        analysts=(request.analyst,),
        queries=("second_moments", "second_moment_matrix", "gradient_sum"),
        columns=request.terms.column_names,
        maximum_epsilon=target.consortium.manifest.policy.maximum_epsilon,
        delta=target.consortium.manifest.policy.delta,
        minimum_population=request.smallest_round,
        minimum_colluders=request.privacy.colluders,
        approval="automatic",
    ).model_copy(update=owner or {})
    columns = (*request.terms.column_names, PRIVATE_COLUMN)
    key, roster = target.keys.clients[target.crew[0]], target.consortium.roster
    slots = len(roster.slots_of(roster.holder_of(target.crew[0])))
    refusals: list[str] = []

    def report(event: str, /, **facts: object) -> None:
        if event in ("round taken", "round not answered", "job refused") and facts.get("reason"):
            refusals.append(str(facts["reason"]))

    network = FakeNetwork(target, job)
    ids = Identity("id", tuple(map(str, range(slots))), 1)
    with tempfile.TemporaryDirectory() as directory:
        holder = DataHolder.inside(
            key=key,
            records=Records(
                columns, np.full((slots, len(columns)), value), np.arange(slots + 1), ids
            ),
            policy=policy,
            book=ManifestBook(target.consortium, Path(directory)),
            data_directory=Path(directory) / "state",
            clock=target.clock,
            random_bytes=target.random_bytes,
            sources=Sources(noise, clock=target.clock, random_bytes=target.random_bytes),
            transport=network,
            report=report,
        )
        try:
            yield Victim(target, network, holder, refusals)
        finally:
            await holder.close()


def _json(value: Any, status: int = _OK) -> httpx.Response:
    return httpx.Response(status, content=json.dumps(value).encode())

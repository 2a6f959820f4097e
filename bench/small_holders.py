"""Data holders of one record each, by sessions: CPU seconds of all, stage by stage.

    python -m bench.small_holders [--holders 100000] [--nodes 3] [--features 9] [--json FILE]

Real services over TLS, from a job's submission to its posterior. One process plays all holders: it
signs their joins and openings and makes their envelopes by the product's own functions, and sends
them in bulk where the services take that. It keeps no ledger. Noise is counted apart.
"""

import argparse
import asyncio
import json
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.drive import FIRST_PHONE, Drive, phone_key, quickstart
from bench.holders import cpu_seconds
from bench.load.rounds import made_up_columns
from bench.raw_requests import Lines, ask, request
from shoal import Analyst, JobSettings
from shoal_consortium.processes import Federation, Process
from shoal_holder.contribution import answer_id, draw_noise
from shoal_holder.noise import exact_noise
from shoal_protocol.jobs.membership import Join
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.sharing.session_envelope import SessionHeader, SessionWrapping, seed_for, wrap
from shoal_protocol.sharing.sessions import (
    STEP_SECONDS,
    Opening,
    Prekey,
    advance,
    hour_for,
    open_session,
)
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.studies.linear_regression import LinearRegressionTask
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import Role, Signed, decode, sign
from shoal_protocol.wire.encoding import Int64Vector

TOGETHER: Final = 1000  # joins or envelopes in a request
CONNECTIONS: Final = 8
SECONDS: Final = 7200  # that a job gives each of its parts
WAIT_SECONDS: Final = 0.2
_PARTS: Final = ("nodes", "trainer and aggregator", "holders")


class Stages:
    """CPU seconds by stage, and in each of the nodes, of the other services and of the holders."""

    def __init__(self, nodes: Sequence[Process], others: Sequence[Process]) -> None:
        self._nodes, self._others = nodes, others
        self.seconds: dict[str, dict[str, float]] = {}
        self.noise = 0.0  # of the holders' in all stages

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count what is done inside."""
        before, noise = self._so_far(), self.noise
        yield
        spent = [after - earlier for after, earlier in zip(self._so_far(), before, strict=True)]
        spent[-1] -= self.noise - noise
        self.seconds[name] = {
            part: round(each, 2) for part, each in zip(_PARTS, spent, strict=True)
        }

    def _so_far(self) -> list[float]:
        return [cpu_seconds(self._nodes), cpu_seconds(self._others), time.process_time()]


class Holders:
    """All data holders: their keys, and the sessions that they opened."""

    def __init__(self, drive: Drive, count: int) -> None:
        self._drive, self._numbers = drive, range(count)
        self._keys = [phone_key(number) for number in self._numbers]
        self._chains: list[dict[str, bytes]] = []
        self._session = int(time.time())
        self._nodes = drive.consortium.manifest.compute_nodes

    def chunks(self) -> Iterator[range]:
        """Yield the numbers of those who share a request."""
        for start in range(0, len(self._numbers), TOGETHER):
            yield self._numbers[start : start + TOGETHER]

    def joins(self, job: str, chunk: range) -> bytes:
        """Return signed joins of some of them, in one body."""
        manifest = self._drive.consortium.digest
        return _together(
            sign(
                Join(manifest=manifest, job=job, holder=FIRST_PHONE + number),
                Role.HOLDER,
                self._keys[number],
            )
            for number in chunk
        )

    def openings(self, prekeys: Sequence[Prekey], chunk: range) -> bytes:
        """Open a session of some of them with all nodes; return what each node is to be sent."""
        return _together(map(partial(self._opening, prekeys), chunk))

    def _opening(self, prekeys: Sequence[Prekey], number: int) -> Signed[Opening]:
        opening, keys = open_session(
            prekeys,
            holder=FIRST_PHONE + number,
            number=self._session,
            previous=None,
            random_bytes=secrets.token_bytes,
        )
        self._chains.append(keys)
        return sign(opening, Role.HOLDER, self._keys[number])

    def envelopes(self, spec: RoundSpec, chunk: range, noise: Int64Vector) -> list[list[bytes]]:
        """Return the envelopes of some of them, by node; `noise` has a row for each."""
        values = spec.query.encode(np.full((1, len(spec.query.column_names)), 0.25))
        steps = hour_for(self._session, spec.opened_at) - self._session // STEP_SECONDS
        made: list[list[bytes]] = [[] for _ in self._nodes]
        for number, drawn in zip(chunk, noise, strict=True):
            keys = [advance(self._chains[number][node.name], steps) for node in self._nodes]
            answer = self._answer(spec, number, values + drawn, keys)
            for node, envelope in enumerate(answer):
                made[node].append(envelope)
        return made

    def _answer(
        self, spec: RoundSpec, number: int, noisy: Int64Vector, keys: Sequence[bytes]
    ) -> list[bytes]:
        holder, nodes = FIRST_PHONE + number, len(keys)
        answer = answer_id(self._keys[number], spec.digest, noisy, secrets.token_bytes(32))

        def header(node: int, kind: ShareKind) -> SessionHeader:
            seed = kind is ShareKind.SEED
            wrapping = SessionWrapping.NOTICE if seed else SessionWrapping.VECTOR
            return SessionHeader(wrapping, node, holder, self._session, spec.digest, answer)

        kinds = [spec.sharing.kind_for(holder=holder, node=i, nodes=nodes) for i in range(nodes)]
        headers = [header(node, kind) for node, kind in enumerate(kinds)]
        seeds = iter(
            [
                seed_for(headers[node], keys[node], manifest=spec.manifest)
                for node, kind in enumerate(kinds)
                if kind is ShareKind.SEED
            ]
        )
        shares = spec.sharing.split(
            spec.sharing.encode(noisy),
            holder=holder,
            nodes=nodes,
            random_bytes=lambda _: next(seeds),
        )
        return [
            wrap(share, place, key=key, manifest=spec.manifest)
            for share, place, key in zip(shares, headers, keys, strict=True)
        ]


async def measure(directory: Path, *, holders: int, nodes: int, features: int) -> dict[str, Any]:
    """Return the figures by their names."""
    services = quickstart(directory, phones=holders, nodes=nodes)
    compute, others = services[:nodes], services[nodes:]
    drive = Drive(directory)
    everybody = Holders(drive, holders)
    *columns, target = made_up_columns(features)
    task = LinearRegressionTask(features=tuple(columns), target=target, method="plain")
    stages, begun = Stages(compute, others), time.monotonic()
    with Federation() as federation:
        federation.start(*services)
        analyst = Analyst.open(directory / "parties" / "analyst", directory / "consortium")
        manifest = drive.consortium.manifest
        with stages.stage("joins"):
            trainer = await Lines.open(manifest.trainer, CONNECTIONS)
            job = await asyncio.to_thread(analyst.submit, task, settings_for(holders))
            for chunk in everybody.chunks():
                await ask_trainer(
                    drive, trainer, f"/v1/jobs/{job.id}/joins", everybody.joins(job.id, chunk)
                )
        with stages.stage("openings"):
            await _open(drive, everybody)
        with stages.stage("round"):  # over lines of its own: services close those that are idle
            trainer = await Lines.open(manifest.trainer, CONNECTIONS)
            lines = [await Lines.open(node, CONNECTIONS) for node in manifest.compute_nodes]
            spec = await _spec(drive, trainer, job.id)
            await _answer(drive, lines, everybody, spec, stages)
            report = await asyncio.to_thread(job.wait)
    if report.cohort_sizes != (holders,):
        raise RuntimeError("answers were lost")
    counted = [stages.seconds["joins"], stages.seconds["round"]]
    return {
        "holders": holders,
        "nodes": nodes,
        "dimension": spec.body.dimension,
        "seconds": round(time.monotonic() - begun, 1),
        "cpu_seconds": stages.seconds,
        "cpu_seconds_of_noise": round(stages.noise, 2),
        "cpu_seconds_without_openings_and_noise": round(
            sum(sum(each.values()) for each in counted), 2
        ),
    }


def settings_for(holders: int) -> JobSettings:
    """Return a job of so many data holders of one client, by sessions, with time enough."""
    few = max(1, holders // 100)
    return JobSettings(
        epsilon=1.0,
        delta=1e-5,
        dropouts=few,
        colluders=few,
        minimum_population=holders,
        maximum_population=holders,
        join_seconds=SECONDS,
        round_seconds=SECONDS,
        grace_seconds=SECONDS,
        wrapping="session",
    )


async def _open(drive: Drive, everybody: Holders) -> None:
    nodes = drive.consortium.manifest.compute_nodes
    prekeys = []
    for node in nodes:
        [encoded] = await ask(node, [request(node, "GET", "/v1/prekey")], connections=1)
        prekeys.append(decode(encoded, Prekey).body)
    lines = [await Lines.open(node, CONNECTIONS) for node in nodes]
    for chunk in everybody.chunks():
        openings = everybody.openings(prekeys, chunk)
        for node, line in zip(nodes, lines, strict=True):
            [body] = await line.ask([request(node, "POST", "/v1/openings", openings)])
            check_taken(node, body)


async def _spec(drive: Drive, trainer: Lines, job: str) -> Signed[RoundSpec]:
    """Wait for the job's first round."""
    party = drive.consortium.manifest.trainer
    while True:
        [body] = await trainer.ask([request(party, "GET", f"/v1/jobs/{job}/rounds/0")])
        if body.startswith(b'{"body"'):
            return decode(body, RoundSpec)
        await asyncio.sleep(WAIT_SECONDS)


async def _answer(
    drive: Drive,
    lines: Sequence[Lines],
    everybody: Holders,
    spec: Signed[RoundSpec],
    stages: Stages,
) -> None:
    path = f"/v1/rounds/{spec.digest}/shares/bulk"
    nodes = drive.consortium.manifest.compute_nodes
    for chunk in everybody.chunks():
        begun = time.process_time()
        noise = draw_noise(spec.body, 1, exact_noise, draws=len(chunk))
        stages.noise += time.process_time() - begun
        by_node = everybody.envelopes(spec.body, chunk, noise)
        for node, line, envelopes in zip(nodes, lines, by_node, strict=True):
            [body] = await line.ask([request(node, "POST", path, frame(envelopes))])
            check_taken(node, body)


async def ask_trainer(drive: Drive, trainer: Lines, path: str, body: bytes) -> None:
    """Send documents to the trainer, which must take all of them."""
    party = drive.consortium.manifest.trainer
    [answer] = await trainer.ask([request(party, "POST", path, body)])
    check_taken(party, answer)


def _together(documents: Iterable[Signed[Any]]) -> bytes:
    """Return the body with several documents, in canonical form."""
    return b'{"documents":[' + b",".join(each.encode() for each in documents) + b"]}"


def check_taken(party: ServiceParty, answer: bytes) -> None:
    """Raise RuntimeError unless everything in a bulk request was taken."""
    if any(each["status"] != 201 for each in json.loads(answer)["outcomes"]):
        raise RuntimeError(f"{party.name} refuses what was sent")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--holders", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--features", type=int, default=9)
    parser.add_argument("--json", type=Path, help="file for the figures")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(
            measure(
                Path(directory), holders=asked.holders, nodes=asked.nodes, features=asked.features
            )
        )
    if asked.json is not None:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

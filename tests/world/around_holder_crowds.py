"""A trainer's crowd jobs in memory for the client tests, honest or lying in a way that is told.

It draws, replaces and signs by the protocol's own code.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from shoal_agent.data_holder import DataHolder
from shoal_holder.policy import Policy
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    InstanceHead,
    LogEntry,
    Submission,
    SubmissionReceipt,
    commitment,
    drawn_instance,
    replaced_instance,
    weights_digest,
)
from shoal_protocol.crowds.submissions import check_submission
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.journal import GENESIS
from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.wire.documents import Document, Signed, decode, from_json, sign
from shoal_protocol.wire.encoding import Int64Vector, canonical_json
from shoal_protocol.wire.errors import ProtocolError
from tests.world.around_holder import POLICY, FakeTrainer, World, problem
from tests.world.examples import signing_key

TASK = CrowdTask(
    family="linear",
    features=(ColumnBounds(name="age", lower=0.0, upper=120.0),),
    target=ColumnBounds(name="pressure", lower=60.0, upper=200.0),
    clip=0.05,
    epsilon=0.5,
    learning_rate=0.1,
    instances=3,
)
CROWD_POLICY = Policy.model_validate(
    POLICY.model_dump() | {"maximum_local_epsilon": 2.0, "crowd_families": ("linear",)}
)
SEED = bytes(range(32))


@dataclass
class Lies:
    """What a lying trainer does; each takes what is true and returns what is said instead."""

    draw: Callable[[Draw], Draw] = lambda draw: draw
    receipt: Callable[[SubmissionReceipt], SubmissionReceipt] = lambda receipt: receipt
    closing: Callable[[CrowdClosing], CrowdClosing] = lambda closing: closing
    log: Callable[[list[LogEntry]], list[LogEntry]] = lambda entries: entries
    snapshot: Callable[[dict[str, Any]], dict[str, Any]] = lambda snapshot: snapshot
    forgets: bool = False
    """It acknowledges submissions and replaces nothing."""


@dataclass
class StandIn(FakeTrainer):
    """A trainer of one crowd job, besides other jobs."""

    request: Signed[CrowdJobRequest] | None = None
    opening: Signed[CrowdOpening] | None = None
    instances: list[tuple[int, ...]] = field(default_factory=list)
    logs: list[list[LogEntry]] = field(default_factory=list)
    taken: dict[str, Signed[Submission]] = field(default_factory=dict)
    draws: int = 0
    closed: bool = False
    asked: Signed[JobWithdrawal] | None = None
    lies: Lies = field(default_factory=Lies)

    @property
    def job(self) -> str:
        assert self.request is not None
        return self.request.digest

    @property
    def closes_at(self) -> datetime:
        assert self.request is not None
        return self.request.body.closes_at

    def signed(self, body: Document) -> dict[str, Any]:
        return sign(body, "trainer", signing_key("trainer")).to_json()

    def open(self, request: Signed[CrowdJobRequest]) -> None:
        task = request.body.task
        self.request = request
        self.instances = [(0,) * task.dimension] * task.instances
        self.logs = [[] for _ in self.instances]
        opening = CrowdOpening(
            manifest=request.body.manifest,
            job=request.digest,
            commitment=commitment(SEED),
            opened_at=self.world.clock(),
        )
        self.opening = sign(opening, "trainer", signing_key("trainer"))

    def answer(self, request: httpx.Request) -> httpx.Response:
        parts = request.url.path.strip("/").split("/")[1:]
        if parts[0] != "crowds":
            return super().answer(request)
        assert self.request is not None and self.opening is not None
        match parts[1:]:
            case ["list"]:
                open_ = [] if self.closed else [{"job": self.request.digest, "phase": "open"}]
                return httpx.Response(200, json={"crowds": open_})
            case [job] if job == self.request.digest:
                return httpx.Response(200, json=self.state())
            case [job, *_] if job != self.request.digest:
                return problem(404, "unknown-job")
            case [_, "instances"]:
                return httpx.Response(200, json=self.lies.snapshot(self.snapshot()))
            case [_, "request"]:
                return httpx.Response(200, content=self.request.encode())
            case [_, "opening"]:
                return httpx.Response(200, content=self.opening.encode())
            case [_, "draws"]:
                if self.closed:
                    return problem(410, "crowd-closed")
                drawn = self.draw(json.loads(request.content)["nonce"])
                return httpx.Response(200, content=canonical_json(drawn))
            case [_, "submissions"]:
                return self.take(json.loads(request.content))
            case [_, "closing"] if request.method == "POST":
                self.asked = decode(request.content, JobWithdrawal)
                self.closed = True
                return httpx.Response(201, content=canonical_json(self.signed(self.closing())))
            case [_, "closing"]:
                if not self.closed:
                    return httpx.Response(202, json={})
                return httpx.Response(200, content=canonical_json(self.signed(self.closing())))
            case [_, "log", instance]:
                entries = self.lies.log(self.logs[int(instance)])
                after = int(request.url.params["after"])
                page = [each.model_dump(mode="json") for each in entries[after : after + 2]]
                return httpx.Response(200, json={"entries": page, "next": None})
        return problem(404, "not-found")

    def state(self) -> dict[str, Any]:
        assert self.request is not None
        return {
            "job": self.request.digest,
            "phase": "closed" if self.closed else "open",
            "contributions": len(self.taken),
            "wanted": self.request.body.contributions,
            "contributors": len({each.body.client for each in self.taken.values()}),
            "instances": len(self.instances),
            "spread": None,
            "closes_at": self.request.body.closes_at.isoformat(),
        }

    def snapshot(self) -> dict[str, Any]:
        shown = [
            {"revision": len(log), "weights": weights}
            for log, weights in zip(self.logs, self.instances, strict=True)
        ]
        return {"contributions": sum(map(len, self.logs)), "instances": shown}

    def draw(self, nonce: str) -> dict[str, Any]:
        assert self.request is not None
        body = self.request.body
        instance = drawn_instance(SEED, nonce, body.task.instances)
        self.draws += 1
        drawn = Draw(
            manifest=body.manifest,
            job=body.digest,
            nonce=nonce,
            instance=instance,
            revision=len(self.logs[instance]),
            weights=self.instances[instance],
            expires_at=self.world.clock() + timedelta(seconds=body.session_seconds),
        )
        return self.signed(self.lies.draw(drawn))

    def take(self, value: Any) -> httpx.Response:
        """Judge a submission as the trainer does."""
        assert self.request is not None
        body = self.request.body
        submission = from_json(value, Submission)
        self.world.consortium.verify(submission)
        self.world.consortium.verify(submission.body.draw)
        draw = submission.body.draw.body
        try:
            check_submission(body.task, draw, submission.body)
        except ProtocolError as error:
            return problem(422, error.code)
        known = self.taken.get(draw.nonce)
        if known is None and self.closed:
            return problem(410, "crowd-closed")
        if known is not None and known != submission:
            return problem(409, "conflicting-document")
        entry = self._entry(draw.nonce, submission.body.weights)
        if known is None and not self.lies.forgets:
            self.logs[entry.instance].append(entry)
            self.instances[entry.instance] = submission.body.weights
        self.taken[draw.nonce] = submission
        receipt = SubmissionReceipt(manifest=body.manifest, entry=entry)
        signed = canonical_json(self.signed(self.lies.receipt(receipt)))
        return httpx.Response(201 if known is None else 200, content=signed)

    def _entry(self, nonce: str, weights: tuple[int, ...]) -> LogEntry:
        assert self.request is not None
        instance = replaced_instance(SEED, nonce, len(self.instances))
        for entry in self.logs[instance]:
            if entry.nonce == nonce:
                return entry
        log = self.logs[instance]
        return LogEntry(
            job=self.request.digest,
            instance=instance,
            revision=len(log) + 1,
            previous=log[-1].digest if log else GENESIS,
            nonce=nonce,
            weights=weights_digest(weights),
        )

    def close_early(self) -> None:
        """Close the job as its analyst asks for it."""
        assert self.request is not None
        body = JobWithdrawal(
            manifest=self.request.body.manifest, job=self.job, analyst=self.request.body.analyst
        )
        self.asked = sign(body, body.analyst, signing_key(body.analyst))
        self.closed = True

    def closing(self) -> CrowdClosing:
        assert self.request is not None
        heads = tuple(
            InstanceHead(
                revision=len(log), digest=log[-1].digest if log else GENESIS, weights=weights
            )
            for log, weights in zip(self.logs, self.instances, strict=True)
        )
        contributions, now = sum(map(len, self.logs)), self.world.clock()
        is_due = contributions >= self.request.body.contributions or now >= self.closes_at
        return self.lies.closing(
            CrowdClosing(
                manifest=self.request.body.manifest,
                job=self.request.digest,
                seed=SEED.hex(),
                heads=heads,
                contributions=contributions,
                closed_at=now,
                closing_request=None if is_due else self.asked,
            )
        )


def small_noise(part: NoisePart, count: int) -> Int64Vector:
    """Noise that tells each contribution from the others; it protects nothing."""
    small_noise.drawn += count  # type: ignore[attr-defined]
    return np.arange(small_noise.drawn - count, small_noise.drawn)  # type: ignore[attr-defined]


small_noise.drawn = 1  # type: ignore[attr-defined]


class CrowdWorld(World):
    """A consortium that allows crowd jobs, and its trainer's only one."""

    def __init__(self, directory: Path, clients: int = 4, **changes: Any) -> None:
        super().__init__(directory, clients, maximum_local_epsilon=10.0)
        self.crowds = self.trainer = StandIn(self)
        self.crowds.open(self.crowd_request(**changes))

    def crowd_request(self, *, signer: str = "analyst", **changes: Any) -> Signed[CrowdJobRequest]:
        arguments: dict[str, Any] = {
            "manifest": self.consortium.digest,
            "nonce": self.random_bytes(16).hex(),
            "analyst": "analyst",
            "task": TASK,
            "contributions": 1000,
            "contributions_per_client": 3,
            "session_seconds": 60,
            "closes_at": self.clock() + timedelta(seconds=1000),
        }
        request = CrowdJobRequest(**(arguments | changes))
        return sign(request, signer, signing_key(signer))

    @property
    def job(self) -> str:
        return self.crowds.job

    def holder(self, name: str = "holder", **changes: Any) -> DataHolder:
        return super().holder(name, **({"policy": CROWD_POLICY, "noise": small_noise} | changes))

    async def run(self, holder: DataHolder, *, seconds: float, tick: float = 10.0) -> None:
        """Step and move the clock."""
        passed = 0.0
        while passed < seconds:
            await holder.step()
            self.clock.move(tick)
            passed += tick
        await holder.step()

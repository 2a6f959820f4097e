"""A crowd job of the example consortium, and honest clients of it, over HTTP."""

import hashlib
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    InstanceChain,
    LogEntry,
    Submission,
    SubmissionReceipt,
    broken_draws,
    broken_receipts,
    check_closing,
    check_draw,
    check_opening,
)
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.wire.documents import DocumentT, Signed, decode, sign
from shoal_trainer.assembly import Replica, Service, assemble, assemble_replica
from tests.world import examples
from tests.world.clock import HandMovedClock
from tests.world.parties import book, client_of, party, reachable

POLICY = examples.POLICY.model_copy(update={"maximum_local_epsilon": 40.0})
CONSORTIUM = reachable(policy=POLICY)
TASK = CrowdTask(
    family="linear",
    features=(ColumnBounds(name="age", lower=20.0, upper=90.0),),
    target=ColumnBounds(name="pressure", lower=80.0, upper=200.0),
    clip=0.01,
    epsilon=2.0,
    learning_rate=0.01,
    instances=5,
)
CROWDS = "/v1/crowds"


def crowd(**changes: Any) -> CrowdJobRequest:
    """Return a crowd job request that the example consortium allows."""
    fields: dict[str, Any] = {
        "manifest": CONSORTIUM.digest,
        "nonce": "c0" * 16,
        "analyst": "analyst",
        "task": TASK,
        "contributions": 1000,
        "contributions_per_client": 20,
        "session_seconds": 60,
        "closes_at": examples.OPENED_AT + timedelta(hours=1),
    }
    return CrowdJobRequest(**(fields | changes))


def trainer_of(directory: Path, url: str | None, clock: HandMovedClock, **others: Any) -> Service:
    """Return the trainer over that database."""
    return assemble(
        party=party("trainer", CONSORTIUM),
        book=book(directory, CONSORTIUM),
        data_directory=directory,
        database_url=url,
        clock=clock,
        **others,
    )


def replica_of(directory: Path, url: str | None, clock: HandMovedClock, **others: Any) -> Replica:
    """Return a process that serves crowd jobs only."""
    directory.mkdir(exist_ok=True)
    return assemble_replica(
        party=party("trainer", CONSORTIUM),
        book=book(directory, CONSORTIUM),
        data_directory=directory,
        database_url=url,
        clock=clock,
        **others,
    )


def nonce(label: object) -> str:
    """Return a nonce that is the same for the same label."""
    return hashlib.sha256(f"nonce {label}".encode()).hexdigest()


def signed(body: DocumentT, signer: str) -> Signed[DocumentT]:
    return sign(body, signer, examples.signing_key(signer))


def answer_to(draw: Signed[Draw], client: int, move: int = 1000, **changes: Any) -> bytes:
    """Return what a client sends that moves the first weight of its draw by so much."""
    first, *others = draw.body.weights
    body: dict[str, Any] = {
        "manifest": CONSORTIUM.digest,
        "client": client,
        "draw": draw,
        "weights": (first + move, *others),
    }
    submission = Submission(**(body | changes))
    return sign(submission, "client", examples.client_key(client)).encode()


def closing_request(request: CrowdJobRequest, **changes: Any) -> JobWithdrawal:
    """Return what an analyst signs to have her job closed early."""
    fields = {"manifest": request.manifest, "job": request.digest, "analyst": request.analyst}
    return JobWithdrawal(**(fields | changes))


class Asker:
    """Speaks to one or several processes of a trainer; keeps what it got, as clients do."""

    def __init__(self, *apps: ASGIApp) -> None:
        self.apps = apps
        self.draws: list[Signed[Draw]] = []
        self.receipts: list[Signed[SubmissionReceipt]] = []

    async def ask(
        self, method: str, path: str, content: bytes = b"", *, app: int = 0
    ) -> httpx.Response:
        async with client_of(self.apps[app % len(self.apps)]) as http:
            return await http.request(method, path, content=content)

    async def open(self, request: CrowdJobRequest, *, app: int = 0) -> httpx.Response:
        return await self.ask("POST", CROWDS, signed(request, "analyst").encode(), app=app)

    async def close(
        self, request: CrowdJobRequest, signer: str = "analyst", *, app: int = 0
    ) -> httpx.Response:
        """Ask, as `signer`, for a job to be closed early."""
        asked = closing_request(request)
        path = f"{CROWDS}/{request.digest}/closing"
        return await self.ask("POST", path, signed(asked, signer).encode(), app=app)

    async def document(self, path: str, kind: type[DocumentT]) -> Signed[DocumentT]:
        """Return a document that the trainer signed."""
        answer = await self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return verified(answer.content, kind)

    async def draw(self, job: str, label: object, *, app: int = 0) -> Signed[Draw]:
        body = json.dumps({"nonce": nonce(label)}, separators=(",", ":")).encode()
        answer = await self.ask("POST", f"{CROWDS}/{job}/draws", body, app=app)
        assert answer.status_code == 200, answer.text
        drawn = verified(answer.content, Draw)
        assert drawn.body.nonce == nonce(label)
        self.draws.append(drawn)
        return drawn

    async def submit(self, job: str, content: bytes, *, app: int = 0) -> httpx.Response:
        answer = await self.ask("POST", f"{CROWDS}/{job}/submissions", content, app=app)
        if answer.status_code < 300:
            self.receipts.append(verified(answer.content, SubmissionReceipt))
        return answer

    async def contribute(
        self, job: str, label: object, client: int = 3, *, app: int = 0
    ) -> httpx.Response:
        """Draw, move the first weight, submit."""
        drawn = await self.draw(job, label, app=app)
        return await self.submit(job, answer_to(drawn, client), app=app)

    async def state(self, job: str) -> Any:
        return (await self.ask("GET", f"{CROWDS}/{job}")).json()

    async def instances(self, job: str) -> Any:
        return (await self.ask("GET", f"{CROWDS}/{job}/instances")).json()

    async def log(self, job: str, instance: int) -> list[LogEntry]:
        """Return an instance's whole log, asked for in pages."""
        entries: list[LogEntry] = []
        after: int | None = 0
        while after is not None:
            path = f"{CROWDS}/{job}/log/{instance}?after={after}&count=7"
            page = (await self.ask("GET", path)).json()
            entries += [LogEntry.model_validate(each) for each in page["entries"]]
            after = page["next"]
        return entries

    async def check_all(self, request: CrowdJobRequest) -> CrowdClosing:
        """Check every chain and all that was kept against the closing, and return that."""
        job = request.digest
        opening = (await self.document(f"{CROWDS}/{job}/opening", CrowdOpening)).body
        closing = (await self.document(f"{CROWDS}/{job}/closing", CrowdClosing)).body
        check_opening(opening, request)
        check_closing(closing, opening, request, CONSORTIUM, now=closing.closed_at)
        for drawn in self.draws:
            check_draw(drawn.body, request, nonce=drawn.body.nonce)
        assert list(broken_draws(self.draws, closing)) == []
        assert list(broken_receipts(self.receipts, closing)) == []
        links = set()
        for instance in range(request.task.instances):
            chain = InstanceChain(closing, request.task, instance)
            entries = await self.log(job, instance)
            chain.follow(entries)
            chain.end()
            links |= {entry.digest for entry in entries}
        assert {receipt.body.entry.digest for receipt in self.receipts} <= links
        assert len(links) == closing.contributions
        return closing


def verified(encoded: bytes, kind: type[DocumentT]) -> Signed[DocumentT]:
    found = decode(encoded, kind)
    CONSORTIUM.verify(found)
    return found

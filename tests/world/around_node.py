"""Compute nodes in one process, on a made-up network with a clock that is moved by hand."""

import asyncio
import errno
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from pyroaring import BitMap
from starlette.types import ASGIApp

from shoal_compute import node as node_module
from shoal_compute.assembly import Service, assemble
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.rounds import attestations
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    Holdings,
    PartialSum,
    Vote,
)
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.envelope import EPOCH_BYTES, Header, frame, seal
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Consortium
from shoal_protocol.trust.roster import RosterReference
from shoal_protocol.trust.roster_changes import with_revoked
from shoal_protocol.wire.documents import Signed, decode, from_json, sign
from shoal_protocol.wire.encoding import canonical_json, format_time
from shoal_protocol.wire.vectors import decode_uint64
from shoal_redteam.requests import request_for
from tests.world import examples
from tests.world.clock import HandMovedClock
from tests.world.examples import AUTHORITY, OPENED_AT, client_key, random_bytes, signing_key
from tests.world.parties import party, reachable

NODES = 3
POPULATION = BitMap(range(12))
SHARING = ADDITIVE
SECOND = timedelta(seconds=1)


class Wire(httpx.AsyncBaseTransport):
    """Carries requests to the applications by host name; `cut` hosts cannot be reached."""

    def __init__(self) -> None:
        self.apps: dict[str, ASGIApp] = {}
        self.cut: set[str] = set()
        self.silent: set[str] = set()  # hosts that take a request and never answer
        self.requests: list[tuple[str, str, str]] = []  # host, method, path
        self.lost_replies: set[str] = set()  # hosts that act, and whose answer never comes

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        self.requests.append((host, request.method, request.url.path))
        if host in self.cut or host not in self.apps:
            raise httpx.ConnectError("no route") from OSError(errno.EHOSTUNREACH, "no route")
        if host in self.silent:
            await asyncio.Event().wait()
        response = await httpx.ASGITransport(self.apps[host]).handle_async_request(request)
        if host in self.lost_replies:
            raise httpx.ReadTimeout("the answer was lost")
        return response


class Aggregator:
    """Takes partial sums and abandonments as the real one does, and remembers them."""

    def __init__(self, consortium: Consortium) -> None:
        self.consortium = consortium
        self.sums: dict[str, dict[str, Signed[PartialSum]]] = defaultdict(dict)
        self.abandonments: dict[str, dict[str, Signed[Abandonment]]] = defaultdict(dict)
        self.called_off: dict[str, Signed[Abandonment]] = {}
        self.unknown: set[str] = set()

    def call_off(self, spec: RoundSpec) -> Signed[Abandonment]:
        body = Abandonment(
            manifest=spec.manifest,
            round=spec.digest,
            party="aggregator",
            reason=AbandonmentReason(code="partial_sums_missing"),
        )
        self.called_off[spec.digest] = sign(body, "aggregator", signing_key("aggregator"))
        return self.called_off[spec.digest]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        status, reply = 200, b"{}"
        if scope["path"] != "/healthz":
            _, _, _, round_id, what = scope["path"].split("/")
            status, reply = self._answer(scope["method"], round_id, what, body)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": reply})

    def _answer(self, method: str, round_id: str, what: str, body: bytes) -> tuple[int, bytes]:
        if what == "newest":
            return 404, b"{}"
        if round_id in self.unknown:
            return 404, b"{}"
        if (method, what) == ("GET", "abandonment"):
            off = self.called_off.get(round_id)
            return (404, b"{}") if off is None else (200, off.encode())
        if round_id in self.called_off:
            return 410, b"{}"
        kind = PartialSum if what == "partial-sums" else Abandonment
        signed: Signed[Any] = decode(body, kind)
        self.consortium.verify(signed)
        kept: dict[str, Signed[Any]] = (
            self.sums if kind is PartialSum else self.abandonments  # type: ignore[assignment]
        )[round_id]
        if kept.setdefault(signed.signer, signed).digest != signed.digest:
            return 409, b"{}"
        return 201, b"{}"


def job_in(spec: bytes | None) -> str | None:
    """Return the job that a signed spec names, or None if the bytes are none."""
    try:
        return str(json.loads(spec or b"")["body"]["job"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def job_for(trust: Consortium, label: str = "job", **arguments: Any) -> Signed[JobRequest]:
    """Return the analyst's request for a job that allows the rounds made from these arguments."""
    asked = {
        "query": examples.MATRIX,
        "mechanism": "discrete_gaussian",
        "dropouts": 2,
        "colluders": 3,
        "sharing": SHARING,
    }
    chosen = {name: arguments.get(name, default) for name, default in asked.items()}
    nonce = examples.seed(label)[:16].hex()
    request = request_for(trust, analyst="analyst", nonce=nonce, opened_at=OPENED_AT, **chosen)
    return sign(request, "analyst", signing_key("analyst"))


def contribution(client: int, dimension: int) -> np.ndarray:
    return np.arange(dimension, dtype=np.int64) * 1000 - 7 * client


class Federation:
    """Nodes `compute-0` and so on, each with a directory of its own, and an aggregator."""

    def __init__(self, directory: Path, *, trust: Consortium | None = None) -> None:
        self.directory = directory
        self.consortium = trust or reachable()
        self.names = [node.name for node in self.consortium.manifest.compute_nodes]
        self.clock = HandMovedClock()
        self.wire = Wire()
        self.aggregator = Aggregator(self.consortium)
        self.requests: dict[str, bytes] = {}  # of jobs, for nodes before a round
        self.wire.apps["aggregator.example"] = self.aggregator
        self.books: list[ManifestBook] = []
        self.services: list[Service] = []
        self.discarded: list[Service] = []
        for node in range(len(self.names)):
            self.books.append(ManifestBook(self.consortium, directory / f"{node}"))
            self.services.append(self._assemble(node))

    def start(self, node: int, directory: Path, **changes: Any) -> Service:
        """Assemble a node's process over what is in `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        arguments: dict[str, Any] = {
            "party": party(f"compute-{node}", self.consortium),
            "book": self.books[node],
            "data_directory": directory,
            "database_url": None,
            "clock": self.clock.of(f"compute-{node}"),
            "transport": self.wire,
        }
        return assemble(**(arguments | changes))

    def _assemble(self, node: int) -> Service:
        service = self.start(node, self.directory / f"{node}")
        self.wire.apps[f"compute-{node}.example"] = service.app
        return service

    def crash(self, node: int) -> None:
        """Drop a node as it is and start it again over what it stored."""
        self.discarded.append(self.services[node])
        self.services[node] = self._assemble(node)

    def revoke(self, node: int, holders: Sequence[int]) -> None:
        """Let a node accept the next manifest, under which these data holders are revoked."""
        first = self.consortium
        roster = with_revoked(first.roster, holders)
        changes = {"sequence": 2, "previous": first.digest, "roster": RosterReference.of(roster)}
        signed = sign(first.manifest.model_copy(update=changes), AUTHORITY_NAME, AUTHORITY)
        self.books[node].accept(signed.encode(), roster.encode())

    async def close(self) -> None:
        for service in [*self.services, *self.discarded]:
            await service.close()

    @property
    def job(self) -> str:
        """Return the job of rounds that name no other."""
        return job_for(self.consortium).digest

    def spec(self, **changes: Any) -> Signed[RoundSpec]:
        """Return a round of a job that allows it; `job` is its digest, or a label for another."""
        arguments = {"manifest": self.consortium, "opened_at": self.clock()} | changes
        if (label := arguments.get("job", "job")) not in self.requests:
            request = job_for(arguments["manifest"], label, **changes)
            self.requests[request.digest] = request.encode()
            arguments["job"] = request.digest
        opened_at = arguments["opened_at"]
        arguments = {
            "deadline": opened_at + 60 * SECOND,
            "give_up_at": opened_at + 90 * SECOND,
        } | arguments
        return sign(examples.spec(**arguments), "trainer", signing_key("trainer"))

    async def request(
        self, node: int, method: str, path: str, content: bytes | None = None
    ) -> httpx.Response:
        """Call a node as somebody outside would; a round comes with its job's request."""
        transport = httpx.ASGITransport(self.services[node].app)
        async with httpx.AsyncClient(transport=transport, base_url="https://node") as client:
            return await self.call(client, method, path, content)

    async def call(
        self, client: httpx.AsyncClient, method: str, path: str, content: bytes | None
    ) -> httpx.Response:
        if path == "/v1/rounds" and (request := self.requests.get(job_in(content) or "")):
            await client.post("/v1/jobs", content=request)
        return await client.request(method, path, content=content)

    async def announce(self, spec: Signed[RoundSpec], nodes: Iterable[int] | None = None) -> None:
        for node in range(len(self.names)) if nodes is None else nodes:
            reply = await self.request(node, "POST", "/v1/rounds", spec.encode())
            assert reply.status_code == 201, reply.text

    async def upload(self, node: int, spec: Signed[RoundSpec], envelope: bytes) -> httpx.Response:
        return await self.request(node, "POST", f"/v1/rounds/{spec.digest}/shares", envelope)

    async def upload_all(
        self,
        spec: Signed[RoundSpec],
        clients: Iterable[int] = POPULATION,
        nodes: Iterable[int] | None = None,
    ) -> None:
        clients = list(clients)
        for node in range(len(self.names)) if nodes is None else nodes:
            body = frame(envelopes(spec.body, client)[node] for client in clients)
            path = f"/v1/rounds/{spec.digest}/shares/bulk"
            reply = await self.request(node, "POST", path, body)
            assert reply.status_code == 200, reply.text
            statuses = [outcome["status"] for outcome in reply.json()["outcomes"]]
            assert set(statuses) <= {200, 201}, reply.text

    async def step(self, nodes: Iterable[int] | None = None, times: int = 1) -> None:
        # a busy machine must not end a step early; only a peer that hangs is not waited for
        node_module.PATIENCE_SECONDS = 0.25 if self.wire.silent else 60.0
        for _ in range(times):
            for node in range(len(self.services)) if nodes is None else nodes:
                await self.services[node].step()

    async def state(self, node: int, spec: Signed[RoundSpec]) -> dict[str, Any]:
        reply = await self.request(node, "GET", f"/v1/rounds/{spec.digest}")
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    async def phases(self, spec: Signed[RoundSpec]) -> list[str]:
        return [(await self.state(node, spec))["phase"] for node in range(len(self.names))]

    async def documents(self, node: int, spec: Signed[RoundSpec]) -> list[Signed[Any]]:
        reply = await self.request(node, "GET", f"/v1/rounds/{spec.digest}/documents")
        kinds = (Holdings, Vote, PartialSum, Abandonment)
        return [from_json(value, *kinds) for value in reply.json()["documents"]]

    async def gossip(
        self,
        node: int,
        documents: Sequence[Signed[Any]],
        known: Any = None,
        wanted: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Speak to a node as a peer would."""
        message = {
            "documents": [each.to_json() for each in documents],
            "known": known or {},
            "time": format_time(self.clock()),
            "wanted": list(wanted),
        }
        reply = await self.request(node, "POST", "/v1/gossip", canonical_json(message))
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    def result(self, spec: Signed[RoundSpec]) -> np.ndarray:
        """Combine the partial sums that reached the aggregator."""
        sums, scheme = self.aggregator.sums[spec.digest], spec.body.sharing
        assert len(sums) >= spec.body.threshold
        assert len({signed.body.cohort for signed in sums.values()}) == 1
        added = {
            index: decode_uint64(sums[name].body.values)
            for index, name in enumerate(self.names)
            if name in sums
        }
        return summation.decode(
            scheme, summation.combine(scheme, added, nodes=len(self.names)).total
        )


def expected(spec: RoundSpec, clients: Iterable[int]) -> np.ndarray:
    return np.sum([contribution(client, spec.dimension) for client in clients], axis=0)


def envelopes(
    spec: RoundSpec, client: int, *, attempt: str = "first", epoch: int = 0
) -> list[bytes]:
    """Return a client's envelopes, one for each node; another `attempt` has other randomness."""
    answer = examples.answer_id(client, attempt)[:-EPOCH_BYTES] + epoch.to_bytes(
        EPOCH_BYTES, "little"
    )
    nodes = len(spec.compute_nodes)
    label = f"{spec.digest} {client} {attempt}"
    shares = spec.sharing.split(
        spec.sharing.encode(contribution(client, spec.dimension)),
        holder=client,
        nodes=nodes,
        random_bytes=random_bytes(f"seeds {label}"),
    )
    return [
        seal(
            share,
            Header(
                share.kind,
                node,
                client,
                spec.manifest,
                spec.digest,
                answer,
            ),
            box_key=examples.box_key(node),
            key=client_key(client),
            random_bytes=random_bytes(f"ephemeral {label} {node}"),
        )
        for node, share in enumerate(shares)
    ]


def holdings(
    spec: RoundSpec, node: str, clients: Iterable[int], attempt: str = "first"
) -> Signed[Holdings]:
    """Return holdings of those of these clients that share with the node."""
    asked = attestations.asked_of(spec, node, spec.clients() | BitMap(clients))
    held = examples.held(sorted(asked & BitMap(clients)), attempt)
    body = Holdings.attest(
        held,
        asked,
        manifest=spec.manifest,
        round_id=spec.digest,
        node=node,
    )
    return sign(body, node, signing_key(node))


def vote(
    spec: RoundSpec,
    node: str,
    cohort: Iterable[int],
    holders: Sequence[str] | None = None,
    attempt: str = "first",
) -> Signed[Vote]:
    chosen = examples.held(cohort, attempt)
    body = Vote(
        manifest=spec.manifest,
        round=spec.digest,
        node=node,
        nodes=tuple(holders or spec.compute_nodes),
        cohort=attestations.digest_in(spec, chosen, tuple(holders or spec.compute_nodes)),
        cohort_size=len(chosen.holders),
    )
    return sign(body, node, signing_key(node))

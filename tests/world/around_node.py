"""Compute nodes and their aggregator, on the world's wire and clock; tests play all others."""

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from pyroaring import BitMap

from shoal_aggregator import assembly as aggregator
from shoal_compute import node as node_module
from shoal_compute.assembly import Service, assemble
from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.rounds import attestations
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    Holdings,
    PartialSum,
    Result,
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
from tests.world.examples import AUTHORITY, OPENED_AT, PLACE, client_key, random_bytes, signing_key
from tests.world.lives import Life
from tests.world.parties import client_of, party, reachable
from tests.world.wire import Wire

NODES = 3
POPULATION = BitMap(range(12))
SHARING = ADDITIVE
SECOND = timedelta(seconds=1)


def called_off(spec: RoundSpec) -> Signed[Abandonment]:
    """Return the aggregator's signed word that a round is abandoned."""
    body = Abandonment(
        manifest=spec.manifest,
        round=spec.digest,
        party="aggregator",
        reason=AbandonmentReason(code="partial_sums_missing"),
        entry=PLACE,
    )
    return sign(body, "aggregator", signing_key("aggregator"))


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
        self.wire = Wire(lambda url: url.host.removesuffix(".example"))
        self.requests: dict[str, bytes] = {}  # of jobs, for nodes before a round
        self.aggregator = self.start_aggregator(directory / "aggregator")
        self.take_place("aggregator", self.aggregator)
        self.books: list[ManifestBook] = []
        self.services: list[Service] = []
        self.discarded: list[Service] = []
        for node in range(len(self.names)):
            self.books.append(ManifestBook(self.consortium, directory / f"{node}"))
            self.services.append(self._assemble(node))

    def start_aggregator(self, directory: Path) -> aggregator.Service:
        """Assemble the aggregator over what is in `directory`."""
        directory.mkdir(parents=True)
        return aggregator.assemble(
            party=party("aggregator", self.consortium),
            book=ManifestBook(self.consortium, directory),
            data_directory=directory,
            database_url=None,
            clock=self.clock,
            transport=self.wire.of(Life("aggregator")),
        )

    def take_place(self, name: str, service: Any) -> None:
        """Have a service answer what is sent to this name."""
        self.wire.apps[name] = service.app
        self.wire.lives.setdefault(name, Life(name))

    def start(self, node: int, directory: Path, **changes: Any) -> Service:
        """Assemble a node's process over what is in `directory`."""
        directory.mkdir(parents=True, exist_ok=True)
        name = f"compute-{node}"
        arguments: dict[str, Any] = {
            "party": party(name, self.consortium),
            "book": self.books[node],
            "data_directory": directory,
            "database_url": None,
            "clock": self.clock.of(name),
            "transport": self.wire.of(Life(name)),
        }
        return assemble(**(arguments | changes))

    def _assemble(self, node: int) -> Service:
        service = self.start(node, self.directory / f"{node}")
        self.take_place(f"compute-{node}", service)
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
        for service in [*self.services, *self.discarded, self.aggregator]:
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
        """Call a node as somebody outside would.

        A round comes with its job's request, and the aggregator hears of it, too.
        """
        transport = httpx.ASGITransport(self.services[node].app)
        async with httpx.AsyncClient(transport=transport, base_url="https://node") as client:
            return await self.call(client, method, path, content)

    async def call(
        self, client: httpx.AsyncClient, method: str, path: str, content: bytes | None
    ) -> httpx.Response:
        if path == "/v1/rounds" and (request := self.requests.get(job_in(content) or "")):
            await client.post("/v1/jobs", content=request)
        reply = await client.request(method, path, content=content)
        if path == "/v1/rounds" and reply.status_code == 201:
            async with client_of(self.aggregator.app) as http:
                await http.post(path, content=content)
        return reply

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
        node_module.PATIENCE_SECONDS = 60.0  # a busy machine must not end a step early
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

    def sums(self, spec: Signed[RoundSpec]) -> dict[str, PartialSum]:
        """Return the partial sums that the aggregator took, by node."""
        path = f"/v1/rounds/{spec.digest}/ends"
        taken = [each for each in self.wire.log if each.path == path and each.status in (200, 201)]
        ends = {each.sender: decode(each.body, PartialSum, Abandonment).body for each in taken}
        return {name: each for name, each in ends.items() if isinstance(each, PartialSum)}

    async def result(self, spec: Signed[RoundSpec]) -> np.ndarray:
        """Return the sum that the aggregator published, shape (d,)."""
        await self.aggregator.aggregator.step()
        async with client_of(self.aggregator.app) as http:
            reply = await http.get(f"/v1/rounds/{spec.digest}/outcome")
        assert reply.status_code == 200, reply.text
        values = decode_uint64(from_json(reply.json()["documents"][0], Result).body.values)
        return summation.decode(spec.body.sharing, values)


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
        held, asked, manifest=spec.manifest, round_id=spec.digest, node=node, entry=PLACE
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
        entry=PLACE,
    )
    return sign(body, node, signing_key(node))

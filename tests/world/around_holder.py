"""A data holder, on the world's wire and clock; its trainer and nodes are played.

Played, because the data holder's tests are of what others may say to it: specs that no trainer
makes, charges that no node has in its ledger, answers that are lost. The played parties check
signatures and open boxes with the protocol's own code, and `wire.scripts` answer in their place.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from nacl.public import PrivateKey
from pyroaring import BitMap

from shoal_agent.data_holder import DataHolder
from shoal_holder import spending
from shoal_holder.policy import Policy
from shoal_holder.records import Records
from shoal_holder.site import Sources
from shoal_holder.state import State
from shoal_holder.vault import Vault
from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.jobs.charges import Charges, ChargesQuery, RoundCharged
from shoal_protocol.jobs.job_request import PrivacyDemand
from shoal_protocol.jobs.membership import JOINED, HolderQuery, Membership
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.queries import QueryName
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import envelope, received, summation
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.sharing.shares import from_ring
from shoal_protocol.trust.roster_changes import roster_of
from shoal_protocol.wire.documents import Signed, decode, from_json, sign
from shoal_protocol.wire.encoding import Int64Vector, decode_clients
from shoal_studies.catalogue.linear_regression import LinearRegressionTask, query_for
from shoal_studies.study_request import StudyRequest
from tests.world import examples
from tests.world.adding import added
from tests.world.chance import fixed_bytes
from tests.world.clock import HandMovedClock, HandMovedTimer
from tests.world.examples import signing_key
from tests.world.lives import Life
from tests.world.parties import reachable
from tests.world.people import people
from tests.world.wire import Wire

NODES = 3
COLUMNS = ("age", "pressure")
TASK = LinearRegressionTask(
    features=(ColumnBounds(name="age", lower=0.0, upper=120.0),),
    target=ColumnBounds(name="pressure", lower=60.0, upper=200.0),
    method="plain",
    radius=3.0,  # the ball contains the box
    intercept=0.25,
    grid_bits=10,
)
PRIVACY = PrivacyDemand(epsilon=1.0, delta=1e-6, dropouts=2, colluders=2)
QUERY = query_for(TASK, 12, ())
POLICY = Policy(
    declare=False,  # the trainer played here takes no declarations
    analysts=("analyst",),
    queries=("second_moments", "second_moment_matrix"),
    columns=COLUMNS,
    maximum_epsilon=3.0,
    delta=1e-6,
    minimum_population=10,
    minimum_colluders=2,
    approval="automatic",
)


def no_noise(part: NoisePart, count: int) -> Int64Vector:
    return np.zeros(count, np.int64)


def records_for(clients: int) -> Records:
    values = np.column_stack([np.linspace(20.0, 90.0, clients), np.linspace(90.0, 160.0, clients)])
    return people(COLUMNS, values)


def problem(status: int, code: str, **headers: str) -> httpx.Response:
    body = {"type": f"urn:shoal:problem:{code}", "title": code, "status": status, "detail": code}
    return httpx.Response(status, json=body, headers=headers)


@dataclass
class FakeNode:
    """A Compute node that keeps envelopes, after checking signature and box."""

    index: int
    world: "World"
    box_key: PrivateKey = field(repr=False)
    held: dict[int, bytes] = field(default_factory=dict)  # by data holder
    bodies: list[bytes] = field(default_factory=list)
    queries: int = 0
    charged: list[RoundCharged] = field(default_factory=list)
    machine: Signed[ChargesQuery] | None = None  # by whose query it knows the one that counts

    def digest(self, holder: int) -> bytes:
        return envelope.envelope_digest(self.held[holder])

    def take(self, encoded: bytes) -> dict[str, Any]:
        parsed = received.parse(encoded)
        parsed.verify(self.world.consortium.roster.key_of(parsed.header.holder))
        parsed.open(bytes(self.box_key), bytes(self.box_key.public_key))
        assert parsed.header.node == self.index
        held = self.held.setdefault(parsed.header.holder, encoded)
        if held != encoded:
            return {"status": 409, "problem": {"type": "urn:shoal:problem:conflicting-document"}}
        return {"status": 201}

    def tell_charges(self, request: httpx.Request) -> httpx.Response:
        asked = decode(request.content, ChargesQuery)
        asked.verify_signature(self.world.key.verify_key)
        kept = self.machine
        if kept is None or kept.body.epoch < asked.body.epoch:
            self.machine = asked
        elif kept.body.machine != asked.body.machine:
            return httpx.Response(200, content=kept.encode())
        slots = self.world.book.current.roster.slots_of(asked.body.holder)
        name, end = f"compute-{self.index}", len(self.charged)
        after = int(request.url.params["after"])
        body = Charges(
            manifest=asked.body.manifest,
            node=name,
            nonce=asked.body.nonce,
            holder=asked.body.holder,
            after=after,
            through=end,
            head=end,
            rounds=tuple(
                each for each in self.charged[after:] if decode_clients(each.clients) & slots
            ),
        )
        signed = sign(body, name, signing_key(name))
        return httpx.Response(200, content=signed.encode())

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/charges":
            return self.tell_charges(request)
        if request.url.path.startswith("/v1/manifests/"):
            return httpx.Response(404)  # it knows no newer one
        if request.url.path.endswith("/stored"):
            self.queries += 1
            holder, digest = received.read_receipt_query(request.content)
            is_stored = holder in self.held and digest == self.digest(holder)
            return httpx.Response(200, json={"stored": is_stored})
        self.bodies.append(request.content)
        return httpx.Response(self.take(request.content)["status"])

    def share_of(self, holder: int) -> Any:
        parsed = received.parse(self.held[holder])
        return parsed.open(bytes(self.box_key), bytes(self.box_key.public_key))


@dataclass
class FakeTrainer:
    """A trainer that lists the jobs and shows the specs that it was given."""

    world: "World"
    requests: dict[str, bytes] = field(default_factory=dict)
    joined: dict[str, dict[int, bytes]] = field(default_factory=dict)  # by job and data holder
    specs: dict[tuple[str, int], bytes] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    queries: list[Signed[HolderQuery]] = field(default_factory=list)

    def take_join(self, value: Any) -> dict[str, Any]:
        signed = from_json(value, Membership)
        self.world.consortium.verify(signed)
        if signed.body.state == JOINED:
            self.joined.setdefault(signed.body.job, {})[signed.body.holder] = signed.encode()
        return {"status": 201}

    def answer(self, request: httpx.Request) -> httpx.Response:
        parts = request.url.path.strip("/").split("/")[1:]
        match parts:
            case ["declarations"]:
                return httpx.Response(201, json={})
            case ["jobs", "joining"]:
                query = decode(request.content, HolderQuery)
                self.queries.append(query)
                query.verify_signature(self.world.key.verify_key)
                listed = [{"job": job, "phase": "joining"} for job in self.requests]
                return httpx.Response(200, json={"jobs": listed})
            case ["jobs", job, "request"]:
                return httpx.Response(200, content=self.requests[job])
            case ["jobs", _, "memberships"]:
                return httpx.Response(self.take_join(json.loads(request.content))["status"])
            case ["jobs", job, "rounds", number]:
                if (job, int(number)) in self.specs:
                    return httpx.Response(200, content=self.specs[job, int(number)])
                if job in self.ended:
                    return problem(410, "wrong-phase")
                return httpx.Response(202)
        return problem(404, "not-found")


def vault_of(holder: DataHolder) -> Vault:
    """Return the vault of a data holder that has it in this process."""
    vault = holder.vault._vault
    assert isinstance(vault, Vault)
    return vault


def charged_on(state: State) -> list[tuple[str, str, int]]:
    """Return (round or contribution, job, client) of each charge in a holder's ledger, in order."""
    return [
        (each.what, each.job, client)
        for each in spending.charges(state.file)
        for client in each.clients
    ]


def state_of(holder: DataHolder) -> State:
    """Return the state behind a data holder that has its vault in this process."""
    return vault_of(holder)._state


class World:
    """The consortium, its services and the wire between them and the data holder."""

    def __init__(
        self,
        directory: Path,
        clients: int = 12,
        *,
        others: int = 0,
        queries: tuple[QueryName, ...] = ("second_moments", "second_moment_matrix"),
        maximum_local_epsilon: float | None = None,
        retention_days: int | None = None,
    ) -> None:
        """Give the data holder slots for `clients`, and another one slots for `others`."""
        self.directory = directory
        self.clock = HandMovedClock()
        self.key, self.clients = signing_key("holder"), clients
        self.records = records_for(clients)
        self.random_bytes = fixed_bytes("holder")
        holders = [(self.key.verify_key, clients), (signing_key("others").verify_key, others)]
        roster = roster_of(each for each in holders if each[1])
        self.consortium = reachable(
            NODES,
            of=roster,
            policy=examples.POLICY.model_copy(
                update={
                    "minimum_colluders": 0,
                    "minimum_threshold": 2,
                    "queries": queries,
                    "maximum_local_epsilon": maximum_local_epsilon,
                    "retention_days": retention_days,
                }
            ),
        )
        self.book = ManifestBook(self.consortium, directory / "manifests")
        self.trainer = FakeTrainer(self)
        self.nodes = [
            FakeNode(k, self, PrivateKey(examples.box_private_key(k))) for k in range(NODES)
        ]
        self.wire = Wire(lambda url: url.host.removesuffix(".example"))
        self.wire.played["trainer"] = lambda request: self.trainer.answer(request)
        self.wire.played |= {f"compute-{each.index}": each.answer for each in self.nodes}
        self.transport = self.wire.of(Life("holder"))

    def holder(self, name: str = "holder", **changes: Any) -> DataHolder:
        """Open the data holder of this name; the same name again is the same after a restart."""
        sources = {"noise": no_noise, "timer": HandMovedTimer()}
        for each in ("noise", "timer"):
            sources |= {each: changes.pop(each)} if each in changes else {}
        arguments: dict[str, Any] = {
            "key": self.key,
            "records": self.records,
            "policy": POLICY,
            "book": self.book,
            "data_directory": self.directory / name,
            "clock": self.clock,
            "random_bytes": self.random_bytes,
            "transport": self.transport,
        } | changes
        inside = Sources(clock=arguments["clock"], random_bytes=self.random_bytes, **sources)
        return DataHolder.inside(**({"sources": inside} | arguments))

    def submit(self, **changes: Any) -> Signed[StudyRequest]:
        """Have the trainer list a new job."""
        arguments: dict[str, Any] = {
            "manifest": self.consortium.digest,
            "nonce": self.random_bytes(16).hex(),
            "analyst": "analyst",
            "task": TASK,
            "privacy": PRIVACY,
            "minimum_population": 10,
            "maximum_population": 100,
            "join_deadline": self.clock() + timedelta(seconds=60),
            "round_seconds": 60,
            "grace_seconds": 60,
            "sharing": ADDITIVE,
        }
        arguments |= changes
        least, most = arguments["minimum_population"], arguments["maximum_population"]
        terms = arguments["task"].terms(least=least, most=most)
        request = StudyRequest(**({"terms": terms} | arguments))
        signed = sign(request, "analyst", signing_key("analyst"))
        self.trainer.requests[signed.digest] = signed.encode()
        return signed

    def announce(
        self,
        request: Signed[StudyRequest],
        number: int = 0,
        *,
        mu: float | None = None,
        **changes: Any,
    ) -> Signed[RoundSpec]:
        """Have the trainer show a round's spec."""
        arguments: dict[str, Any] = {
            "manifest": self.consortium,
            "job": request.digest,
            "number": number,
            "query": QUERY,
            "mechanism": request.body.privacy.mechanism,
            "cost": request.body.privacy.cost if mu is None else Cost.gaussian(mu),
            "population": BitMap(range(len(self.consortium.roster))),
            "dropouts": request.body.privacy.dropouts,
            "colluders": request.body.privacy.colluders,
            "opened_at": self.clock(),
            "deadline": self.clock() + timedelta(seconds=60),
            "give_up_at": self.clock() + timedelta(seconds=120),
            "sharing": request.body.sharing,
        }
        return self.show(make_spec(**(arguments | changes)))

    def show(self, spec: RoundSpec, *, signer: str = "trainer") -> Signed[RoundSpec]:
        """Have the trainer show a spec, signed by `signer`'s key."""
        signed = sign(spec, "trainer", signing_key(signer))
        self.trainer.specs[spec.job, spec.number] = signed.encode()
        return signed

    def total(self, holders: Sequence[int] = (0,), dimension: int = QUERY.dimension) -> Int64Vector:
        """Return the sum over all nodes and `holders` of what was sent, shape (dimension,)."""
        scheme = ADDITIVE
        sums = {
            index: added(scheme, [node.share_of(holder) for holder in holders], dimension)
            for index, node in enumerate(self.nodes)
        }
        return from_ring(summation.combine(scheme, sums, nodes=len(sums)).total)

"""Bytes and messages that agreeing on a cohort costs each node, at a million clients.

    python -m bench.gossip [--nodes 10] [--clients 1000000]

The nodes' own gossip, stores and decisions in one process; what carries their messages counts the
bytes. A hundredth of the clients drop out, and of the others each node misses a thousandth.
"""

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
import numpy as np
from pyroaring import BitMap

from bench.drive import Drive, matrix_query, quickstart
from shoal_compute import attesting, schema, store
from shoal_compute.decisions import CastVote, GiveUp, SumUp, decide
from shoal_compute.gossiping import Gossip
from shoal_compute.metrics import Metrics
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.store import Kept
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.party import load_party
from shoal_hosting.service import Resources
from shoal_protocol.rounds.attestations import StoredAnswers
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.received import OVERHEAD_BYTES
from shoal_protocol.sharing.shares import SEED_BYTES
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.encoding import encode_clients
from shoal_protocol.wire.phases import Phase

DROPPED_OUT = 0.01
MISSED_BY_A_NODE = 0.001


@dataclass
class Node:
    """What of a Compute node takes part in gossip."""

    known: Round
    gossip: Gossip
    own: Resources


class Wire(httpx.AsyncBaseTransport):
    """Hands each message to the node that has its address, and counts."""

    def __init__(self) -> None:
        self.takers: dict[str, tuple[str, Callable[[bytes], Awaitable[bytes]]]] = {}
        self.sent: Counter[str] = Counter()  # bytes, by node
        self.messages: Counter[str] = Counter()
        self.holdings: Counter[str] = Counter()

    def of(self, sender: str) -> httpx.AsyncBaseTransport:
        """Return the transport of one node."""
        return _Line(self, sender)


@dataclass
class _Line(httpx.AsyncBaseTransport):
    wire: Wire
    sender: str

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        receiver, take = self.wire.takers[str(request.url.copy_with(path="/", query=None))]
        reply = await take(request.content)
        for origin, body in ((self.sender, request.content), (receiver, reply)):
            self.wire.sent[origin] += len(body)
            self.wire.messages[origin] += 1
            self.wire.holdings[origin] += body.count(b'"kind":"holdings"')
        return httpx.Response(200, content=reply)


def held_by(nodes: int, population: BitMap) -> list[StoredAnswers]:
    """Return what each node holds: the same answers, for most clients at all nodes."""
    random = np.random.default_rng(1)
    clients = np.asarray(population.to_array())
    tags = random.integers(0, 1 << 32, clients.size).astype("<u4")
    answered = random.random(clients.size) >= DROPPED_OUT
    return [
        StoredAnswers(BitMap(clients[here]), tags[here].tobytes())
        for _ in range(nodes)
        for here in [answered & (random.random(clients.size) >= MISSED_BY_A_NODE)]
    ]


def set_up(directory: Path, nodes: int, clients: int, wire: Wire) -> list[Node]:
    """Return nodes that have just frozen a round of so many clients."""
    quickstart(directory, phones=clients, nodes=nodes)
    drive = Drive(directory)
    small = drive.spec(matrix_query(66), 4).body
    population = BitMap(range(1, clients + 1))
    body = small.model_copy(
        update={
            "population": encode_clients(population),
            "population_size": clients,
            "dropouts": clients // 20,
            "minimum_cohort": clients - clients // 20,
        }
    )
    trainer = load_party(directory / "parties" / "trainer")
    spec = sign(body, trainer.name, trainer.signing_key)
    held = held_by(nodes, population)
    return [
        _node(directory, drive, spec, name, each, wire)
        for name, each in zip(body.compute_nodes, held, strict=True)
    ]


def _node(
    directory: Path,
    drive: Drive,
    spec: Signed[RoundSpec],
    name: str,
    held: StoredAnswers,
    wire: Wire,
) -> Node:
    party = load_party(directory / "parties" / name)
    data = directory / "data" / f"gossip-{name}"
    data.mkdir(parents=True)
    own = Resources.open(
        schema,
        alone=True,
        party=party,
        book=ManifestBook(drive.consortium, data),
        data_directory=data,
        database_url=None,
        clock=lambda: spec.body.deadline,  # the round takes no time by it
        transport=wire.of(name),
    )
    own.storage.run_here(store.add_round, spec)
    metrics = Metrics(own.registry, own.clock)
    rounds = RoundBook(own, metrics)
    [known] = rounds.live.values()
    _, signed = own.storage.run_here(
        store.freeze,
        known.id,
        Phase.ANNOUNCED,
        lambda _: attesting.attest_holdings(known, held, party.signing_key),
    )
    known.phase, known.held = Phase.FROZEN, held.holders
    known.learn(signed, Kept.FIRST)
    gossip = Gossip(own, rounds, metrics, lambda: False)  # votes are cast below
    wire.takers[f"{drive.service(name).url}/"] = (name, gossip.receive)
    return Node(known, gossip, own)


async def agree(nodes: Sequence[Node], now: datetime) -> None:
    """Let the nodes gossip until each has all votes."""
    while not all(isinstance(decide(each.known, now), SumUp) for each in nodes):
        for node in nodes:
            decision = decide(node.known, now)
            if isinstance(decision, GiveUp):
                raise RuntimeError(f"{node.own.name} gave up: {decision.reason.code}")
            if isinstance(decision, CastVote):
                vote = attesting.attest_vote(
                    node.known, decision.nodes, decision.cohort, node.own.party.signing_key
                )
                await node.own.storage.run(store.cast, node.known.id, vote)
                node.known.learn(vote, Kept.FIRST)
        due = [(node, node.gossip.due(busy=lambda _: False)) for node in nodes]
        for node, messages in due:
            for name, message in messages.items():
                await node.gossip.exchange(name, message)


async def measure(directory: Path, nodes: int, clients: int) -> dict[str, float]:
    """Return the figures of one round."""
    wire = Wire()
    made = set_up(directory, nodes, clients, wire)
    begun = time.perf_counter()
    await agree(made, made[0].known.spec.body.deadline)
    seconds = time.perf_counter() - begun
    bitmaps = sum(len(encode_clients(each.known.holdings[each.known.own].holders)) for each in made)
    for node in made:
        await node.own.close()
    sent = sum(wire.sent.values()) / nodes
    envelopes = clients * (1 - DROPPED_OUT) * (OVERHEAD_BYTES + SEED_BYTES)
    return {
        "bytes that a node sends": sent,
        "of them in holdings, documents": sum(wire.holdings.values()) / nodes,
        "messages and answers of a node": sum(wire.messages.values()) / nodes,
        "of bare bitmaps in base64": sent / (bitmaps / nodes * (nodes - 1)),
        "of the envelopes that a node takes in, seeds": sent / envelopes,
        "seconds, all nodes in one process": seconds,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--clients", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(measure(Path(directory), arguments.nodes, arguments.clients))
    for name, value in found.items():
        print(f"{name:50}{value:>16,.3f}")


if __name__ == "__main__":
    main()

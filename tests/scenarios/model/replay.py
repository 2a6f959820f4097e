"""Takes the real services along a trace, and compares them with the model after every step.

Nodes and the aggregator are the assemblies that their processes run, over files. Each node is
killed and assembled again before each of its steps, its clock shows what the trace says, and it
is given the documents that the trace says, over HTTP.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shoal_aggregator import assembly as aggregator
from shoal_aggregator import store
from shoal_compute import attesting
from shoal_compute import node as node_module
from shoal_compute.assembly import Service
from shoal_compute.decisions import Decision, decide
from shoal_compute.rounds import Round
from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.rounds.attestations import Abandonment, PartialSum, Result, cohort_digest
from shoal_protocol.sharing.shares import from_ring
from shoal_protocol.wire.documents import Signed, from_json, sign
from shoal_protocol.wire.phases import Phase
from shoal_protocol.wire.vectors import decode_uint64
from tests.scenarios.model.machine import Action, Collected, Machine, Node, State
from tests.scenarios.model.traces import Trace
from tests.scenarios.model.world import SECONDS, Cohort, Stage, World, attempt_of, summed
from tests.world import around_node, examples
from tests.world.adding import added
from tests.world.around_node import envelopes, expected
from tests.world.examples import OPENED_AT, PLACE, signing_key
from tests.world.parties import party
from tests.world.wire import Fault, Rule


class Collector:
    """The aggregator of one world, over an empty directory."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.stage: Stage = "open"
        directory.mkdir(parents=True, exist_ok=True)
        self.service = aggregator.assemble(
            party=party("aggregator", world.consortium),
            book=ManifestBook(world.consortium, directory),
            data_directory=directory,
            database_url=None,
            clock=lambda: OPENED_AT + timedelta(seconds=SECONDS[self.stage]),
        )
        self.app = self.service.app

    async def close(self) -> None:
        await self.service.close()

    async def announce(self) -> None:
        reply = await self.ask("POST", "", self.world.spec.encode())
        assert reply.status_code == 201, reply.text

    async def offer(self, node: int, cohort: Cohort) -> bool:
        """Offer a node's sum over `cohort`, or its abandonment; return whether it was taken."""
        if cohort:
            signed: Signed[Any] = self._sum_of(node, cohort)
        else:
            signed = self.world.abandonment(node)
        reply = await self.ask("POST", "/ends", signed.encode())
        return reply.status_code in (200, 201)

    async def end(self) -> None:
        """Let the aggregator decide, after `give_up_at`."""
        self.stage = "over"
        await self.service.step()

    def _sum_of(self, node: int, cohort: Cohort) -> Signed[PartialSum]:
        """Return the partial sum over these clients' answers that is due of a node."""
        known = self.world.blank(node, Phase.FROZEN, (0,) * self.world.clients)
        shares = []
        for client, answer in cohort:
            sent = envelopes(self.world.spec.body, client, attempt=attempt_of(answer))
            envelope = known.intake.parse(sent[node])
            shares.append(envelope.open(known.intake.box_private_key, known.intake.box_key))
        total = added(known.spec.body.sharing, shares, self.world.spec.body.dimension)
        charge = examples.charge(self.world.spec.body, known.own)
        body = attesting.partial_sum(known, summed(cohort), total, charge, PLACE)
        return sign(body, known.own, signing_key(known.own))

    async def settle(self, collected: Collected) -> None:
        """Take the step that ends a round which too many nodes gave up."""
        if collected.phase == "abandoned":
            await self.service.step()

    async def compare(self, collected: Collected) -> None:
        """Compare what the aggregator tells with the model's; it may be asked at any time."""
        run, round_id = self.service.resources.storage.run, self.world.spec.digest
        kept = await run(store.count_sums, round_id)
        assert kept == sum(map(bool, collected.sums)), (kept, collected)
        await self.settle(collected)
        reply = await self.ask("GET", "/outcome")
        is_open = collected.phase == "open"
        assert reply.status_code == (202 if is_open else 200), (reply.text, collected)
        end = None if is_open else from_json(reply.json()["documents"][0], Result, Abandonment)
        if end is not None:
            assert isinstance(end.body, Result) == (collected.phase == "published"), collected
        if end is not None and isinstance(end.body, Result):
            result = end.body
            cohort = collected.most[1]
            assert result.cohort == cohort_digest(self.world.spec.digest, summed(cohort))
            values = from_ring(decode_uint64(result.values))
            assert np.array_equal(values, expected(self.world.spec.body, dict(cohort)))

    async def ask(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        """Call the aggregator as somebody outside would."""
        if method == "POST" and not path:
            where = "/v1/rounds"
        else:
            where = f"/v1/rounds/{self.world.spec.digest}{path}"
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="https://aggregator") as client:
            return await client.request(method, where, content=content)


class Replay(around_node.Federation):
    """The services of one world, taken along one trace."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world = world
        self.opening = Machine(world).start
        self.stages: list[Stage] = ["open"] * world.nodes
        self.collector = Collector(world, directory / "aggregator")
        super().__init__(directory, trust=world.consortium)
        self.requests[world.request.digest] = world.request.encode()

    def start_aggregator(self, directory: Path) -> aggregator.Service:
        return self.collector.service

    def _assemble(self, node: int) -> Service:
        service = self.start(node, self.directory / f"{node}", clock=self._clock(node))
        self.take_place(self.names[node], service)
        return service

    def _clock(self, party: int) -> Callable[[], datetime]:
        return lambda: OPENED_AT + timedelta(seconds=SECONDS[self.stages[party]])

    async def along(self, trace: Trace) -> None:
        """Take every step of the trace and compare.

        Raises:
            AssertionError: the services are not where the model is.
        """
        spec = self.world.spec
        await self.announce(spec, self.world.honest)
        state = self.opening
        for action, after in trace:
            with one_decision():
                await self._take(action, state)
            await self._compare(after)
            state = after

    async def _take(self, action: Action, before: State) -> None:
        self.wire.rules = [Rule(Fault.LOST)]
        node = action.node
        if action.kind == "end":
            await self.collector.end()
        elif node not in self.world.honest:
            await self._lie(action)
        else:
            self.crash(node)
            if action.kind == "decide":
                await self._prepare(action)
            elif action.kind == "call_off" and before.nodes[node].phase is not Phase.AGREED:
                outcome = await self.collector.ask("GET", "/outcome")
                [abandonment] = outcome.json()["documents"]
                await self.gossip(node, [from_json(abandonment, Abandonment)])
            else:
                self.wire.rules = [Rule(Fault.LOST, receiver=name) for name in self.names]
                if action.kind == "store":
                    self.wire.rules.append(Rule(Fault.ANSWER_LOST, receiver="aggregator"))
            await self.step([node])

    async def _prepare(self, action: Action) -> None:
        """Let a node know what it knows when it decides."""
        node, view = action.node, action.view
        if view.phase in (Phase.ANNOUNCED, Phase.COLLECTING):
            self.stages[node] = "open"
            for client, answer in enumerate(view.held):
                if answer:
                    envelope = envelopes(self.world.spec.body, client, attempt=attempt_of(answer))[
                        node
                    ]
                    reply = await self.upload(node, self.world.spec, envelope)
                    assert reply.status_code in (200, 201), reply.text
        self.stages[node] = action.stage
        documents: list[Signed[Any]] = []
        for other in range(self.world.nodes):
            if other != node and view.holdings[other]:
                documents.append(self.world.holdings(other, view.holdings[other]))
            if other != node and view.votes[other]:
                documents.append(self.world.vote(other, view.votes[other]))
        await self.gossip(node, documents)

    async def _lie(self, action: Action) -> None:
        """Send the aggregator what the liar signs: a sum that is right, or an abandonment."""
        assert await self.collector.offer(action.node, action.cohort)

    async def _compare(self, state: State) -> None:
        """Compare what the services have on file with the model's state."""
        for node, kept in enumerate(state.nodes):
            phase = (await self.state(node, self.world.spec))["phase"]
            before = {Phase.ANNOUNCED, Phase.COLLECTING}
            assert phase == kept.phase or {phase, kept.phase} <= before, (node, phase, kept)
            documents = await self.documents(node, self.world.spec)
            own = {_told(each) for each in documents if each.signer == self.world.name(node)}
            assert own == self._due(node, kept), (node, own, kept)
        if state.aggregator is not None:
            await self.collector.compare(state.aggregator)

    def _due(self, node: int, kept: Node) -> set[tuple[str, str]]:
        """Return the documents that the node must have signed, by kind and digest."""
        made = {("abandonment", "") for _ in kept.made("abandonment")}
        made |= {_told(self.world.holdings(node, held)) for held in kept.made("holdings")}
        return made | {_told(self.world.vote(node, ballot)) for ballot in kept.made("vote")}


@contextmanager
def one_decision() -> Iterator[None]:
    """Let a node carry out one decision and no more, as if it were killed right after it."""
    decided: list[Decision] = []

    def once(known: Round, now: datetime) -> Decision | None:
        if decided:
            return None
        decision = decide(known, now)
        if decision is not None:
            decided.append(decision)
        return decision

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_module, "decide", once)
        yield


def _told(signed: Signed[Any]) -> tuple[str, str]:
    """Return a document's kind and digest, wherever in its journal it stands.

    Of an abandonment the reason does not count.
    """
    kind = signed.body.kind
    placed = signed.body.model_copy(update={"entry": PLACE})
    return kind, "" if kind == "abandonment" else placed.digest

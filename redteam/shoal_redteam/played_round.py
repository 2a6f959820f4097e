"""Plays a round's trainer and clients against the real services, so every answer is known.

A round is fair unless an attack makes it otherwise.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from pyroaring import BitMap

from shoal_holder.contribution import box_keys, draw_noise, seal_contribution
from shoal_holder.noise import exact_noise
from shoal_kit.outcome import OK
from shoal_kit.peers.exchange import Reply
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.queries import Column, Mechanism, Query, SecondMomentMatrix, SecondMoments
from shoal_protocol.rounds.attestations import (
    Abandonment,
    PartialSum,
    Result,
    RoundDocument,
    StoredAnswers,
    cohort_digest,
)
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import ANSWER_BYTES, frame
from shoal_protocol.sharing.received import parse
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing
from shoal_protocol.sharing.shares import from_ring
from shoal_protocol.wire.documents import Signed, from_json
from shoal_protocol.wire.encoding import Int64Vector
from shoal_protocol.wire.errors import ProtocolError, UnknownRound
from shoal_protocol.wire.vectors import decode_uint64
from shoal_redteam.findings import CannotAttack
from shoal_redteam.requests import request_for
from shoal_redteam.target import BYTES, DROPOUTS, Target

PRICE: Final = 1 / 1600  # of a client's budget, for each round
OPEN_SECONDS: Final = 30.0  # for answers; a round in which all have answered ends at once
SHORT_SECONDS: Final = 4.0  # of a round whose deadline is awaited
GRACE_SECONDS: Final = 20.0
PATIENCE_SECONDS: Final = 15.0  # beyond what the services may take


@dataclass(frozen=True)
class Contribution:
    """One client's answer: what it says, and its envelope for each node."""

    vector: Int64Vector = field(repr=False)
    envelopes: list[bytes] = field(repr=False)

    @property
    def answer(self) -> bytes:
        """Return the answer id that all its envelopes bear."""
        return parse(self.envelopes[0]).header.answer


@dataclass
class PlayedRound:
    """One round, and what its clients have sent in it."""

    target: Target
    signed: Signed[RoundSpec]
    sent: dict[int, Contribution] = field(default_factory=dict)

    @property
    def spec(self) -> RoundSpec:
        """Return the spec."""
        return self.signed.body

    @property
    def path(self) -> str:
        """Return the round's path at a node and at the aggregator."""
        return f"/v1/rounds/{self.signed.digest}"

    @property
    def clients(self) -> list[int]:
        """Return the population."""
        return list(self.spec.clients())

    def contribution(self, client: int, *, vector: Int64Vector | None = None) -> Contribution:
        """Make a client's answer, with `vector` instead of its record and noise if there is one."""
        target, spec = self.target, self.spec
        record = np.zeros((1, len(spec.query.column_names)))
        values = spec.query.encode(record)
        if vector is None:
            [vector] = values + draw_noise(spec, 1, exact_noise)
        envelopes = seal_contribution(
            spec,
            box_keys(target.consortium),
            target.holder(client),
            target.keys.clients[client],
            values,
            vector - values,
            random_bytes=target.random_bytes,
        )
        return Contribution(vector, envelopes)

    async def announce(self, names: Iterable[str] | None = None) -> dict[str, Reply]:
        """Announce the round to all services that take rounds, or to some."""
        named = (*self.target.nodes, self.target.aggregator) if names is None else names
        return await self.target.announce(named, self.signed.encode(), job=self.spec.job)

    async def upload(self, node: int, envelope: bytes) -> Reply:
        """Send one envelope to a node, by its index."""
        return await self.target.send(
            self.target.nodes[node], f"{self.path}/shares", envelope, BYTES
        )

    async def answer(self, clients: Iterable[int]) -> None:
        """Have clients answer honestly, at every node.

        Raises:
            CannotAttack: a node does not take an honest answer.
        """
        made = {client: self.contribution(client) for client in clients}
        self.sent |= made
        for node, name in enumerate(self.target.nodes):
            body = frame(each.envelopes[node] for each in made.values())
            answer = await self.target.send(name, f"{self.path}/shares/bulk", body, BYTES)
            outcomes = answer.json().get("outcomes", [{}]) if answer.status == OK else [{}]
            if any(each.get("status") not in (200, 201) for each in outcomes):
                raise CannotAttack(f"{name} does not take honest answers: {answer.code}")

    async def phase(self, name: str) -> str:
        """Return in which phase a node has the round, or the refusal's code."""
        answer = await self.target.ask(name, self.path)
        return answer.code if answer.is_refusal else str(answer.json()["phase"])

    async def reason(self, name: str) -> str:
        """Return why a node abandoned the round, or in which phase it has it."""
        answer = await self.target.ask(name, self.path)
        return (
            answer.code
            if answer.is_refusal
            else str((answer.json()["failure"] or {}).get("code", answer.json()["phase"]))
        )

    async def outcome(self) -> Signed[RoundDocument]:
        """Wait for the round's end; return the result or the abandonment, verified.

        Raises:
            CannotAttack: it says nothing in time, or nothing that it signed.
        """
        target, aggregator = self.target, self.target.aggregator

        async def is_over() -> bool:
            return (await target.ask(aggregator, f"{self.path}/outcome")).status == OK

        left = (self.spec.give_up_at - target.clock()).total_seconds()
        await target.until(is_over, "the end of a round", seconds=left + PATIENCE_SECONDS)
        answer = await target.ask(aggregator, f"{self.path}/outcome")
        try:
            [end, *_] = answer.json()["documents"]
            signed: Signed[RoundDocument] = from_json(end, Result, Abandonment)
            target.consortium.verify(signed)
        except ProtocolError as error:
            raise CannotAttack(f"the aggregator's word does not verify: {error}") from error
        return signed

    async def until_frozen(self) -> None:
        """Wait until every node takes no more shares."""

        async def all_frozen() -> bool:
            phases = [await self.phase(name) for name in self.target.nodes]
            return not {"announced", "collecting"} & set(phases)

        left = (self.spec.deadline - self.target.clock()).total_seconds()
        await self.target.until(all_frozen, "the freeze", seconds=max(left, 0) + PATIENCE_SECONDS)

    async def until_over(self) -> None:
        """Wait until every node that took the round has published its sum or abandoned it."""

        async def all_over() -> bool:
            phases = {await self.phase(name) for name in self.target.nodes}
            return phases <= {"published", "abandoned", UnknownRound.code}

        left = (self.spec.give_up_at - self.target.clock()).total_seconds()
        await self.target.until(all_over, "the end at every node", seconds=left + PATIENCE_SECONDS)

    def is_exactly(self, released: Signed[Any], clients: Iterable[int]) -> bool:
        """Tell whether what was released is the sum of what these clients sent, and no more."""
        cohort = sorted(clients)
        body = released.body
        if not isinstance(body, Result) or body.cohort_size != len(cohort):
            return False
        if body.cohort != self.cohort_digest(cohort):
            return False
        total = from_ring(decode_uint64(body.values))
        return bool((total == sum(self.sent[client].vector for client in cohort)).all())

    def cohort_digest(self, clients: Iterable[int]) -> str:
        """Return the digest of a cohort of clients, with the answers that they sent, if any."""
        answers = [
            (
                self.target.holder(client),
                self.sent[client].answer if client in self.sent else bytes(ANSWER_BYTES),
            )
            for client in clients
        ]
        return cohort_digest(self.signed.digest, StoredAnswers.of(sorted(answers)))

    async def released_exactly(self, clients: Iterable[int]) -> bool:
        """Wait for the round's end, and tell whether exactly these clients' sum was released."""
        return self.is_exactly(await self.outcome(), clients)

    async def documents(self, node: str) -> list[Any]:
        """Return what a node shows of what was signed about the round."""
        answer = await self.target.ask(node, f"{self.path}/documents")
        return [] if answer.is_refusal else list(answer.json()["documents"])

    async def partial_sums(self) -> list[Signed[PartialSum]]:
        """Return the partial sums that the aggregator shows; none before the result."""
        answer = await self.target.ask(self.target.aggregator, f"{self.path}/outcome")
        if answer.status != OK:
            return []
        [_, *sums] = json.loads(answer.body)["documents"]
        return [from_json(value, PartialSum) for value in sums]


def query_of(target: Target) -> Query:
    """Return a small query that the policy allows, of made-up columns."""
    columns = tuple(Column(name=name, centre=0.0, scale=1.0) for name in ("first", "second"))
    kinds: dict[str, type[SecondMoments] | type[SecondMomentMatrix]] = {
        "second_moments": SecondMoments,
        "second_moment_matrix": SecondMomentMatrix,
    }
    for name in target.consortium.manifest.policy.queries:
        if name in kinds:
            return kinds[name](
                columns=columns, intercept=1.0, radius=None, grid_bits=10, records_per_client=1
            )
    raise CannotAttack("the policy allows no query that the red team knows")


def mechanism_of(target: Target) -> Mechanism:
    """Return a mechanism that the policy allows."""
    allowed = target.consortium.manifest.policy.mechanisms
    return "discrete_gaussian" if "discrete_gaussian" in allowed else allowed[0]


def cost_of(target: Target, share: float) -> Cost:
    """Return what a round costs that takes this share of a client's whole budget."""
    cap = target.consortium.manifest.policy.cap
    if mechanism_of(target) == "discrete_laplace":
        return Cost.pure(share * cap.epsilon)
    return cap.part(share)


def honest_spec(
    target: Target,
    *,
    clients: Iterable[int] | None = None,
    seconds: float = OPEN_SECONDS,
    grace: float = GRACE_SECONDS,
    price: float = PRICE,
    cost: Cost | None = None,
    dropouts: int = DROPOUTS,
    sharing: Sharing = ADDITIVE,
    query: Query | None = None,
    job: str | None = None,
    number: int = 0,
) -> RoundSpec:
    """Return a spec that the policy allows, over `clients` or the crew, for `price` of a budget.

    `cost` is there instead of the price.

    Raises:
        CannotAttack: the policy allows none.
    """
    policy = target.consortium.manifest.policy
    now, asked, mechanism = target.after(0.0), query or query_of(target), mechanism_of(target)
    try:
        if job is None:
            request = request_for(
                target.consortium,
                asked,
                analyst=target.analyst,
                nonce=target.random_bytes(16).hex(),
                mechanism=mechanism,
                dropouts=dropouts,
                colluders=policy.minimum_colluders,
                sharing=sharing,
                opened_at=now,
            )
            job = target.ask_for(target.sign(request, target.analyst))
        return make_spec(
            manifest=target.consortium,
            job=job,
            number=number,
            query=asked,
            mechanism=mechanism,
            cost=cost_of(target, price) if cost is None else cost,
            population=BitMap(target.crew if clients is None else clients),
            dropouts=dropouts,
            colluders=policy.minimum_colluders,
            opened_at=now,
            deadline=target.after(seconds),
            give_up_at=target.after(seconds + grace),
            sharing=sharing,
        )
    except ValueError as error:
        raise CannotAttack(f"no round can be made: {error}") from error


async def begin(target: Target, spec: RoundSpec | None = None, **wishes: Any) -> PlayedRound:
    """Announce a round that everybody takes: an honest one, or `spec`.

    Raises:
        CannotAttack: a service refuses it, for instance because a budget is spent.
    """
    chosen = honest_spec(target, **wishes) if spec is None else spec
    played = PlayedRound(target, target.sign(chosen, target.trainer))
    for name, answer in (await played.announce()).items():
        if answer.is_refusal:
            raise CannotAttack(f"{name} refuses an honest round: {answer.reason}")
    return played

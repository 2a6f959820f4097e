"""A round to be explored: its parties and spec, and the real decision for any state of a node.

It knows how a compact state becomes the `Round` that the product decides on, and nothing of how
states follow one another.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, cached_property
from itertools import product
from typing import Any, Literal, NamedTuple

from pyroaring import BitMap

from shoal_compute import attesting
from shoal_compute.decisions import CallOff, CastVote, Freeze, GiveUp, SumUp, decide
from shoal_compute.rounds import Round, open_round
from shoal_compute.store import Kept, SignedAttestation
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.rounds.attestations import AbandonmentReason, StoredAnswers, cohort_digest
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import ADDITIVE, ThresholdSharing
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.phases import Phase
from tests.world import around_node, examples
from tests.world.examples import OPENED_AT, PLACE, signing_key
from tests.world.parties import party, reachable

Answers = tuple[int, ...]  # which of its answers each client's share is of; 0: no share
Cohort = tuple[tuple[int, int], ...]  # clients, ascending, with the answer that is summed

AGGREGATOR = -1  # among nodes
SECONDS = {"open": 0, "closed": 60, "late": 76, "over": 90}
Stage = Literal["open", "closed", "late", "over"]
STAGES: tuple[Stage, ...] = ("open", "closed", "late", "over")


class Ballot(NamedTuple):
    """What a vote says."""

    cohort: Cohort
    nodes: tuple[int, ...]  # ascending


class View(NamedTuple):
    """All that a node's decision depends on; every entry is durable but for the time."""

    phase: Phase
    held: Answers
    holdings: tuple[Answers, ...]  # by node; () is unknown
    votes: tuple[Ballot | tuple[()], ...]  # by node; () is unknown
    abandonments: frozenset[int] = frozenset()  # of nodes, or AGGREGATOR
    equivocation: bool = False


class Outcome(NamedTuple):
    """A decision: freeze, vote, sum, give_up or call_off."""

    kind: str
    ballot: Ballot | None = None
    detail: str = ""


@dataclass(frozen=True)
class World:
    """A round with its parties. The last node is the liar, if there is one."""

    nodes: int
    answers: Answers  # how many different answers each client has sent
    dropouts: int
    needed: int | None = None  # under threshold sharing; None is additive sharing
    liar: bool = False
    aggregator: Literal["honest", "colluding"] = "honest"
    # what holdings have in common, found out once for all rounds in which they are known
    _intersections: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    _decided: dict[Any, Outcome | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def clients(self) -> int:
        return len(self.answers)

    @property
    def honest(self) -> range:
        return range(self.nodes - self.liar)

    @property
    def threshold(self) -> int:
        return self.needed or self.nodes

    @property
    def minimum_cohort(self) -> int:
        return self.clients - self.dropouts

    @cached_property
    def consortium(self) -> Any:
        lax = {"minimum_cohort": 2, "minimum_threshold": 2, "minimum_colluders": 0}
        policy = examples.POLICY.model_copy(update=lax)
        return reachable(self.nodes, policy=policy)

    @cached_property
    def _rules(self) -> dict[str, Any]:
        sharing = ThresholdSharing(threshold=self.needed) if self.needed else ADDITIVE
        return {"dropouts": self.dropouts, "colluders": 0, "sharing": sharing}

    @cached_property
    def request(self) -> Signed[JobRequest]:
        return around_node.job_for(self.consortium, **self._rules)

    @cached_property
    def spec(self) -> Signed[RoundSpec]:
        body = examples.spec(
            manifest=self.consortium,
            job=self.request.digest,
            population=BitMap(range(self.clients)),
            **self._rules,
        )
        return sign(body, "trainer", signing_key("trainer"))

    @cached_property
    def possible_answers(self) -> tuple[Answers, ...]:
        """Return everything that a node may hold, or say that it holds."""
        return tuple(product(*(range(count + 1) for count in self.answers)))

    @property
    def cohorts(self) -> list[Cohort]:
        """Return everything that a vote or a sum may be over."""
        return [agreement([each]) for each in self.possible_answers]

    def digest(self, cohort: Cohort) -> str:
        return _digest(self, cohort)

    def name(self, node: int) -> str:
        return "aggregator" if node < 0 else f"compute-{node}"

    @cached_property
    def _blank(self) -> tuple[Round, ...]:
        parties = (party(f"compute-{node}", self.consortium) for node in range(self.nodes))
        return tuple(
            open_round(self.spec, BitMap(), self.consortium, each, phase=Phase.FROZEN)
            for each in parties
        )

    def blank(self, own: int, phase: Phase, held: Answers) -> Round:
        """Return the round at a node that knows no document."""
        known = self._blank[own]
        return Round(
            own=known.own,
            spec=known.spec,
            consortium=known.consortium,
            intake=known.intake,
            phase=phase,
            reported=False,
            erased=False,
            held=_clients(held),
        )

    def round(self, own: int, view: View) -> Round:
        """Return the product's own view of what a node knows, as learning it would make it."""
        known = self.blank(own, view.phase, view.held)
        known._cohorts, known._digests = self._intersections.setdefault(view.holdings, ({}, {}))
        for node in range(self.nodes):
            name = self.name(node)
            if view.holdings[node]:
                known.holdings[name] = held_of(view.holdings[node])
            ballot = view.votes[node]
            if ballot:
                known.votes[name] = self.vote(node, ballot).body
        for node in view.abandonments:
            known.abandonments[self.name(node)] = self.abandonment(node).body
        known.equivocation = view.equivocation
        return known

    def learned(self, own: int, view: View) -> Round:
        """Return the same from signed documents, one after another: slow, to compare with."""
        known = self.blank(own, view.phase, view.held)
        for node in range(self.nodes):
            if view.holdings[node]:
                known.learn(self.holdings(node, view.holdings[node]), Kept.FIRST)
            ballot = view.votes[node]
            if ballot:
                known.learn(self.vote(node, ballot), Kept.FIRST)
        for node in view.abandonments:
            known.learn(self.abandonment(node), Kept.FIRST)
        known.equivocation = view.equivocation
        return known

    def decide(self, own: int, view: View, stage: Stage) -> Outcome | None:
        """Return what the product decides."""
        key = (own, view, stage)
        if key not in self._decided:
            now = OPENED_AT + timedelta(seconds=SECONDS[stage])
            self._decided[key] = _outcome(self, decide(self.round(own, view), now), own, view)
        return self._decided[key]

    @property
    def decisions(self) -> int:
        """Return how many different decisions were asked for."""
        return len(self._decided)

    def holdings(self, node: int, answers: Answers) -> SignedAttestation:
        return _holdings(self, node, answers)

    def vote(self, node: int, ballot: Ballot) -> SignedAttestation:
        return _vote(self, node, ballot)

    def abandonment(self, node: int) -> SignedAttestation:
        return _abandonment(self, node)

    def __hash__(self) -> int:
        facts = (self.nodes, self.answers, self.dropouts, self.needed, self.liar, self.aggregator)
        return hash(facts)


def agreement(held: list[Answers]) -> Cohort:
    """Return the clients of whom all hold a share of one and the same answer, with that."""
    return tuple(
        (client, answers[0])
        for client, answers in enumerate(zip(*held, strict=True))
        if min(answers) > 0 and len(set(answers)) == 1
    )


@cache
def _clients(answers: Answers) -> BitMap:
    return BitMap(client for client, answer in enumerate(answers) if answer)


@cache
def held_of(answers: Answers) -> StoredAnswers:
    """Return what a node holds that has shares of these answers."""
    return StoredAnswers.of(
        (client, _answer_id(client, answer)) for client, answer in enumerate(answers) if answer
    )


def summed(cohort: Cohort) -> StoredAnswers:
    """Return a cohort as the product has it."""
    return StoredAnswers.of((client, _answer_id(client, answer)) for client, answer in cohort)


def _cohort(world: World, cohort: StoredAnswers) -> Cohort:
    tags = cohort.tags_of(cohort.holders).tolist()
    return tuple(
        (client, answer)
        for client, tag in zip(cohort.holders, tags, strict=True)
        for answer in range(1, world.answers[client] + 1)
        if summed(((client, answer),)).tags_of(BitMap([client])).tolist() == [tag]
    )


def _answer_id(client: int, answer: int) -> bytes:
    return examples.answer_id(client, attempt_of(answer))


def attempt_of(answer: int) -> str:
    """Return the label under which a client's answer is made."""
    return f"number {answer}"


def _outcome(world: World, decision: object, own: int, view: View) -> Outcome | None:
    if isinstance(decision, Freeze):
        return Outcome("freeze")
    if isinstance(decision, CastVote):
        nodes = tuple(int(name.removeprefix("compute-")) for name in decision.nodes)
        return Outcome("vote", Ballot(_cohort(world, decision.cohort), nodes))
    if isinstance(decision, SumUp):
        return Outcome("sum", view.votes[own]._replace(cohort=_cohort(world, decision.cohort)))
    if isinstance(decision, GiveUp):
        return Outcome("give_up", detail=decision.reason.code)
    if isinstance(decision, CallOff):
        return Outcome("call_off")
    return None


@cache
def _digest(world: World, cohort: Cohort) -> str:
    return cohort_digest(world.spec.digest, summed(cohort))


@cache
def _holdings(world: World, node: int, answers: Answers) -> SignedAttestation:
    known = world.blank(node, Phase.FROZEN, answers)
    return sign(
        attesting.holdings(known, held_of(answers), PLACE), known.own, signing_key(known.own)
    )


@cache
def _vote(world: World, node: int, ballot: Ballot) -> SignedAttestation:
    known = world.blank(node, Phase.FROZEN, (0,) * world.clients)
    nodes = [world.name(each) for each in ballot.nodes]
    body = attesting.vote(known, nodes, summed(ballot.cohort), PLACE)
    return sign(body, known.own, signing_key(known.own))


@cache
def _abandonment(world: World, node: int) -> SignedAttestation:
    known = world.blank(max(node, 0), Phase.FROZEN, (0,) * world.clients)
    body = attesting.abandonment(known, AbandonmentReason(code="votes_missing"), PLACE)
    name = world.name(node)
    return sign(body.model_copy(update={"party": name}), name, signing_key(name))

"""Decides what a node does next in a round, from the round's state and the time.

The same state always gives the same decision, so a node that restarts goes on where it was.
"""

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
from pyroaring import BitMap

from shoal_compute.rounds import Round
from shoal_protocol.rounds.attestations import AbandonmentReason, StoredAnswers, Vote
from shoal_protocol.wire.phases import FINISHED, Phase

_MOST_NAMED: Final = 3  # names of 64 characters leave room for what the aggregator puts before


@dataclass(frozen=True)
class Freeze:
    """Take no more shares and attest the holdings."""


@dataclass(frozen=True)
class CastVote:
    """Vote for the cohort, which the holdings of `nodes` have in common."""

    nodes: tuple[str, ...]
    cohort: StoredAnswers


@dataclass(frozen=True)
class SumUp:
    """Sum over the cohort, for which enough nodes voted."""

    cohort: StoredAnswers


@dataclass(frozen=True)
class GiveUp:
    """Abandon the round by this node's own decision."""

    reason: AbandonmentReason


@dataclass(frozen=True)
class CallOff:
    """Abandon the round, as the aggregator did."""

    reason: AbandonmentReason


Decision = Freeze | CastVote | SumUp | GiveUp | CallOff


def decide(known: Round, now: datetime) -> Decision | None:
    """Return what is due in the round, or None if it has to wait or has ended.

    Of t = `spec.threshold` nodes the partial sums make up a total; additive sharing is t = M. Up
    to `agreed` a node may give up by itself, for nothing of it is out. After that a partial sum
    may be, and only the aggregator can say that nothing was released.
    """
    if known.phase in FINISHED:
        return None
    called_off = known.abandonments.get(known.consortium.manifest.aggregator.name)
    if called_off is not None:
        return CallOff(called_off.reason)
    if known.phase is Phase.AGREED:
        return None
    reason = _reason_to_give_up(known, now)
    if reason is not None:
        return GiveUp(reason)
    if known.phase is Phase.FROZEN:
        return _sum(known) if known.own in known.votes else _vote(known, now)
    return Freeze() if _takes_no_more(known, now) else None


def _takes_no_more(known: Round, now: datetime) -> bool:
    """Tell whether to freeze: also on a slow clock, when waiting cannot add to the cohort."""
    spec = known.spec.body
    if now >= spec.deadline or len(known.held) == len(known.intake.asked_here):
        return True
    return (
        spec.sharing.committee is None
        and known.holdings.keys() >= set(known.peers)
        and known.cohort(known.peers).holders <= known.held
    )


def _reason_to_give_up(known: Round, now: datetime) -> AbandonmentReason | None:
    spec, frozen = known.spec.body, known.phase is Phase.FROZEN
    if known.equivocation:
        return AbandonmentReason(code="misconduct", detail="a node signed two different documents")
    if not frozen and (known.own in known.holdings or known.own in known.votes):
        # only a node that was set back to an older state can meet its own attestation
        return AbandonmentReason(code="misconduct", detail="this node has lost part of its state")
    standing = _standing(known, spec.compute_nodes)
    if known.own not in standing or len(standing) < spec.threshold:
        lost = _named(each for each in spec.compute_nodes if each in known.abandonments)
        return AbandonmentReason(code="called_off_by_node", detail=f"given up by {lost}")
    if _most_votes_to_come(known) < spec.threshold or not _may_all_agree(known):
        return AbandonmentReason(code="votes_differ")
    if now >= spec.give_up_at:
        if len(known.holdings) < len(spec.compute_nodes):
            lacking = _lacking(known, "no holdings from", known.holdings)
            return AbandonmentReason(code="holdings_missing", detail=lacking)
        lacking = _lacking(known, "no vote from", known.votes)
        return AbandonmentReason(code="votes_missing", detail=lacking)
    return None


def _lacking(known: Round, what: str, there: Container[str]) -> str:
    """Name the missing documents and their nodes; "" if none is missing."""
    names = [name for name in known.spec.body.compute_nodes if name not in there]
    return f"{what} {_named(names)}" if names else ""


def _holders_missing(known: Round, cohort: StoredAnswers) -> str:
    """Name data holders whose answers are missing; of one slot, which may be a person, none."""
    asked = known.intake.asked
    organisations = BitMap(np.asarray(asked.holders.to_array())[asked.counts > 1])
    missing = [str(holder) for holder in organisations - cohort.holders]
    return f"no answer of data holders {_named(missing)}" if missing else ""


def _named(names: Iterable[str]) -> str:
    """Name the first few, and count the rest."""
    listed = list(names)
    first, rest = listed[:_MOST_NAMED], listed[_MOST_NAMED:]
    return ", ".join(first) + (f" and {len(rest)} more" if rest else "")


def _standing(known: Round, names: Iterable[str]) -> list[str]:
    """Return those of these nodes that have not abandoned the round."""
    return [name for name in names if name not in known.abandonments]


def _most_votes_to_come(known: Round) -> int:
    """Return how many votes a cohort can get that this node voted, or may vote, for."""
    voted = [known.votes[name].cohort for name in _standing(known, known.votes)]
    yet_to_vote = len(_standing(known, known.spec.body.compute_nodes)) - len(voted)
    own = known.votes.get(known.own)
    candidates = set(voted) if own is None else {own.cohort}
    return yet_to_vote + max((voted.count(cohort) for cohort in candidates), default=0)


def _may_all_agree(known: Round) -> bool:
    """Tell whether this node's vote can have those of all nodes that have to publish with it."""
    own = known.votes.get(known.own)
    if own is None or known.spec.body.sharing.committee is None:
        return True
    others = [known.votes.get(name, own) for name in _standing(known, own.nodes)]
    return len(others) == len(own.nodes) and all(each.cohort == own.cohort for each in others)


def _is_to_begin(known: Round, nodes: tuple[str, ...], now: datetime) -> bool:
    """Tell whether this node may be the first to vote by the holdings of these nodes.

    With committees one vote that differs costs the round, so nobody begins beside another's vote.
    Where all holdings are here, all vote alike; else the first node begins, and each after it only
    if those before are silent.
    """
    spec = known.spec.body
    if spec.sharing.committee is None:
        return True
    if known.own not in nodes or _standing(known, known.votes):
        return False
    if len(nodes) == len(spec.compute_nodes):
        return True
    turns = (spec.give_up_at - spec.proceed_at) / (len(nodes) + 1)
    return now >= spec.proceed_at + turns * nodes.index(known.own)


def _vote(known: Round, now: datetime) -> Decision | None:
    """Vote as another node did if possible, else by the holdings that are here."""
    for vote in _votes_to_follow(known):
        if _may_be_followed(known, vote, now):
            return CastVote(vote.nodes, known.cohort(vote.nodes))
    spec, nodes = known.spec.body, known.in_order(known.holdings)
    if spec.sharing.committee is not None:
        nodes = known.in_order(_standing(known, nodes))
    if not _suffice(known, nodes, now):
        return None
    if not known.may_be_released(known.cohort(nodes)) and len(nodes) > spec.threshold:
        if now < spec.proceed_at:
            return None  # until then the nodes are not done without that hold too little
        nodes = _without_those_that_hold_little(known, nodes)
    if not _is_to_begin(known, nodes, now):
        return None
    if not known.may_be_released(known.cohort(nodes)):
        missing = _holders_missing(known, known.cohort(nodes))
        return GiveUp(AbandonmentReason(code="cohort_too_small", detail=missing))
    return CastVote(nodes, known.cohort(nodes))


def _without_those_that_hold_little(known: Round, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out other nodes, each time whose loss leaves the largest cohort, while it is small.

    A node that was away while clients sent is not to cost a round that can do without it.
    """
    while len(nodes) > known.spec.body.threshold and not known.may_be_released(known.cohort(nodes)):
        fewer = [tuple(name for name in nodes if name != out) for out in nodes if out != known.own]
        nodes = max(fewer, key=lambda each: known.size(known.cohort(each)))
    return nodes


def _votes_to_follow(known: Round) -> list[Vote]:
    """Return one vote for each cohort, the one with the most votes first."""
    votes = {known.votes[name].cohort: known.votes[name] for name in _standing(known, known.votes)}
    supporters = Counter(known.votes[name].cohort for name in _standing(known, known.votes))
    return [votes[cohort] for cohort, _ in supporters.most_common()]


def _may_be_followed(known: Round, vote: Vote, now: datetime) -> bool:
    """Tell whether the vote follows from holdings known here, and this node can sum over it."""
    if not _suffice(known, vote.nodes, now):
        return False
    cohort = known.cohort(vote.nodes)
    if known.spec.body.sharing.committee is not None and (
        known.own not in vote.nodes or known.abandonments.keys() & set(vote.nodes)
    ):
        return False
    return (
        known.may_be_released(cohort)
        and vote.cohort == known.cohort_digest(vote.nodes)
        # it holds shares of all these clients, and of the same answers
        and known.cohort(known.in_order({*vote.nodes, known.own})) == cohort
    )


def _suffice(known: Round, nodes: tuple[str, ...], now: datetime) -> bool:
    """Tell whether the holdings of these nodes are known and enough to vote by."""
    spec = known.spec.body
    needed = spec.threshold if now >= spec.proceed_at else len(spec.compute_nodes)
    return len(nodes) >= needed and known.holdings.keys() >= set(nodes)


def _sum(known: Round) -> Decision | None:
    own = known.votes[known.own]
    if not known.holdings.keys() >= set(own.nodes):
        return None  # it was set back to an older state; its peers may bring it up again
    if own.cohort != known.cohort_digest(own.nodes):
        return GiveUp(
            AbandonmentReason(code="misconduct", detail="this node voted for another cohort")
        )
    agreed = [
        name for name in _standing(known, known.votes) if known.votes[name].cohort == own.cohort
    ]
    needed = known.spec.body.threshold
    if known.spec.body.sharing.committee is not None:
        agreed, needed = [name for name in agreed if name in own.nodes], len(own.nodes)
    if len(agreed) < needed:
        return None
    return SumUp(known.cohort(own.nodes))

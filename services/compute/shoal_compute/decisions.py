"""What a node does next in a round, given what it knows and the time; it does none of it.

The same knowledge always gives the same decision, so a node that restarts goes on where it was.
"""

from dataclasses import dataclass
from datetime import datetime

from pyroaring import BitMap

from shoal_compute.rounds import Round
from shoal_protocol.attestations import AbandonmentReason, cohort_digest, cohort_of
from shoal_protocol.phases import FINISHED, Phase


@dataclass(frozen=True)
class Freeze:
    """Take no more shares and attest the holdings."""


@dataclass(frozen=True)
class CastVote:
    """Vote for the cohort, the intersection of all nodes' holdings."""

    cohort: BitMap


@dataclass(frozen=True)
class SumUp:
    """Sum over the cohort, for which all nodes voted."""

    cohort: BitMap


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

    Up to `agreed` a node may give up by itself, for nothing of it is out. After that a partial
    sum may be, and only the aggregator can say that nothing was released.
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
        return _towards_agreement(known)
    if now >= known.spec.body.deadline or len(known.held) == known.spec.body.population_size:
        return Freeze()
    return None


def _reason_to_give_up(known: Round, now: datetime) -> AbandonmentReason | None:
    spec, frozen = known.spec.body, known.phase is Phase.FROZEN
    if known.equivocation:
        return AbandonmentReason(code="misconduct", detail="a node signed two different documents")
    if not frozen and (known.own in known.holdings or known.own in known.votes):
        # only a node that was set back to an older state can meet its own attestation
        return AbandonmentReason(code="misconduct", detail="this node has lost part of its state")
    if known.abandonments:
        return AbandonmentReason(code="called_off_by_node")
    if len({vote.cohort for vote in known.votes.values()}) > 1:
        return AbandonmentReason(code="votes_differ")
    if now >= spec.give_up_at:
        complete = len(known.holdings) == len(spec.compute_nodes)
        return AbandonmentReason(code="votes_missing" if complete else "holdings_missing")
    return None


def _towards_agreement(known: Round) -> Decision | None:
    spec = known.spec.body
    if len(known.holdings) < len(spec.compute_nodes):
        return None
    cohort = cohort_of(known.holdings.values())
    if known.own not in known.votes:
        if len(cohort) < spec.minimum_cohort:
            return GiveUp(AbandonmentReason(code="cohort_too_small"))
        return CastVote(cohort)
    if len(known.votes) < len(spec.compute_nodes):
        return None
    if known.votes[known.own].cohort != cohort_digest(known.id, cohort):
        return GiveUp(
            AbandonmentReason(code="misconduct", detail="this node voted for another cohort")
        )
    return SumUp(cohort)

"""Makes the attestations that this node signs, and checks those of other parties."""

from shoal_compute.rounds import Round
from shoal_compute.store import SignedAttestation
from shoal_protocol.journal import Link
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    Charge,
    Holdings,
    PartialSum,
    StoredAnswers,
    Vote,
    digest_in,
)
from shoal_protocol.wire.encoding import Uint64Vector
from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.service_errors import WrongRound
from shoal_protocol.wire.vectors import encode_uint64


def holdings(known: Round, held: StoredAnswers, entry: Link) -> Holdings:
    """Return the statement that this node holds these shares and no other."""
    return Holdings.attest(
        held,
        known.intake.asked_here,
        manifest=known.consortium.digest,
        round_id=known.id,
        node=known.own,
        entry=entry,
    )


def vote(known: Round, nodes: tuple[str, ...], cohort: StoredAnswers, entry: Link) -> Vote:
    """Return the vote to sum over `cohort`, which `nodes` have in common, and over no other."""
    return Vote(
        manifest=known.consortium.digest,
        entry=entry,
        round=known.id,
        node=known.own,
        nodes=nodes,
        cohort=digest_in(known.spec.body, cohort, nodes),
        cohort_size=known.size(cohort),
    )


def partial_sum(
    known: Round,
    cohort: StoredAnswers,
    total: Uint64Vector,
    charge: Charge,
    entry: Link,
    *,
    among: tuple[str, ...] = (),
) -> PartialSum:
    """Return `total`, shape (d,), as the sum of this node's shares over `cohort`.

    With committees it is to be added to those of the nodes `among` which this node voted for it.

    `charge` is the entry of the journal by which this node charged the round.
    """
    return PartialSum(
        manifest=known.consortium.digest,
        entry=entry,
        round=known.id,
        node=known.own,
        cohort=digest_in(known.spec.body, cohort, among),
        cohort_size=known.size(cohort),
        nodes=None if known.spec.body.sharing.committee is None else among,
        values=encode_uint64(total),
        charge=charge,
    )


def abandonment(known: Round, reason: AbandonmentReason, entry: Link) -> Abandonment:
    """Return the statement that this node released nothing of the round and never will."""
    return Abandonment(
        manifest=known.consortium.digest,
        entry=entry,
        round=known.id,
        party=known.own,
        reason=reason,
    )


def check_attestation(known: Round, signed: SignedAttestation) -> None:
    """Check that a party in charge signed this document for this round, and that it can be true.

    Raises:
        WrongRound, WrongManifest, UnknownSigner, WrongSigner, BadSignature
        MalformedDocument: holdings that do not count up, or of holders that are not asked.
    """
    if signed.body.round != known.id:
        raise WrongRound
    known.consortium.verify(signed)
    if isinstance(signed.body, Holdings):
        signed.body.held(known.asked_of(signed.body.node))
    elif isinstance(signed.body, Vote):
        spec, nodes = known.spec.body, signed.body.nodes
        if nodes != known.in_order(nodes) or len(nodes) < spec.threshold:
            raise MalformedDocument("a vote names enough of the round's nodes, in its order")
        if spec.sharing.committee is not None and signed.signer not in nodes:
            raise MalformedDocument("with committees a vote names its signer, too")

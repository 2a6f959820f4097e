"""A round's state in memory, and the checks of its envelopes; the store is authoritative."""

import asyncio
from collections.abc import Callable, Container, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
from nacl.public import PrivateKey
from pyroaring import BitMap

from shoal_compute.shares import AcceptedShare
from shoal_compute.store import Kept, SignedAttestation
from shoal_kit.party import KeyNotHere, Party
from shoal_protocol.rounds.attestations import (
    Abandonment,
    Holdings,
    PartialSum,
    RoundFailure,
    StoredAnswers,
    Vote,
    asked_of,
    cohort_in,
    digest_in,
)
from shoal_protocol.rounds.round_spec import AskedHolders, RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.committee_sums import starts
from shoal_protocol.sharing.received import Envelope, envelope_size, parse
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import ProtocolError, UnknownHolder, WrongManifest
from shoal_protocol.wire.phases import FINISHED, Phase
from shoal_protocol.wire.service_errors import NotInPopulation, WrongNode, WrongRound, WrongShare

BeforeT = TypeVar("BeforeT")
AfterT = TypeVar("AfterT")


@dataclass(frozen=True, kw_only=True)
class Intake:
    """What a node checks a round's envelopes by."""

    spec: RoundSpec
    node: int  # this node's index among the round's Compute nodes
    asked: AskedHolders
    asked_here: BitMap  # the asked data holders that share with this node
    box_key: bytes
    box_private_key: bytes = field(repr=False)

    @cached_property
    def largest_envelope(self) -> int:
        """Return the size in bytes beyond which no envelope of this round can be valid."""
        return max(envelope_size(kind, self.spec.dimension) for kind in ShareKind)

    @cached_property
    def _bound_to(self) -> bytes:
        return bytes.fromhex(self.spec.manifest + self.spec.digest)

    def parse(self, encoded: bytes) -> Envelope:
        """Read an envelope that claims to be of this round, for this node.

        Raises:
            MalformedEnvelope, UnsupportedVersion, WrongRound, WrongNode, WrongManifest
        """
        envelope = parse(encoded)
        if envelope.bound_to != self._bound_to and envelope.header.round_id != self.spec.digest:
            raise WrongRound
        if envelope.node != self.node:
            raise WrongNode
        if envelope.bound_to != self._bound_to:
            raise WrongManifest
        return envelope

    def validate_all(
        self, envelopes: Sequence[bytes], roster: Roster
    ) -> list[AcceptedShare | ProtocolError]:
        """Check envelopes in full and open them; return each one's share, or why it is refused.

        `roster` is that of the manifest in force. Each step is taken for all envelopes before the
        next one, so that its code and tables stay in the processor's caches.

        Refusals:
            MalformedEnvelope, UnsupportedVersion, WrongRound, WrongNode, WrongManifest: as `parse`.
            UnknownHolder, NotInPopulation, RevokedHolder: the holder may not take part, or here.
            BadSignature, UnopenableCiphertext, TransplantedCiphertext: forged or damaged.
            WrongShare: not the share that this node is due.
        """
        admitted = _for_each(partial(self._admit, roster), envelopes)
        return _for_each(self._accept, _for_each(self._open, _for_each(_verify, admitted)))

    def _admit(self, roster: Roster, encoded: bytes) -> tuple[Envelope, bytes]:
        """Return an envelope of a holder that may take part, and the key that must have signed."""
        envelope = self.parse(encoded)
        if len(encoded) > self.largest_envelope:
            raise WrongShare("the share does not have the round's length")
        holder = envelope.holder
        if holder >= roster.holders:
            raise UnknownHolder
        if holder not in self.asked_here:
            raise NotInPopulation
        return envelope, roster.key_of(holder)  # not revoked or replaced since the round began

    def _open(self, envelope: Envelope) -> tuple[Envelope, Share]:
        return envelope, envelope.open(self.box_private_key, self.box_key)

    def _accept(self, opened: tuple[Envelope, Share]) -> AcceptedShare:
        envelope, share = opened
        holder = envelope.holder
        summation.check(
            self.spec.sharing,
            share,
            holder=holder,
            node=self.node,
            nodes=len(self.spec.compute_nodes),
            dimension=self.spec.dimension,
        )
        return AcceptedShare(
            round_id=self.spec.digest,
            holder=holder,
            answer=envelope.answer,
            digest=envelope.digest,
            signature=envelope.signature,
            kind=share.kind,
            payload=share.payload,
        )


def _verify(admitted: tuple[Envelope, bytes]) -> Envelope:
    envelope, verify_key = admitted
    envelope.verify(verify_key)
    return envelope


def _for_each(
    step: Callable[[BeforeT], AfterT], reached: Sequence[BeforeT | ProtocolError]
) -> list[AfterT | ProtocolError]:
    """Return the outcome of a step for each of these, or why it was refused, now or before."""
    outcomes: list[AfterT | ProtocolError] = []
    for each in reached:
        try:
            outcomes.append(each if isinstance(each, ProtocolError) else step(each))
        except ProtocolError as error:
            outcomes.append(copy(error))  # without the traceback, which would keep all of these
    return outcomes


@dataclass
class Round:
    """A round at this node."""

    own: str  # this node's name
    spec: Signed[RoundSpec]
    consortium: Consortium
    intake: Intake
    phase: Phase
    reported: bool
    erased: bool
    held: BitMap  # the data holders whose shares are stored
    documents: dict[str, SignedAttestation] = field(default_factory=dict)  # by digest
    spoken_of: dict[str, SignedAttestation] = field(default_factory=dict)  # all but partial sums
    holdings: dict[str, StoredAnswers] = field(default_factory=dict)  # by node
    votes: dict[str, Vote] = field(default_factory=dict)  # by node
    abandonments: dict[str, Abandonment] = field(default_factory=dict)  # by party
    equivocation: bool = False  # somebody signed two different holdings or votes
    over: bool = False  # the trainer has gone on: to the job's next round, or to its end
    voting: asyncio.Lock = field(default_factory=asyncio.Lock, compare=False)
    # by nodes, whose holdings never change
    _cohorts: dict[tuple[str, ...], StoredAnswers] = field(default_factory=dict)
    _digests: dict[tuple[str, ...], str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Return the round's id."""
        return self.spec.digest

    @cached_property
    def peers(self) -> tuple[str, ...]:
        """Return the names of the other Compute nodes."""
        return tuple(name for name in self.spec.body.compute_nodes if name != self.own)

    @property
    def done(self) -> bool:
        """Tell whether nothing is left to do: ended, reported, and its payloads erased."""
        return self.phase in FINISHED and self.reported and self.erased

    @property
    def failure(self) -> RoundFailure | None:
        """Return why the round is abandoned: by this node's own word, or the aggregator's."""
        parties = (self.own, self.consortium.manifest.aggregator.name)
        told = [self.abandonments[each].reason for each in parties if each in self.abandonments]
        return told[0] if told and self.phase is Phase.ABANDONED else None

    def in_order(self, names: Container[str]) -> tuple[str, ...]:
        """Return these Compute nodes in the manifest's order."""
        return tuple(name for name in self.spec.body.compute_nodes if name in names)

    def cohort_digest(self, nodes: tuple[str, ...]) -> str:
        """Return the digest of `cohort`."""
        if nodes not in self._digests:
            self._digests[nodes] = digest_in(self.spec.body, self.cohort(nodes), nodes)
        return self._digests[nodes]

    def cohort(self, nodes: tuple[str, ...]) -> StoredAnswers:
        """Return the cohort that the holdings of these nodes, all known here, give."""
        if nodes not in self._cohorts:
            held = {name: self.holdings[name] for name in nodes}
            self._cohorts[nodes] = cohort_in(self.spec.body, held)
        return self._cohorts[nodes]

    def asked_of(self, node: str) -> BitMap:
        """Return the data holders that are asked to share with a node of the round."""
        return asked_of(self.spec.body, node, self.intake.asked.holders)

    @cached_property
    def committees(self) -> list[int]:
        """Return the committees, by their first nodes, whose shares here are added up apart.

        They are by threshold, for then their sums have different weights; else there is only 0.
        """
        spec = self.spec.body
        if spec.sharing.committee is None or spec.sharing.scheme == "additive":
            return [0]
        return starts(spec.sharing, node=self.intake.node, nodes=len(spec.compute_nodes))

    def by_committee(self, cohort: BitMap) -> dict[int, BitMap]:
        """Return the data holders of a cohort who share with this node, by `committees`."""
        here = cohort & self.intake.asked_here
        if len(self.committees) == 1:
            return {0: here}
        holders = np.asarray(here.to_array())
        each = holders.astype(np.int64) % len(self.spec.body.compute_nodes)
        return {start: BitMap(holders[each == start]) for start in self.committees}

    def size(self, cohort: StoredAnswers) -> int:
        """Return how many slots a cohort has."""
        return self.intake.asked.count(cohort.holders)

    def may_be_released(self, cohort: StoredAnswers) -> bool:
        """Tell whether a cohort has enough slots, and enough data holders, to be summed."""
        holders = self.consortium.manifest.policy.minimum_holders
        is_large = self.size(cohort) >= self.spec.body.minimum_cohort
        return is_large and len(cohort.holders) >= holders

    def learn(self, signed: SignedAttestation, kept: Kept) -> None:
        """Add a document that is now on file."""
        if kept is Kept.SURPLUS:
            return
        self.documents[signed.digest] = signed
        body = signed.body
        if not isinstance(body, PartialSum):
            self.spoken_of[signed.digest] = signed
        if kept is Kept.EVIDENCE:
            self.equivocation |= isinstance(body, Holdings | Vote)
        elif isinstance(body, Holdings):
            self.holdings[body.node] = body.held(self.asked_of(body.node))
        elif isinstance(body, Vote):
            self.votes[body.node] = body
        elif isinstance(body, Abandonment):
            self.abandonments[body.party] = body


def open_round(
    spec: Signed[RoundSpec],
    held: BitMap,
    consortium: Consortium,
    party: Party,
    *,
    phase: Phase,
    reported: bool = False,
    erased: bool = False,
) -> Round:
    """Return a round of which the shares of the data holders `held` are stored, and no document.

    Raises:
        KeyNotHere: the round has not finished, and the key that its shares are sealed to is gone.
    """
    try:
        box_key = party.box_key_in(consortium)
    except KeyNotHere:
        if phase not in FINISHED:
            raise
        box_key = PrivateKey.generate()  # erased: the round takes no more shares
    asked = AskedHolders.of(spec.body.clients(), consortium.roster)
    intake = Intake(
        spec=spec.body,
        node=[each.name for each in consortium.manifest.compute_nodes].index(party.name),
        asked=asked,
        asked_here=asked_of(spec.body, party.name, asked.holders),
        box_key=bytes(box_key.public_key),
        box_private_key=bytes(box_key),
    )
    return Round(
        own=party.name,
        spec=spec,
        consortium=consortium,
        intake=intake,
        phase=phase,
        reported=reported,
        erased=erased,
        held=held,
    )

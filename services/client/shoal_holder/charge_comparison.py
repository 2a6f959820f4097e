"""Compares this ledger with what Compute nodes charged the slots here, and takes lost charges over.

A state that was lost or restored whole, with its mark, is consistent: only the nodes can tell.
The vault signs the queries, and verifies the nodes' signed answers; the courier carries both.
A node that answers with its charges has no other machine with this key on file.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from pyroaring import BitMap

from shoal_holder import machine, restoring
from shoal_holder.letters import Draft, Settled
from shoal_holder.site import Part
from shoal_holder.slots import make_sure
from shoal_holder.spending import Charge
from shoal_kit.database_file import RESTORE
from shoal_protocol.jobs.charges import Charges, ChargesQuery, check_charges
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Role, Signed, decode, sign
from shoal_protocol.wire.encoding import format_time
from shoal_protocol.wire.errors import (
    LedgerBroken,
    MalformedDocument,
    NotReady,
    ProtocolError,
    UnknownRound,
)

BETWEEN_COMPARISONS: Final = timedelta(minutes=10)
"""How old the last comparison may be when a job is joined."""
AFTER_NONSENSE: Final = timedelta(seconds=30)
"""How long a node is not asked after an answer that was not what it was asked for."""
_NOT_ASKED: Final = (BitMap(), 0)


@dataclass
class _Asking:
    """A node that is being asked, and about which slots."""

    version: Consortium  # of the manifest that question and answer are bound to
    holder: int
    slots: BitMap
    after: int  # the entry of the node's ledger after which it is asked
    epoch: int = 0
    nonce: str = ""  # of the last query, until it is answered
    asked_at: datetime | None = None


@dataclass(eq=False)
class ChargeComparison(Part):
    """Collects the nodes' charges, and those that this ledger lacks."""

    _without: Collection[str]  # nodes that are never asked
    compared_at: datetime | None = None
    """When a node was asked that answered, or none was to be asked; None: not since the start.

    A courier may hold an answer back: it says nothing of what was charged since the question.
    """
    _asking: dict[str, _Asking] = field(default_factory=dict)  # by node
    _progress: dict[str, tuple[BitMap, int]] = field(default_factory=dict)
    """By node: of which slots it said what it charged, up to which entry."""
    _forgotten: dict[tuple[str, int | None], Charge] = field(default_factory=dict)
    """By job and number: what nodes charged and this ledger lacks."""
    _not_before: dict[str, datetime] = field(default_factory=dict)  # by node

    def __post_init__(self) -> None:
        self._machine = machine.read(self._state.file)
        self.refusal = machine.SUPERSEDED if self._machine.is_superseded else None
        """What to do about another machine, or a ledger that lacks charges; None if all is well."""

    @property
    def nodes(self) -> list[str]:
        """Return the names of the nodes that are to be asked."""
        listed = self._site.book.current.manifest.compute_nodes
        named = [node.name for node in listed if node.name not in self._without]
        return named if self._site.positions() and not self._machine.is_superseded else []

    @property
    def waiting(self) -> list[str]:
        """Return the names of the nodes that have not said since the start what they charged."""
        return [node for node in self.nodes if node not in self._progress]

    @property
    def is_recent(self) -> bool:
        """Tell whether a job may be joined by the last comparison."""
        now, at = self._site.clock(), self.compared_at
        return at is not None and timedelta(0) <= now - at <= BETWEEN_COMPARISONS

    def check(self, *, joining: bool = False, nodes: int | None = None) -> None:
        """Refuse to spend unless this ledger holds all charges of the nodes that were heard.

        So many `nodes` must have been heard since the start, or else be waived by name: as many as
        release a total together, of which two sets share a node. None are all.

        Raises:
            LedgerBroken: it lacks something; the detail says what to do.
            NotReady: too few nodes were heard since the start, or when `joining` none of late.
        """
        if self.refusal is not None:
            raise LedgerBroken(self.refusal)
        if self.compared_at is None or self._forgotten or (joining and not self.is_recent):
            raise NotReady("no Compute node says what it charged the slots here")
        waiting, listed = self.waiting, len(self._site.book.current.manifest.compute_nodes)
        if self._machine.is_restoring and not waiting:
            raise NotReady("the state here is being restored")
        nodes = None if self._machine.is_restoring else nodes
        if len(waiting) > (0 if nodes is None else max(0, listed - nodes)):
            names = ", ".join(waiting)
            raise NotReady(f"{names} did not say yet what was charged here")

    def letters(self, *, joining: bool) -> Iterator[Draft]:
        """Yield the queries that are due: since the start, and again before a job is joined."""
        now, again, holder = self._site.clock(), joining and not self.is_recent, self._site.holder
        if holder is None:
            return
        for node in self.nodes:
            is_paused = now < self._not_before.get(node, now) <= now + AFTER_NONSENSE
            if not is_paused and (again or node in self.waiting or node in self._asking):
                path = f"/v1/charges?after={self._asked(node, holder).after}"
                yield Draft(f"charges/{node}", node, path, partial(self._query, node))

    def _asked(self, node: str, holder: int) -> _Asking:
        """Return what a node is asked about by the version of the manifest in force."""
        version, asking = self._site.book.current, self._asking.get(node)
        if asking is None or asking.version is not version:
            slots = BitMap(self._site.positions())
            known, through = self._progress.get(node, _NOT_ASKED)
            # of slots that were given since, it was never asked
            after = through if slots.issubset(known) else 0
            asking = self._asking[node] = _Asking(version, holder, slots, after)
        return asking

    def _query(self, node: str) -> bytes:
        """Return a query that is to leave now: the answer to this one counts, and to no other."""
        site, asking = self._site, self._asking[node]
        asking.nonce, asking.epoch = site.random_bytes(16).hex(), self._machine.epoch
        asking.asked_at = site.clock()
        query = ChargesQuery(
            manifest=asking.version.digest,
            holder=asking.holder,
            node=node,
            epoch=asking.epoch,
            instance=self._machine.instance,
            nonce=asking.nonce,
            at=asking.asked_at,
        )
        return sign(query, Role.HOLDER, site.key).encode()

    def unreached(self, settled: Settled) -> bool:
        """Note that a node did not answer: it is asked anew, by another query."""
        self._asking.pop(settled.about, None)
        return False

    def doubt(self, settled: Settled) -> bool:
        """Leave a node in peace for a while that answered something else."""
        self._not_before[settled.about] = self._site.clock() + AFTER_NONSENSE
        return self.unreached(settled)

    def answered(self, settled: Settled) -> None:
        """Take what a node answered.

        Raises:
            ProtocolError: as `_hear`.
        """
        try:
            self._hear(settled.about, decode(settled.body, Charges, ChargesQuery))
        except ProtocolError:
            self.doubt(settled)
            raise

    def _hear(self, node: str, signed: Signed[Any]) -> None:
        """Take a node's answer to the last query.

        Raises:
            ProtocolError: the node did not sign it, or it answers something else.
        """
        asking = self._asking.get(node)
        if asking is None:
            raise UnknownRound("the node was not asked")
        nonce, asking.nonce = asking.nonce, ""  # whatever comes of it, another one is due
        if asking.epoch != self._machine.epoch:  # raised since: this answer is to another machine
            asking.after = 0
            return
        if isinstance(signed.body, ChargesQuery):
            if not self._hear_of_other(signed.body, signed, asking.holder):
                self._asking.pop(node, None)
            return
        charged = check_charges(
            signed,
            asking.version,
            node=node,
            nonce=nonce,
            after=asking.after,
            holder=asking.holder,
            slots=asking.slots,
            caps=[each.manifest.policy.cap for each in self._site.book.versions],
        )
        rounds = [
            Charge(each.job, each.number, each.round, whose, each.cost) for each, whose in charged
        ]
        self._note(self._state.not_charged(rounds))
        asking.after = signed.body.through
        if asking.after == signed.body.head:
            self._progress[node] = (asking.slots, asking.after)
            self.compared_at = asking.asked_at
            del self._asking[node]
        self.settle()

    def settle(self) -> None:
        """Judge the nodes' answers; a state that is being restored takes the charges over."""
        if self._machine.is_restoring:
            self._take_over()
        elif self.refusal is None and self._forgotten:
            self.refusal = (
                f"Compute nodes charged slots here for rounds ({len(self._forgotten):,}) that the "
                "journal here does not hold: the state was lost or set back. Stop, and "
                f"{RESTORE}. If it is lost for good, run `shoal agent restore`, which takes what "
                "was forgotten for spent"
            )
        elif self.refusal is None and not self.waiting:
            make_sure(self._state.file)
            restoring.raise_to_least(
                self._state, BitMap(self._site.positions()), self._site.clock()
            )
        if not self.nodes:
            self.compared_at = self._site.clock()

    def _hear_of_other(self, query: ChargesQuery, signed: Signed[Any], holder: int) -> bool:
        """Give way to another machine of this holder, or supersede it; tell whether to ask again.

        Raises:
            ProtocolError: this holder did not sign it, or it is no reason to give way.
        """
        own, current = self._machine, self._site.book.current
        version = self._site.book.get(query.manifest)
        version.verify(signed)
        if (
            query.holder != holder
            or query.machine == (own.epoch, own.instance)
            or query.epoch < own.epoch
        ):
            raise MalformedDocument("it shows no other machine that counts")
        # a key that was replaced since may be a thief's: its word ends nothing for good
        is_in_force = version.roster.key_of(holder) == current.roster.key_of(holder)
        if own.is_restoring:
            # supersedes that one; no round announced before now is answered
            self._state.file.write(
                "UPDATE machine SET epoch = ?, restored_at = ?",
                *(query.epoch + 1, format_time(self._site.clock())),
            )
            self._progress.clear()  # others have the old one on file
        elif query.epoch > own.epoch and is_in_force:
            self._state.file.write("UPDATE machine SET is_superseded = 1")
            self.refusal = machine.SUPERSEDED
        else:
            self.refusal = machine.IN_USE
        self._machine = machine.read(self._state.file)
        return own.is_restoring

    def _note(self, forgotten: Iterable[Charge]) -> None:
        """Add to the lost charges; where nodes differ, the higher price counts."""
        for each in forgotten:
            place = (each.job, each.number)
            before = self._forgotten.get(place, each)
            dearer = max(before, each, key=lambda one: (one.cost.epsilon, one.cost.mu, one.what))
            together = before.clients | each.clients
            self._forgotten[place] = dearer._replace(clients=together)

    def _take_over(self) -> None:
        """End the restoration once all nodes were heard that are not waived."""
        site, own = self._site, BitMap(self._site.positions())
        if self.waiting or not own:
            return
        versions = site.book.versions
        adopted = restoring.take_over(
            self._state,
            [each for _, each in sorted(self._forgotten.items())],
            own=own,
            crowds=restoring.crowds_allowed(self._state, site.policy, versions),
            now=site.clock(),
        )
        make_sure(self._state.file)
        self._forgotten, self._machine = {}, machine.read(self._state.file)
        self._report("charges of the lost state taken over", rounds=adopted)

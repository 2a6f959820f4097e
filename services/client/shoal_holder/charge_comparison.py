"""Compares this ledger with what Compute nodes charged the slots here, and adopts lost charges.

A state that was lost or restored whole, with its mark, is consistent: only the nodes can tell.
The vault signs the queries, and verifies the nodes' signed answers; the courier carries both.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pyroaring import BitMap

from shoal_holder import ledger
from shoal_holder.ledger import ChargedElsewhere
from shoal_holder.reporting import Report
from shoal_holder.site import Site
from shoal_holder.state import State
from shoal_hosting.marks import ACCEPT, RESTORE
from shoal_protocol.jobs.charges import Charges, ChargesQuery, check_charges
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Role, decode, sign
from shoal_protocol.wire.errors import (
    LedgerBroken,
    NotReady,
    UnknownManifest,
    UnknownRound,
    UnknownSigner,
)

BETWEEN_COMPARISONS: Final = timedelta(minutes=10)
"""How old the last comparison may be when a job is joined."""


@dataclass
class _Asking:
    """A node that is being asked, and about which slots."""

    version: Consortium  # of the manifest that question and answer are bound to
    holder: int
    slots: BitMap
    after: int  # the entry of the node's ledger after which it is asked
    nonce: str = ""


class ChargeComparison:
    """Collects the nodes' charges, and those that this ledger lacks."""

    def __init__(
        self,
        site: Site,
        state: State,
        report: Report,
        *,
        accept: str | None,
        without: Collection[str],
    ) -> None:
        """Begin before any node is asked; those in `without` never are.

        `accept` is the token of a loss that the owner accepts.
        """
        self._site = site
        self._state = state
        self._report = report
        self._accept = accept
        self._without = frozenset(without)
        self._compared_at: datetime | None = None
        self._asking: dict[str, _Asking] = {}  # by node
        self._progress: dict[str, tuple[BitMap, int]] = {}  # by node: of what, up to which entry
        self._heard = False  # whether a node said all since it was last judged
        self._forgotten: dict[tuple[str, int], ChargedElsewhere] = {}  # by job and number
        self._is_news = False  # whether more is forgotten than when it was last judged
        self.refusal: str | None = None
        """What to do about a ledger that lacks nodes' charges; None while it lacks none."""

    @property
    def nodes(self) -> list[str]:
        """Return the names of the nodes that are to be asked."""
        listed = self._site.book.current.manifest.compute_nodes
        named = [node.name for node in listed if node.name not in self._without]
        return named if self._site.positions() else []

    def check(self, *, joining: bool = False) -> None:
        """Refuse to spend unless this ledger holds all charges of the nodes that were heard.

        Raises:
            LedgerBroken: it lacks something; the detail says what to do.
            NotReady: no node was heard since the start, or when `joining` not of late.
        """
        if self.refusal is not None:
            raise LedgerBroken(self.refusal)
        now, at = self._site.clock(), self._compared_at
        of_late = at is not None and timedelta(0) <= now - at <= BETWEEN_COMPARISONS
        if at is None or self._is_news or (joining and not of_late):
            raise NotReady("no Compute node says what it charged the slots here")

    def query(self, node: str, *, behind: int) -> tuple[int, bytes]:
        """Return the next query for a node, and the ledger entry after which it asks.

        The query is bound to the manifest `behind` versions before the one in force.

        Raises:
            UnknownRound: the node is not to be asked.
            UnknownManifest: it had another key then, or there is no such version here.
        """
        if node not in self.nodes:
            raise UnknownRound("the node is not asked")
        site, version = self._site, self._version(node, behind)
        asking = self._asking.get(node)
        if asking is None or asking.version is not version:
            asking = self._asking[node] = self._begun(node, version)
        asking.nonce = site.random_bytes(16).hex()
        query = ChargesQuery(
            manifest=version.digest, holder=asking.holder, nonce=asking.nonce, at=site.clock()
        )
        return asking.after, sign(query, Role.HOLDER, site.key).encode()

    def hear(self, node: str, document: bytes) -> bool:
        """Take a node's answer to the last query; tell whether there is another query.

        Raises:
            ProtocolError: the node did not sign it, or it answers something else.
        """
        asking = self._asking.get(node)
        if asking is None:
            raise UnknownRound("the node was not asked")
        signed = decode(document, Charges)
        charged = check_charges(
            signed,
            asking.version,
            node=node,
            nonce=asking.nonce,
            after=asking.after,
            holder=asking.holder,
            slots=asking.slots,
        )
        rounds = [
            ChargedElsewhere(each.round, each.job, each.number, each.cost, whose)
            for each, whose in charged
        ]
        self._note(ledger.not_charged(self._state.file, rounds))
        asking.after = signed.body.through
        if asking.after == signed.body.head:
            self._progress[node] = (asking.slots, asking.after)
            self._heard = True
            del self._asking[node]
        return node in self._asking

    def settle(self) -> None:
        """Judge the nodes' answers: adopt lost charges if the owner accepted exactly that loss."""
        if self._is_news:
            self._adopt_or_refuse([each for _, each in sorted(self._forgotten.items())])
        if self._heard or not self.nodes:
            self._compared_at, self._heard = self._site.clock(), False

    def _version(self, node: str, behind: int) -> Consortium:
        book = self._site.book
        version = book.version(book.current.manifest.sequence - behind)
        try:
            keys = {each.party(node).verify_key for each in (version, book.current)}
        except UnknownSigner:
            raise UnknownManifest from None
        if len(keys) > 1:
            raise UnknownManifest
        return version

    def _begun(self, node: str, version: Consortium) -> _Asking:
        """Begin to ask about this holder's slots under a version.

        Raises:
            UnknownManifest: it was not enrolled then.
        """
        holder = self._site.holder
        if holder is None or holder >= version.roster.holders:
            raise UnknownManifest
        slots = version.roster.slots_of(holder)
        known, through = self._progress.get(node, (BitMap(), 0))
        # of slots that were given since, it was never asked
        return _Asking(version, holder, slots, after=through if slots.issubset(known) else 0)

    def _note(self, forgotten: Iterable[ChargedElsewhere]) -> None:
        """Add to the lost charges; where nodes differ, the higher price counts."""
        for each in forgotten:
            place = (each.job, each.number)
            self._is_news, before = True, self._forgotten.get(place, each)
            dearer = max(
                before, each, key=lambda one: (one.cost.epsilon, one.cost.mu, one.round_id)
            )
            self._forgotten[place] = ChargedElsewhere(
                dearer.round_id, *place, dearer.cost, before.clients | each.clients
            )

    def _adopt_or_refuse(self, forgotten: Sequence[ChargedElsewhere]) -> None:
        token = _token(self._site.book.current.manifest.authority, forgotten)
        self._is_news = False
        if token == self._accept:
            if self._site.records.identity is not None:
                # who was in which slot is lost, too: in each may be one who was charged
                everybody = BitMap(self._site.positions())
                forgotten = ledger.not_charged(
                    self._state.file, [replace(each, clients=everybody) for each in forgotten]
                )
            self._state.adopt(forgotten, self._site.clock())
            self._forgotten, self.refusal = {}, None
            self._report("forgotten rounds taken for spent", rounds=len(forgotten))
        else:
            self.refusal = (
                f"Compute nodes charged slots here for {_rounds(len(forgotten))} that the ledger "
                "here does not hold: the state was lost or set back, or this key is in use in "
                f"another place. Stop, and {RESTORE}. If it is lost for good, start once with "
                f"{ACCEPT}={token} to take these rounds for spent"
            )


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count:,} rounds"


def _token(authority: str, forgotten: Iterable[ChargedElsewhere]) -> str:
    said = [
        [each.round_id, each.number, each.cost.mu, each.cost.stated_epsilon, list(each.clients)]
        for each in forgotten
    ]
    return hashlib.sha256(json.dumps([authority, said]).encode()).hexdigest()[:16]

"""Compares this node's ledger with the newest of its own signed documents that other parties hold.

A data directory that was restored whole, with its mark, is consistent: only other parties can tell.
The other nodes also tell which data holders restored their state since.
"""

import asyncio
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import structlog
from sqlalchemy import Connection, func, select

from shoal_compute import machines
from shoal_compute.keepers import Keepers, is_by
from shoal_compute.schema import accepted_losses, charges, received, rounds
from shoal_compute.store import SignedAttestation
from shoal_kit.marks import ACCEPT
from shoal_kit.pace import Pace
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.jobs.charges import ChargesQuery
from shoal_protocol.jobs.charges_asked import NodeQuery
from shoal_protocol.journal import Link
from shoal_protocol.rounds.attestations import PartialSum, Vote
from shoal_protocol.trust.manifest import ServiceParty
from shoal_protocol.wire.documents import from_json
from shoal_protocol.wire.errors import (
    BadSignature,
    LedgerBroken,
    MalformedDocument,
    ProtocolError,
    RevokedHolder,
    UnknownManifest,
)
from shoal_service.service import Resources
from shoal_service.storage.database import RESTORE, insert_new

log = structlog.get_logger()

MOST_VOTES: Final = 16  # the newest of a node's, to serve and to compare


class Witnesses:
    """Asks every other node and the aggregator once after each start, as soon as it answers."""

    def __init__(self, resources: Resources, keepers: Keepers, *, accept: str | None) -> None:
        """Begin with nobody asked; `accept` is the token of a loss that the operator accepts."""
        self._own, self._keepers = resources, keepers
        self._accept = accept
        self._answered: set[str] = set()
        self._paces: dict[str, Pace] = defaultdict(Pace)
        # rounds that this node signed for, and did not charge; entries that its journal lacks
        self._lost: set[str] = set()
        self._asked = False
        self._asking = asyncio.Lock()
        query = select(func.count()).select_from(accepted_losses)
        if accepted := resources.storage.run_here(lambda db: db.execute(query).scalar_one()):
            log.warning(
                "rounds that this node signed for are not in its ledger, which was accepted: "
                "their clients may be charged too little here",
                rounds=accepted,
            )

    async def check(self) -> None:
        """Refuse if a party that was asked has entries of this node's ledger that are not in it.

        The first call waits until everybody was asked; a party that does not answer delays only it.

        Raises:
            LedgerBroken: a party has such entries.
            StorageUnavailable
        """
        if not self._asked:
            await self.ask()
        self._refuse()

    async def check_begun(self) -> None:
        """Do what `check` does, and refuse until more than half of the journal's keepers answered.

        Raises:
            LedgerBroken, StorageUnavailable
            NotReady: too few answered.
        """
        if self._keepers.due():
            await self.ask()
        await self.check()
        self._keepers.check()

    async def acknowledged(self, entry: Link) -> None:
        """Return once more than half of the journal's keepers have it up to this entry.

        Raises:
            NotReady: too few acknowledge it now.
            LedgerBroken, StorageUnavailable
        """
        try:
            await self._keepers.acknowledged(entry.number)
        finally:
            await self._hold(set())
        self._refuse()

    def _refuse(self) -> None:
        if self._lost:
            raise LedgerBroken("the node signed what is not in its ledger or journal")

    async def ready(self) -> None:
        """Return unless a party was found to have entries that this node's ledger lacks.

        Raises:
            LedgerBroken, StorageUnavailable
        """
        await self._own.ready()
        self._refuse()

    async def votes_of(self, node: str) -> list[bytes]:
        """Return a node's signed votes of the newest rounds on file, the newest first."""
        if node not in {each.name for each in self._own.book.current.manifest.compute_nodes}:
            return []
        columns = received.c
        here = (columns.kind == "vote") & (columns.signer == node) & (columns.occurrence == 0)
        query = select(columns.encoded).where(here).order_by(columns.round.desc()).limit(MOST_VOTES)
        return await self._own.storage.run(lambda db: [*db.execute(query).scalars()])

    def is_due(self) -> bool:
        """Tell whether somebody is to be asked now."""
        return bool(self.due() or self._keepers.due())

    def due(self) -> list[ServiceParty]:
        """Return who is to be asked now."""
        manifest, now = self._own.book.current.manifest, self._own.clock()
        others = {each.name: each for each in (*manifest.compute_nodes, manifest.aggregator)}
        waiting = others.keys() - self._answered - {self._own.name}
        return [others[name] for name in sorted(waiting) if self._paces[name].is_due(now)]

    async def ask(self) -> None:
        """Ask everybody who is due, and hold what they have against the ledger.

        Raises:
            StorageUnavailable
        """
        async with self._asking:
            found = await asyncio.gather(*(self._ask(party) for party in self.due()))
            signed = [each for some in found for each in some]
            await self._keepers.ask()
            await self._hold(await self._own.storage.run(_not_charged, signed))
            self._asked = True

    async def _hold(self, lost: set[str]) -> None:
        lost |= self._keepers.lacking
        if lost - self._lost:
            await self._tell(self._lost | lost)

    async def _tell(self, lost: set[str]) -> None:
        named = json.dumps([self._own.name, *sorted(lost)])
        token = hashlib.sha256(named.encode()).hexdigest()[:16]
        if self._accept == token:
            await self._own.storage.run(_accept, lost - self._keepers.lacking)
            await self._keepers.accept_loss()
            self._lost = set()
            return
        self._lost = lost
        log.error(
            "this node signed what is not in its ledger or journal: it was set back, and takes no "
            f"round. Stop, and {RESTORE}. If that is lost for good, read 'Restore' "
            f"in docs/handbook.md, then start once with {ACCEPT}={token}",
            lost=len(lost),
        )

    async def _ask(self, party: ServiceParty) -> list[SignedAttestation]:
        try:
            reply = await self._own.peers.to(party).ask("GET", f"/v1/nodes/{self._own.name}/newest")
            if reply.status not in (200, 404):
                raise Unavailable("the peer refused to answer")
            found = self._read(reply.json()) if reply.status == 200 else []
            if party.name != self._own.book.current.manifest.aggregator.name:
                await self._hear_of_machines(party)
        except (Unavailable, ProtocolError, ValueError) as error:  # or no certificate at all
            self._paces[party.name].failed(self._own.clock())
            log.info("a peer is not asked yet", party=party.name, reason=type(error).__name__)
            return []
        self._answered.add(party.name)
        return found

    async def _hear_of_machines(self, node: ServiceParty) -> None:
        """Take over which machines of data holders count there; their own signatures say so."""
        first, told, own = 0, machines.MOST_TOLD, self._own
        body = NodeQuery(manifest=own.book.current.digest, node=own.name, at=own.clock())
        query = own.sign(body).encode()
        while told == machines.MOST_TOLD:
            path = f"/v1/machines?first={first}"
            reply = await own.peers.to(node).ask("POST", path, query)
            if reply.status != 200:
                raise Unavailable("the peer refused to tell of machines")
            answer = reply.json()
            if not isinstance(answer, dict) or not isinstance(answer.get("documents"), list):
                raise MalformedDocument("an answer lists documents")
            told = len(answer["documents"])
            for value in answer["documents"]:
                signed = from_json(value, ChargesQuery)
                if signed.body.holder < first:
                    raise MalformedDocument("machines are told in the order of their holders")
                first = signed.body.holder + 1
                # its key may have been replaced since; the holder itself will ask by the new one
                with suppress(UnknownManifest, BadSignature, RevokedHolder):
                    version = own.book.get(signed.body.manifest)
                    version.verify_in_force(signed, own.book.current)
                    await own.storage.run(machines.register, signed)

    def _read(self, answer: Any) -> list[SignedAttestation]:
        """Return the documents in an answer that this node did sign; others prove nothing."""
        if not isinstance(answer, dict) or not isinstance(answer.get("documents"), list):
            raise MalformedDocument("an answer lists documents")
        own = self._own.name
        documents: list[SignedAttestation] = [
            from_json(value, Vote, PartialSum) for value in answer["documents"][:MOST_VOTES]
        ]
        if not all(is_by(signed, self._own.book, own) for signed in documents):
            raise BadSignature
        return [each for each in documents if each.signer == each.body.node == own]


def _not_charged(db: Connection, signed: Iterable[SignedAttestation]) -> set[str]:
    """Return the rounds of these documents that are not in the ledger as they say."""
    accepted = set(db.execute(select(accepted_losses.c.round)).scalars())
    lacking = [each for each in signed if each.body.round not in accepted]
    return {each.body.round for each in lacking if not _is_charged(db, each)}


def _is_charged(db: Connection, signed: SignedAttestation) -> bool:
    if db.execute(select(rounds.c.id).where(rounds.c.id == signed.body.round)).first() is None:
        return False
    charge = charges.of_round(db, signed.body.round)
    return not isinstance(signed.body, PartialSum) or signed.body.charge == charge


def _accept(db: Connection, lost: set[str]) -> None:
    for each in sorted(lost):
        insert_new(db, accepted_losses, round=each)

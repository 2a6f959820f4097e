"""Takes rounds that the trainer announces, or refuses them; knows no share and no other node."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import datetime
from typing import Final

from sqlalchemy import Connection

from shoal_compute import store
from shoal_compute.ledger import Ledger
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.schema import ledger as tables
from shoal_compute.totals import check_next
from shoal_compute.withdrawals import refuse_withdrawn
from shoal_compute.witnesses import Witnesses
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.shared_manifests import SharedManifests
from shoal_hosting.storage import StorageThread
from shoal_protocol.accounting import Cap
from shoal_protocol.documents import Signed, decode
from shoal_protocol.errors import NotReady, UnknownRound
from shoal_protocol.rounds import RoundSpec, check_spec

MOST_LIVE_ROUNDS: Final = 256  # each is in memory until it has ended


class Announcements:
    """Judges round specs by the manifest in force and by what each client was charged before."""

    def __init__(
        self,
        rounds: RoundBook,
        storage: StorageThread,
        book: ManifestBook,
        manifests: SharedManifests,
        clock: Callable[[], datetime],
        executor: Executor,
        ledger: Ledger,
        witnesses: Witnesses,
    ) -> None:
        """Go on from `ledger`; for start-up, it waits for the database.

        Raises:
            LedgerBroken, StorageUnavailable
        """
        self._rounds = rounds
        self._storage = storage
        self._book = book
        self._manifests = manifests
        self._clock = clock
        self._executor = executor
        self._ledger = ledger
        self._witnesses = witnesses
        storage.run_here(ledger.verify)
        self._one_at_a_time = asyncio.Lock()  # the bound on rounds holds for all of them

    async def announce(self, encoded: bytes) -> tuple[Round, bool]:
        """Return the round of a signed spec, and whether it is new here; it is durable then.

        Raises:
            MalformedDocument, UnsupportedVersion, BadSignature, UnknownSigner, WrongSigner
            WrongManifest: bound to another manifest version than the one in force.
            ConflictingDocument: another round of its job has its number or a higher one, or the job
                is over.
            RefusedSpec: it contradicts itself, the manifest or its policy, was not paid for by the
                round that it names, or its job is withdrawn.
            BudgetExceeded: it would cost a client more than the policy's cap.
            NotReady: too many rounds are under way here.
            StorageUnavailable
            LedgerBroken: what was spent here cannot be known, or others know of more.
        """
        loop = asyncio.get_running_loop()
        signed = await loop.run_in_executor(self._executor, decode, encoded, RoundSpec)
        async with self._one_at_a_time:
            try:
                return await self._rounds.find(signed.digest), False
            except UnknownRound:
                return await self._take(signed)

    async def _take(self, signed: Signed[RoundSpec]) -> tuple[Round, bool]:
        if len(self._rounds.live) >= MOST_LIVE_ROUNDS:
            raise NotReady("too many rounds are under way")
        if signed.body.manifest != self._book.current.digest:
            await self._storage.run(self._manifests.exchange)  # another replica may know it
        await self._witnesses.check()
        loop = asyncio.get_running_loop()
        cap = await loop.run_in_executor(self._executor, self._judge, signed)
        new = await self._storage.run(self._add, signed, cap)
        return await self._rounds.find(signed.digest), new

    def _add(self, db: Connection, signed: Signed[RoundSpec], cap: Cap) -> bool:
        """Charge and store a round, or neither; False if it is on file already."""
        tables.hold(db)  # before the round, as everybody who announces
        if store.add_round(db, signed) is None:
            return False
        check_next(db, signed.body)
        refuse_withdrawn(db, signed.body.job)
        self._ledger.charge(db, signed.body, cap=cap, at=self._clock())
        return True

    def _judge(self, signed: Signed[RoundSpec]) -> Cap:
        consortium = self._book.in_force(signed.body.manifest)
        consortium.verify(signed)
        check_spec(signed.body, consortium, now=self._clock())
        return consortium.manifest.policy.cap

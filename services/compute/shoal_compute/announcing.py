"""Takes rounds that the trainer announces, or refuses them."""

import asyncio
from typing import Final

from sqlalchemy import Connection

from shoal_compute import store
from shoal_compute.jobs import request_of
from shoal_compute.ledger import Ledger
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.schema import ledger as tables
from shoal_compute.totals import check_next
from shoal_compute.witnesses import Witnesses
from shoal_hosting.service import Resources
from shoal_protocol.jobs.job_request import check_round_of_job
from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.rounds.round_spec import RoundSpec, check_spec
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import NotReady, ProtocolError, UnknownRound

MOST_LIVE_ROUNDS: Final = 256  # each is in memory until it has ended


class Announcements:
    """Checks round specs against the manifest, the job's terms and clients' earlier charges."""

    def __init__(
        self, resources: Resources, rounds: RoundBook, ledger: Ledger, witnesses: Witnesses
    ) -> None:
        """Go on from `ledger`; for start-up, it waits for the database.

        Raises:
            LedgerBroken, StorageUnavailable
        """
        self._own = resources
        self._storage, self._book, self._clock = resources.storage, resources.book, resources.clock
        self._reading = resources.worker("announcing")
        self._rounds, self._ledger, self._witnesses = rounds, ledger, witnesses
        self._storage.run_here(ledger.verify)
        self._one_at_a_time = asyncio.Lock()  # the bound on rounds holds for all of them

    async def announce(self, encoded: bytes) -> tuple[Round, bool]:
        """Return the round of a signed spec, and whether it is new here; it is durable then.

        Raises:
            MalformedDocument, UnsupportedVersion, BadSignature, UnknownSigner, WrongSigner
            WrongManifest: bound to another manifest version than the one in force.
            ConflictingDocument: another round of its job has its number or a higher one, or the job
                is over.
            MissingRequest: nobody has handed the job's request to this node.
            RefusedSpec: it contradicts itself, the manifest, its policy or the job's terms, was not
                paid for by the round that it names, or its job is withdrawn.
            BudgetExceeded: it would cost a client more than the policy's cap.
            NotReady: too many rounds are under way here.
            StorageUnavailable
            LedgerBroken: what was spent here cannot be known, or others know of more.
        """
        size = len(encoded)
        signed = await self._own.read(encoded, RoundSpec)
        async with self._one_at_a_time:
            try:
                return await self._take(signed, size)
            except ProtocolError as refusal:  # unless it was taken before
                try:
                    return await self._rounds.find(signed.digest), False
                except UnknownRound:
                    raise refusal from None

    async def _take(self, signed: Signed[RoundSpec], size: int) -> tuple[Round, bool]:
        if signed.digest in self._rounds.live:
            return self._rounds.live[signed.digest], False
        if len(self._rounds.live) >= MOST_LIVE_ROUNDS:
            raise NotReady("too many rounds are under way")
        if signed.body.manifest != self._book.current.digest:
            await self._own.share_manifests()  # another replica may know it
        await self._witnesses.check()
        cap = await self._reading.run_sized(size, self._validate, signed)
        number = await self._storage.run(self._add, signed, cap)
        self._rounds.over(signed.body.job, before=signed.body.number)
        if number is None:
            return await self._rounds.find(signed.digest), False
        begun = await self._reading.run_sized(size, self._rounds.begun, number, signed)
        return self._rounds.take_in(begun), True

    def _add(self, db: Connection, signed: Signed[RoundSpec], cap: Cap) -> int | None:
        """Charge and store a round, or neither; return its number, None if it is on file."""
        tables.hold(db)  # before the round's row, in the order of all announcements
        number = store.add_round(db, signed)
        if number is None:
            return None
        spec = signed.body
        check_next(db, spec)
        request = request_of(db, spec.job)
        self._ledger.charge(db, spec, cap=cap, at=self._clock())
        check_round_of_job(spec, request, spent=self._ledger.spent_before(db, spec))
        return number

    def _validate(self, signed: Signed[RoundSpec]) -> Cap:
        consortium = self._own.beginning_under(signed.body.manifest)
        consortium.verify(signed)
        check_spec(signed.body, consortium, now=self._clock())
        return consortium.manifest.policy.cap

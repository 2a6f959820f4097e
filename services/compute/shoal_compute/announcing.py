"""Takes rounds that the trainer announces and charges them, or refuses them."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection

from shoal_compute import store
from shoal_compute.jobs import check_next, request_of
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.schema import charges
from shoal_protocol.jobs.job_request import check_round_of_job
from shoal_protocol.privacy.accounting import Balances, Cap, Cost
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import NotReady, ProtocolError, UnknownRound
from shoal_protocol.wire.service_errors import BudgetExceeded
from shoal_service.keepers import Keepers
from shoal_service.service import Resources
from shoal_service.storage.charges import Charged, Ledger
from shoal_service.storage.journal import Journal, JournalWriter

_JOBS_AT_HAND: Final = 16  # whose balances are in memory: up to 24 MB each, for 2^20 clients


class JobLedger(Ledger):
    """Charges rounds to their clients up to the consortium's cap, and sums up what jobs cost."""

    def __init__(self) -> None:
        """Begin before the first charge."""
        super().__init__(charges)
        self._by_job: OrderedDict[str, Balances] = OrderedDict()

    def follow(self, db: Connection) -> Iterator[Charged]:
        """Count each new charge for its job, too."""
        for charged in super().follow(db):
            if of_job := self._by_job.get(charged.spec.job):
                charged.apply_to(of_job)
            yield charged

    def charge_up_to(self, writer: JournalWriter, spec: RoundSpec, cap: Cap) -> None:
        """Charge a round, unless a client would be charged beyond `cap`; `writer` holds the lock.

        Raises:
            BudgetExceeded, LedgerBroken
        """
        self.catch_up(writer.db)
        population = spec.clients()
        if self.balances.affording(population, spec.cost, cap) != population:
            raise BudgetExceeded("a client's rounds together would cost more than the policy's cap")
        self.charge(writer, spec)

    def spent_before(self, db: Connection, spec: RoundSpec) -> Cost:
        """Return the most that earlier rounds of its job cost a client whom a round asks.

        The round is the one that was charged last, in `db`.

        Raises:
            LedgerBroken
        """
        of_job = self._by_job.pop(spec.job, None)
        if of_job is None:
            of_job = Balances()
            for charged in self.charges.of_job(db, spec.job, through=self.last.number):
                charged.apply_to(of_job)
        self._by_job[spec.job] = of_job  # the one that was used last
        if len(self._by_job) > _JOBS_AT_HAND:
            self._by_job.popitem(last=False)
        return of_job.largest(spec.clients())


MOST_LIVE_ROUNDS: Final = 256  # each is in memory until it has ended


class Announcements:
    """Checks round specs against the manifest, the job's terms and clients' earlier charges."""

    def __init__(
        self, resources: Resources, rounds: RoundBook, journal: Journal, keepers: Keepers
    ) -> None:
        """Go on from the charges in `journal`; for start-up, it waits for the database.

        Raises:
            LedgerBroken, StorageUnavailable
        """
        self._own = resources
        self._reading = resources.worker("announcing")
        self._rounds, self._journal, self._keepers = rounds, journal, keepers
        self.ledger = JobLedger()
        resources.storage.run_here(self.ledger.verify)
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
        if signed.body.manifest != self._own.book.current.digest:
            await self._own.share_manifests()  # another replica may know it
        await self._keepers.check()
        begins = await self._reading.run_sized(size, self._own.check_announced, signed)
        is_new = await self._journal.run(self._add, signed, begins.manifest.policy.cap)
        self._rounds.over(signed.body.job, before=signed.body.number)
        return await self._rounds.find(signed.digest), is_new

    def _add(self, writer: JournalWriter, signed: Signed[RoundSpec], cap: Cap) -> bool:
        """Charge and store a round, or neither; False if it is on file."""
        db, spec = writer.db, signed.body
        if not store.add_round(db, signed):
            return False
        writer.lock()
        check_next(db, spec)
        request = request_of(db, spec.job)
        self.ledger.charge_up_to(writer, spec, cap)
        check_round_of_job(spec, request, spent=self.ledger.spent_before(db, spec))
        return True

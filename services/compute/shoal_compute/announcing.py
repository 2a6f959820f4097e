"""Takes rounds that the trainer announces and charges them, or refuses them."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, select

from shoal_compute import store
from shoal_compute.jobs import TOTAL, check_next, request_of
from shoal_compute.round_book import RoundBook
from shoal_compute.rounds import Round
from shoal_compute.schema import journal, ledger, rounds
from shoal_protocol.jobs.job_request import check_round_of_job
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.privacy.accounting import Balances, Cap, Cost
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.rounds.attestations import END, Abandonment, PartialSum
from shoal_protocol.rounds.round_spec import RoundSpec, check_spec
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import LedgerBroken, NotReady, ProtocolError, UnknownRound
from shoal_protocol.wire.phases import Phase
from shoal_protocol.wire.service_errors import BudgetExceeded
from shoal_service.keepers import Keepers
from shoal_service.service import Resources
from shoal_service.storage.ledger import (
    Charged,
    FiledRound,
    LedgerFollower,
    check_rounds,
    see_one_state,
)

_JOBS_AT_HAND: Final = 16  # whose balances are in memory: up to 24 MB each, for 2^20 clients


class Ledger:
    """Charges rounds to their clients, in one unbroken chain, up to the consortium's cap.

    Both the ledger and each client's total charge are always read from the database: other replicas
    add entries, too, and a commit that seems to fail may yet reach the disk.
    """

    def __init__(self, name: str) -> None:
        """Follow the ledger of the node `name` from its first entry."""
        self._name = name
        self._follower = LedgerFollower(ledger, name)
        self._by_job: OrderedDict[str, Balances] = OrderedDict()

    def verify(self, db: Connection) -> None:
        """Read the whole ledger, and compare it with the stored rounds and this node's stored sums.

        `db` has not begun to read.

        Raises:
            LedgerBroken: it is incomplete, or does not match these rounds.
        """
        see_one_state(db)
        self._follower = LedgerFollower(ledger, self._name)  # a transaction may be tried again
        self._by_job.clear()
        entries = [charged.entry for charged in self._follower.follow(db, lock=False)]
        check_rounds(entries, self._filed(db), self._anchors(db), ledger=self._name)
        self._check_totals(db, entries)

    def _filed(self, db: Connection) -> Iterator[FiledRound]:
        query = select(rounds.c.id, rounds.c.phase).order_by(rounds.c.number)
        for round_id, phase in db.execute(query).all():
            encoded = select(rounds.c.spec).where(rounds.c.id == round_id)  # may be megabytes
            spec = decode(db.execute(encoded).scalar_one(), RoundSpec).body
            may_be = phase == Phase.ABANDONED and spec.threshold == len(spec.compute_nodes)
            yield FiledRound(spec, may_be and _own_sum(db, round_id) is None)

    def _anchors(self, db: Connection) -> list[LedgerEntry]:
        """Return the entry in this node's last sum, whose round was charged after all others'."""
        newest_first = select(rounds.c.id).order_by(rounds.c.number.desc())
        for round_id in db.execute(newest_first).scalars().all():
            if (own := _own_sum(db, round_id)) is not None:
                return [own.charge]
        return []

    def _check_totals(self, db: Connection, entries: Iterable[LedgerEntry]) -> None:
        charged: dict[str, list[str]] = {}
        for entry in entries:
            if entry.kind == "charge":
                charged.setdefault(entry.job, []).append(entry.round)
        for document in journal.of_kind(db, TOTAL):
            total = decode(document, JobTotal).body
            if list(total.rounds) != charged.get(total.job, []):
                raise LedgerBroken("this node has signed that a job had other rounds")

    def follow(self, db: Connection) -> None:
        """Verify and count the entries that are new here; nobody can add one until `db` is done.

        Raises:
            LedgerBroken: they do not follow from those before, or some are gone.
        """
        for charged in self._follower.follow(db):
            if of_job := self._by_job.get(charged.entry.job):
                _count(of_job, charged)

    def charge(self, db: Connection, spec: RoundSpec, *, cap: Cap, at: datetime) -> None:
        """Charge a round, unless a client would be charged beyond `cap`.

        Raises:
            BudgetExceeded, LedgerBroken
        """
        self.follow(db)
        population = spec.clients()
        if self._follower.balances.affording(population, spec.cost, cap) != population:
            raise BudgetExceeded("a client's rounds together would cost more than the policy's cap")
        self._follower.charge(db, spec, at=at)

    def spent_before(self, db: Connection, spec: RoundSpec) -> Cost:
        """Return the most that earlier rounds of its job cost a client whom a round asks.

        The round is the one that was charged last, in `db`.

        Raises:
            LedgerBroken
        """
        of_job = self._by_job.pop(spec.job, None) or self._read_job(db, spec.job)
        self._by_job[spec.job] = of_job  # the one that was used last
        if len(self._by_job) > _JOBS_AT_HAND:
            self._by_job.popitem(last=False)
        return of_job.largest(spec.clients())

    def _read_job(self, db: Connection, job: str) -> Balances:
        of_job = Balances()
        for charged in ledger.of_job(db, job, through=self._follower.head.number):
            _count(of_job, charged)
        return of_job


def _own_sum(db: Connection, round_id: str) -> PartialSum | None:
    """Return the partial sum by which this node ended a round, or None."""
    encoded = journal.find(db, END, round_id)
    end = None if encoded is None else decode(encoded, PartialSum, Abandonment).body
    return end if isinstance(end, PartialSum) else None


def _count(balances: Balances, charged: Charged) -> None:
    change = balances.add if charged.entry.kind == "charge" else balances.take_back
    change(charged.population, charged.entry.cost)


MOST_LIVE_ROUNDS: Final = 256  # each is in memory until it has ended


class Announcements:
    """Checks round specs against the manifest, the job's terms and clients' earlier charges."""

    def __init__(
        self, resources: Resources, rounds: RoundBook, ledger: Ledger, keepers: Keepers
    ) -> None:
        """Go on from `ledger`; for start-up, it waits for the database.

        Raises:
            LedgerBroken, StorageUnavailable
        """
        self._own = resources
        self._storage, self._book, self._clock = resources.storage, resources.book, resources.clock
        self._reading = resources.worker("announcing")
        self._rounds, self._ledger, self._keepers = rounds, ledger, keepers
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
        await self._keepers.check()
        cap = await self._reading.run_sized(size, self._validate, signed)
        is_new = await self._storage.run(self._add, signed, cap)
        self._rounds.over(signed.body.job, before=signed.body.number)
        return await self._rounds.find(signed.digest), is_new

    def _add(self, db: Connection, signed: Signed[RoundSpec], cap: Cap) -> bool:
        """Charge and store a round, or neither; False if it is on file."""
        ledger.hold(db)  # before the round's row, in the order of all announcements
        if not store.add_round(db, signed):
            return False
        spec = signed.body
        check_next(db, spec)
        request = request_of(db, spec.job)
        self._ledger.charge(db, spec, cap=cap, at=self._clock())
        check_round_of_job(spec, request, spent=self._ledger.spent_before(db, spec))
        return True

    def _validate(self, signed: Signed[RoundSpec]) -> Cap:
        consortium = self._own.beginning_under(signed.body.manifest)
        consortium.verify(signed)
        check_spec(signed.body, consortium, now=self._clock())
        return consortium.manifest.policy.cap

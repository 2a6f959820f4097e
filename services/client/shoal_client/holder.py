"""The data holder: puts its parts together and runs them; each part's rules are its own module's.

enrolment    finds jobs, decides, joins        answering    judges rounds, prepares answers
next_rounds  asks the trainer for rounds       repair       asks what the nodes still hold
delivery     sends, retries, records            crowds.taking_part  all about crowd jobs
judging      keeps rounds that take long to judge beside the steps
leaving      ends jobs that are left, withdrawn or over
state, outbox, crowds.memory: what must survive a crash
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final, Self

import httpx
import nacl.utils
from nacl.signing import SigningKey

from shoal_client import exits
from shoal_client.answering import Answering
from shoal_client.background import Background
from shoal_client.clock import Clock, LoopTimer, Timer, system_clock
from shoal_client.crowds import accounts, evidence
from shoal_client.crowds.beside import Beside
from shoal_client.crowds.taking_part import TakingPart
from shoal_client.delivery import Delivery
from shoal_client.directory import Directory
from shoal_client.enrolment import Enrolment
from shoal_client.exits import Joined
from shoal_client.judging import Judging
from shoal_client.keys import read_client_keys
from shoal_client.leaving import Leaving
from shoal_client.ledger import ClientCharge
from shoal_client.next_rounds import NextRounds
from shoal_client.noise import NoiseSampler, exact_noise
from shoal_client.policy import Policy
from shoal_client.records import Records
from shoal_client.repair import Repair
from shoal_client.reporting import Report, silent
from shoal_client.site import Site
from shoal_client.site_files import CLIENT_KEYS, POLICY, RECORDS, STATE_FILE, lock_keys
from shoal_client.state import State
from shoal_client.status import HolderStatus
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.party import read_pin
from shoal_protocol.accounting import Cost
from shoal_protocol.draw_and_discard.evidence import CrowdEvidence
from shoal_protocol.ledger import LedgerEntry
from shoal_protocol.sharing import RandomBytes

BETWEEN_LOOKS_SECONDS: Final = 0.5
CROWD_PATIENCE_SECONDS: Final = 1.0  # that a step waits for the crowds' work, if nothing wakes it


class DataHolder:
    """Takes part in jobs for one or more clients, as far as `policy` and the ledger allow.

    The i-th of `keys` signs for the i-th client of `records`; its index in the consortium is found
    on the roster. What must survive a crash is in `data_directory`, which one process uses at a
    time: whatever moment it is stopped at, the next one goes on from there.
    """

    def __init__(
        self,
        *,
        keys: Sequence[SigningKey],
        records: Records,
        policy: Policy,
        book: ManifestBook,
        data_directory: Path,
        clock: Clock = system_clock,
        random_bytes: RandomBytes = nacl.utils.random,
        noise: NoiseSampler = exact_noise,
        timer: Timer | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        executor: Executor | None = None,
        bulk: bool = True,
        concurrency: int = 8,
        report: Report = silent,
        lock: BinaryIO | None = None,
        wake: asyncio.Event | None = None,
        accept_loss: str | None = None,
    ) -> None:
        """Open the state. `bulk` False sends one envelope in each request.

        Up to `concurrency` requests are open at once. `executor` prepares answers; None is a
        thread. `timer` measures how long noise took to draw, and waits until answers may leave;
        None is the event loop's. `lock` is the key file's; it is closed with the data holder. With
        `wake`, questions for rounds are kept open, and it is set when there is a step to take.
        `accept_loss` is the token of a lost state that the owner accepts, as a refusal shows it.

        Raises:
            ValueError: keys and records do not match, or `State` refuses.
        """
        self._lock = lock
        self._wakes, timer = wake is not None, timer or LoopTimer()
        self._site = Site(keys, records, policy, book, clock, random_bytes, noise, timer)
        data_directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = book.current.manifest.authority
        state = State(data_directory / STATE_FILE, authority=authority, accept_loss=accept_loss)
        self._background = Background(state, executor)
        self._directory = Directory(
            book, clock=clock, random_bytes=random_bytes, transport=transport
        )
        repair = Repair(self._background, report, random_bytes)
        self._delivery = Delivery(
            self._background, report, bulk=bulk, concurrency=concurrency, behind=repair.note_behind
        )
        self._enrolment = Enrolment(self._site, self._background, self._directory, report, bulk)
        self._leaving = Leaving(self._site, self._background, self._directory, report, bulk)
        self._next_rounds = NextRounds(self._directory, wake)
        self._judging = Judging(wake)
        self._answering = Answering(
            self._site,
            self._background,
            self._directory,
            self._delivery,
            repair,
            self._next_rounds,
            self._judging,
            self._leaving,
            report,
        )
        self._crowds = TakingPart(self._site, self._background, self._directory, report)
        self._crowd_step = Beside(self._crowds.step)
        self._looks_for_jobs_at = -math.inf  # by the timer

    @classmethod
    def open(
        cls,
        site: str | PathLike[str],
        consortium: str | PathLike[str],
        data: str | PathLike[str],
        *,
        client_column: str | None = None,
        report: Report = silent,
        accept_loss: str | None = None,
    ) -> Self:
        """Open a data holder from its directory, the consortium's, and one for its state.

        `site` holds clients.key, records.csv, policy.toml and pin. Only the columns that the
        policy allows are read. One row is one client's record; with `client_column`, rows with
        the same text there are one client's. The keys are locked until the data holder is closed.

        Raises:
            ValueError: a file is broken, does not fit the others, or the keys are in use.
            StartupRefused: no manifest is pinned, or the consortium has none with that digest.
            OSError: a file cannot be read.
        """
        home, state = Path(site), Path(data)
        policy = Policy.from_toml(home / POLICY)
        records = Records.from_csv(home / RECORDS, policy.columns, client_column=client_column)
        book = ManifestBook.open(Path(consortium), read_pin(home), state)
        lock = lock_keys(home / CLIENT_KEYS)
        try:
            return cls(
                keys=read_client_keys(home / CLIENT_KEYS),
                records=records,
                policy=policy,
                book=book,
                data_directory=state,
                report=report,
                lock=lock,
                accept_loss=accept_loss,
            )
        except BaseException:
            lock.close()
            raise

    @property
    def policy(self) -> Policy:
        """Return the owner's rules."""
        return self._site.policy

    async def step(self) -> None:
        """Do all that is due now, once. A peer's failure raises nothing: it is tried again later.

        Crowd jobs are worked on beside the rounds, and beside later steps if it takes long.

        Raises:
            sqlite3.Error: the state cannot be read or written.
        """
        self._crowd_step.begin()
        self._delivery.open_slots()
        more = True
        while more:  # between the portions of a round that takes long, others' deadlines are kept
            await self._look_for_jobs()
            await self._answering.fetch_rounds()
            more = await self._answering.answer_rounds()
        await self._crowd_step.wait(0.0 if self._wakes else CROWD_PATIENCE_SECONDS)

    async def _look_for_jobs(self) -> None:
        """Look for jobs, and see joins through; not each time that a round wakes the holder."""
        if self._wakes:
            now = self._site.timer.now()
            if now < self._looks_for_jobs_at:
                return
            self._looks_for_jobs_at = now + BETWEEN_LOOKS_SECONDS
        await self._leaving.step()
        await self._enrolment.look_for_jobs()
        await self._enrolment.send_joins()

    def enrolled(self) -> tuple[int, int]:
        """Return how many of the keys here are enrolled now, and how many there are."""
        return len(self._site.positions()), len(self._site.keys)

    async def status(self) -> HolderStatus:
        """Return what was done so far, in counts."""
        return HolderStatus(
            clients=len(self._site.keys),
            enrolled=len(self._site.positions()),
            jobs=await self._background.disk(State.jobs),
            refused=dict(self._enrolment.refused),
            refused_crowds=dict(self._crowds.refused),
            crowds=await self._background.disk(evidence.statuses),
        )

    async def leave(self, job: str) -> Joined:
        """Answer no round of a job any more, for good; return it as it was. Steps tell the trainer.

        Raises:
            UnknownJob: no client here joined it.
            WrongPhase: it has ended here otherwise.
        """
        return await self._leaving.leave(job)

    async def held(self) -> list[exits.Held]:
        """Return what open jobs hold of their clients' budgets, and until when."""
        return await self._background.disk(lambda state: exits.held(state.file))

    async def spent(self) -> dict[int, list[Cost]]:
        """Return what each client that ever answered has spent, round by round."""
        return await self._background.disk(State.spent)

    async def committed(self) -> Mapping[int, Cost]:
        """Return what each client has spent, and what open jobs may still ask of it."""
        return await self._background.disk(State.committed)

    async def spent_on_crowds(self) -> accounts.CrowdAccounts:
        """Return what crowd jobs cost so far, job by job, and what is left to records."""
        return await self._background.disk(accounts.so_far, self._site)

    async def crowd_evidence(self, job: str, *, receipts: bool) -> CrowdEvidence | None:
        """Return what the trainer showed of a crowd job, None if it was never taken here."""
        return await self._background.disk(evidence.shown_here, job, receipts=receipts)

    async def ledger(self, *, after: int = 0, count: int = 1000) -> list[ClientCharge]:
        """Return up to `count` clients' charges that follow the one with the number `after`."""
        return await self._background.disk(State.charges, after=after, count=count)

    async def chain(self, *, after: int = 0, count: int = 1000) -> list[LedgerEntry]:
        """Return up to `count` entries of the hash-chained ledger that follow entry `after`."""
        return await self._background.disk(State.chain, after=after, count=count)

    async def close(self) -> None:
        """Close connections and state. Nothing is written here: being killed costs nothing more."""
        await self._crowd_step.end()
        await self._judging.close()
        await self._next_rounds.follow(())
        await self._directory.close()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    def _release(self) -> None:
        self._background.close()
        if self._lock is not None:
            self._lock.close()  # the state first: who holds the lock finds it free

    def run(
        self, *, until: Callable[[HolderStatus], bool] | None = None, poll_seconds: float = 1.0
    ) -> HolderStatus:
        """Step every `poll_seconds` until `until` is true of the status; None is for ever.

        For programs without an event loop: `with DataHolder.open(...) as holder: holder.run()`.
        An interrupt (Ctrl-C) ends it too. Returns the status at the end.
        """
        with suppress(KeyboardInterrupt):
            asyncio.run(self._run(until, poll_seconds))
        return asyncio.run(self.status())

    async def _run(self, until: Callable[[HolderStatus], bool] | None, poll_seconds: float) -> None:
        try:
            await self.step()
            while until is None or not until(await self.status()):
                await asyncio.sleep(poll_seconds)
                await self.step()
        finally:
            await self._crowd_step.end()
            await self._directory.close()  # connections belong to this event loop

"""The data holder: starts its vault and runs the parts of the courier, each in its own module.

vault_link   asks the vault, which decides and remembers
mail         carries the vault's letters, and brings back the answers
directory    the peers, and newer manifests
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Final, Self

import httpx
import nacl.utils
from nacl.signing import SigningKey

from shoal_agent.directory import Directory, MemoryLost, ShutOut
from shoal_agent.mail import Mail
from shoal_agent.status import (
    AskingView,
    HolderStatus,
    JobView,
    job_view,
)
from shoal_agent.vault_link import VaultLink, VaultPipes
from shoal_holder.approvals import Approvals
from shoal_holder.crowds.jobs import CrowdJobs
from shoal_holder.crowds.status import CrowdStatus
from shoal_holder.faults import VaultFailed
from shoal_holder.jobs import Jobs
from shoal_holder.messages import Standing
from shoal_holder.opening import open_vault
from shoal_holder.policy import Policy
from shoal_holder.records import Records
from shoal_holder.settings import Settings
from shoal_holder.site import Site, Sources
from shoal_holder.status import Report, silent
from shoal_holder.vault import Vault
from shoal_kit.clock import Clock, system_clock
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.startup import read_pin
from shoal_protocol.journal import Shown
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.errors import ProtocolError

WAITING: Final = "nothing is joined or answered until a node says what it charged the slots here"
COURIER: Final = "courier"
"""In the data directory: what the process that talks to others keeps, which is manifests."""
IN_THIS_PROCESS: Final = "none: in the process that talks to others"


class DataHolder:
    """Takes part in jobs for one or more clients, as far as the owner's policy and ledger allow."""

    def __init__(
        self,
        vault: VaultLink,
        book: ManifestBook,
        *,
        clock: Clock = system_clock,
        random_bytes: RandomBytes = nacl.utils.random,
        transport: httpx.AsyncBaseTransport | None = None,
        report: Report = silent,
        wake: asyncio.Event | None = None,
    ) -> None:
        """Take part by a vault that is open; `clock` and `random_bytes` are the courier's.

        With `wake`, rounds are asked for by long polls, and `wake` is set when there is a step to
        take.
        """
        self.vault = vault
        """For what its owner may ask of it, beside what stands here."""
        self._report = report
        self._directory = Directory(
            book,
            vault,
            clock=clock,
            random_bytes=random_bytes,
            transport=transport,
            report=report,
        )
        self._mail = Mail(vault, self._directory, clock, report, wake)
        self._has_told = False  # that it waits for a node

    @classmethod
    def open(
        cls,
        site: str | PathLike[str],
        consortium: str | PathLike[str],
        data: str | PathLike[str],
        *,
        id_column: str | None = None,
        report: Report = silent,
        without_nodes: Collection[str] = (),
    ) -> Self:
        """Open a data holder from its directory, the consortium's, and one for its state.

        `site` holds holder.key, policy.toml, pin, and records.csv or what `shoal records load`
        wrote. Only the columns that the policy allows are read, by the vault, which is another
        process without network. Rows of records.csv with the same text in `id_column`, or
        without one in a column `id`, are one client's record.
        The key is locked until the data holder is closed.

        Raises:
            ValueError: a file is broken, does not fit the others, or the key is in use.
            StartupRefused: no manifest is pinned, or the consortium has none with that digest.
        """
        home = Path(site)
        settings = Settings(
            party=home,
            consortium=Path(consortium),
            data=Path(data),
            agent_id_column=id_column,
            without_nodes=",".join(without_nodes) or None,
        )
        book = ManifestBook.open(Path(consortium), read_pin(home), Path(data) / COURIER)
        return cls(VaultLink(VaultPipes.start(settings), report), book, report=report)

    @classmethod
    def inside(
        cls,
        *,
        key: SigningKey,
        next_key: SigningKey | None = None,
        records: Records,
        policy: Policy,
        book: ManifestBook,
        data_directory: Path,
        clock: Clock = system_clock,
        random_bytes: RandomBytes = nacl.utils.random,
        sources: Sources,
        transport: httpx.AsyncBaseTransport | None = None,
        report: Report = silent,
        wake: asyncio.Event | None = None,
        without_nodes: Collection[str] = (),
    ) -> Self:
        """Return a data holder with a vault in this process, for tests and simulations.

        Each client of `records` has one of the slots that the roster gives the holder of `key`, by
        its id. The vault is asked the same questions as another process, and has its own
        `sources` of time and chance. It goes over to `next_key` with the manifest that has that one
        in the place of `key`. What must survive a crash is in `data_directory`, which one process
        uses at a time: whatever moment it is stopped at, the next one goes on from there.
        Compute nodes in `without_nodes` are not asked what they charged; one of the others must
        answer before anything is joined or answered.

        Raises:
            ValueError: there are more clients than slots, or the state cannot be used.
        """

        def in_force(roster: Roster) -> SigningKey:
            if next_key is None or roster.holder_with(next_key.verify_key) is None:
                return key
            return next_key

        site = Site(in_force, records, policy, book, sources)
        vault = open_vault(
            site,
            data_directory,
            isolation=IN_THIS_PROCESS,
            without_nodes=without_nodes,
        )
        return cls(
            VaultLink(vault, report),
            book,
            clock=clock,
            random_bytes=random_bytes,
            transport=transport,
            report=report,
            wake=wake,
        )

    async def step(self) -> None:
        """Do all that is due now, once. A peer's failure is not raised, but retried later.

        Raises:
            VaultGone: the vault has ended, or its state cannot be read or written.
            MemoryLost: the ledger lacks what Compute nodes charged; the message says what to do.
            ShutOut: the holder was revoked, or has another key; nobody is asked anything again.
        """
        try:
            await self._step()
        except* (VaultFailed, ProtocolError) as failed:  # at one question: it goes on with others
            self._report("a step was not finished", reason=str(failed.exceptions[0]))

    async def _step(self) -> None:
        await self._directory.bring_vault_up()
        if self._directory.shut_out is None:
            await self._mail.step()
        if self._directory.shut_out is not None:
            await self._stop_asking()
            raise ShutOut(self._directory.shut_out)
        opened = await self.vault.ask(Vault.opened)
        if opened.refusal is not None:
            raise MemoryLost(opened.refusal)
        self._directory.may_be_behind |= not opened.enrolled  # no job tells of the next version
        if not opened.is_compared and not self._has_told:
            self._has_told = True
            self._report(WAITING, reason="; ".join(self._mail.unheard.values()))

    async def backup(self) -> bytes:
        """Return a backup of what a restore needs, sealed to the owner's recovery key.

        Raises:
            ProtocolError: there is no recovery key, or more than a backup can hold.
        """
        return await self.vault.ask(Vault.backup)

    async def leave(self, job: str) -> None:
        """Answer no round of a job any more, for good. Steps tell the trainer.

        Raises:
            UnknownJob: it was not joined here.
            WrongPhase: it has ended here otherwise.
        """
        await self.vault.ask(Jobs.leave, job=job)

    async def approvals(
        self, *, after: int = 0, count: int = 1000, job: str | None = None
    ) -> list[AskingView]:
        """Return jobs that asked the owners, as `Approvals.page`, and who their answers go to."""
        asking = await self.vault.ask(Approvals.page, after=after, count=count, job=job)
        views = [job_view(each.job, each.request, self._directory.parties) for each in asking]
        return [
            AskingView(**dict(each) | dict(view)) for each, view in zip(asking, views, strict=True)
        ]

    async def decide(self, approval: bytes) -> None:
        """Hand over an owner's decision about a job, as a listed key signed it.

        Raises:
            UnknownJob, WrongPhase, MalformedDocument, UnknownSigner, WrongSigner, BadSignature: as
                `Approvals.take`.
        """
        await self.vault.ask(Vault.take, document=approval)

    async def committed(self) -> Mapping[int, Cost]:
        """Return what each client has spent, and what open jobs may still ask of it."""
        return await self.vault.ask(Vault.committed)

    async def chain(self, *, after: int = 0, count: int = 1000) -> list[Shown]:
        """Return up to `count` entries of the hash-chained journal that follow entry `after`."""
        return await self.vault.ask(Vault.chain, after=after, count=count)

    async def status(self) -> HolderStatus:
        """Return what was done so far, in counts."""
        opened = await self.vault.ask(Vault.opened)
        crowds: tuple[dict[str, str], tuple[CrowdStatus, ...]] = {}, ()
        if opened.takes_crowds:
            crowds = await self.vault.ask(CrowdJobs.standing)
        refused, waiting = await self.vault.ask(Jobs.judged)
        return HolderStatus(
            **opened.model_dump(include=set(Standing.model_fields)),
            jobs=await self.vault.ask(Vault.status),
            refused=refused,
            refused_crowds=crowds[0],
            crowds=crowds[1],
            waiting=tuple(sorted(waiting)),
            unheard=dict(self._mail.unheard),
        )

    async def job(self, job: str) -> JobView:
        """Return a job, with its request; raise UnknownJob if it is neither joined nor open."""
        request = await self.vault.ask(Jobs.request, job=job)
        return job_view(job, request, self._directory.parties)

    async def close(self) -> None:
        """Close connections and vault. Nothing is written: being killed costs nothing more."""
        await self._stop_asking()
        self.vault.close()

    async def _stop_asking(self) -> None:
        await self._mail.end()
        await self._directory.close()

    def run(
        self, *, until: Callable[[HolderStatus], bool] | None = None, poll_seconds: float = 1.0
    ) -> HolderStatus:
        """Step every `poll_seconds` until `until` is true of the status; None is for ever.

        For programs without an event loop.
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
            await self._stop_asking()  # connections belong to this event loop

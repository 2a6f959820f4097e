"""Runs crowd jobs' work beside a data holder's steps; loads its code only where needed.

No round waits for it. It is needed where the owner's policy allows crowd jobs, or allowed them
once: the closing of such a job is still to be checked.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Literal

from shoal_agent.directory import Directory
from shoal_agent.vault_link import VaultLink
from shoal_holder.crowds.status import NO_CROWDS, CrowdAccounts, CrowdStatus
from shoal_holder.messages import Told
from shoal_holder.status import Report
from shoal_hosting.clock import Clock
from shoal_protocol.sharing.shares import RandomBytes

if TYPE_CHECKING:
    from shoal_agent.crowds.taking_part import TakingPart


def _taking_part(
    vault: VaultLink,
    directory: Directory,
    clock: Clock,
    random_bytes: RandomBytes,
    report: Report,
) -> "TakingPart":
    from shoal_agent.crowds.taking_part import TakingPart

    return TakingPart(vault, directory, clock, random_bytes, report)


class Beside:
    """Runs one step of crowd jobs' work at a time, which may outlast a data holder's step."""

    def __init__(
        self,
        vault: VaultLink,
        directory: Directory,
        clock: Clock,
        random_bytes: RandomBytes,
        report: Report,
    ) -> None:
        """Begin without a step."""
        self._vault = vault
        self._task: asyncio.Task[None] | None = None
        may_be = vault.opened.takes_crowds
        arguments = (vault, directory, clock, random_bytes, report)
        self._taking_part = _taking_part(*arguments) if may_be else None
        if not may_be:
            report("no crowd jobs", reason=NO_CROWDS)

    @property
    def is_under_way(self) -> bool:
        """Tell whether a step is running, or has ended and its outcome was not read."""
        return self._task is not None

    @property
    def refused(self) -> dict[str, str]:
        """Return the reasons for not contributing to crowd jobs that the trainer lists."""
        return {} if self._taking_part is None else dict(self._taking_part.refused)

    def begin(self) -> None:
        """Start a step unless one is running; raise what the step before raised."""
        self._settle()
        if self._task is None and self._taking_part is not None:
            self._task = asyncio.create_task(self._taking_part.step())

    async def wait(self, patience_seconds: float) -> None:
        """Wait for the step, though not for long; raise what it raised."""
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=patience_seconds)
            self._settle()

    async def end(self) -> None:
        """Cancel the running step."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _settle(self) -> None:
        if self._task is not None and self._task.done():
            done, self._task = self._task, None
            done.result()

    async def statuses(self) -> tuple[CrowdStatus, ...]:
        """Return the status of every crowd job that was ever contributed to."""
        if self._taking_part is None:
            return ()
        found: tuple[CrowdStatus, ...] = await self._told("statuses")
        return found

    async def spent(self) -> CrowdAccounts:
        """Return what crowd jobs cost so far, and what is left to records."""
        if self._taking_part is None:
            return CrowdAccounts((), None)
        found: CrowdAccounts = await self._told("spent")
        return found

    async def _told(self, question: Literal["statuses", "spent"]) -> Any:
        from shoal_holder.crowds.messages import AskOfCrowds
        from shoal_holder.crowds.vault import TOLD

        told = await self._vault.ask(AskOfCrowds(question=question), Told)
        return TOLD[question].validate_json(told.parts[0])

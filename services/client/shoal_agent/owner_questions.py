"""The owner's questions and decisions, which the vault answers."""

from collections.abc import Mapping
from typing import Any

from pyroaring import BitMap

from shoal_agent.directory import Directory
from shoal_agent.job_view import AskingView, asking_view
from shoal_agent.keeping import Keeping, keeping
from shoal_agent.vault_link import VaultLink
from shoal_holder.approvals import JobAsking
from shoal_holder.exits import Joined, ReservedBudget
from shoal_holder.ledger import ClientCharge
from shoal_holder.messages import Ask, AskBackup, Bytes, Decide, Done, Hello, Opened, Told
from shoal_holder.owner_queries import TOLD
from shoal_holder.policy import Policy
from shoal_holder.spending import JobCharges
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.wire.encoding import decode_clients


class OwnerQuestions:
    """What an owner may ask a vault, and tell it."""

    _vault: VaultLink
    _directory: Directory

    async def opened(self) -> Opened:
        """Return the vault's own report: how many slots it has, and how it is isolated."""
        return await self._vault.ask(Hello(), Opened)

    async def refusal(self) -> str | None:
        """Return why nothing is joined or answered and what to do; None if all is well."""
        return (await self.opened()).refusal

    async def policy(self) -> Policy:
        """Return the owner's rules."""
        rules: Policy = await self._told(Ask(question="policy"))
        return rules

    async def keeping(self) -> Keeping:
        """Return what the state keeps, and until when."""
        return keeping(await self._told(Ask(question="kept")))

    async def backup(self) -> bytes:
        """Return a backup of what a restore needs, sealed to the owner's recovery key.

        Raises:
            ProtocolError: there is no recovery key, or more than a backup can hold.
        """
        sealed = await self._vault.ask(AskBackup(), Bytes)
        return sealed.parts[0]

    async def leave(self, job: str) -> Joined:
        """Answer no round of a job any more, for good; return it as it was. Steps tell the trainer.

        Raises:
            UnknownJob: it was not joined here.
            WrongPhase: it has ended here otherwise.
        """
        left: Joined = await self._told(Ask(question="leave", job=job))
        return left

    async def approvals(
        self, *, after: int = 0, count: int = 1000, job: str | None = None
    ) -> list[AskingView]:
        """Return jobs that asked the owners, as `Approvals.page`, and who their answers go to."""
        asked = Ask(question="approvals", after=after, count=count, job=job)
        found: list[JobAsking] = await self._told(asked)
        return [asking_view(each, self._directory.parties) for each in found]

    async def decide(self, approval: bytes) -> None:
        """Hand over an owner's decision about a job, as a listed key signed it.

        Raises:
            UnknownJob, WrongPhase, MalformedDocument, UnknownSigner, WrongSigner, BadSignature: as
                `Approvals.take`.
        """
        await self._vault.ask(Decide(parts=(approval,)), Done)

    async def reserved(self) -> list[ReservedBudget]:
        """Return what open jobs hold of their clients' budgets, and until when."""
        found: list[ReservedBudget] = await self._told(Ask(question="reserved"))
        return found

    async def spent(self) -> dict[int, list[Cost]]:
        """Return what each client that ever answered has spent, round by round."""
        return {client: costs for costs, slots in await self.spent_alike() for client in slots}

    async def spent_alike(self) -> list[tuple[list[Cost], BitMap]]:
        """Return what answers cost, one by one, and the clients whom they cost the same."""
        return [
            ([Cost.stated(*each) for each in costs], decode_clients(slots))
            for slots, costs in await self._told(Ask(question="spent"))
        ]

    async def committed(self) -> Mapping[int, Cost]:
        """Return what each client has spent, and what open jobs may still ask of it."""
        found = await self._told(Ask(question="committed"))
        return {client: Cost.stated(*cost) for client, cost in found.items()}

    async def ledger(self, *, after: int = 0, count: int = 1000) -> list[ClientCharge]:
        """Return up to `count` clients' charges that follow the one with the number `after`."""
        found: list[ClientCharge] = await self._told(
            Ask(question="ledger", after=after, count=count)
        )
        return found

    async def charges(self, *, before: int = 0, count: int = 1000) -> list[JobCharges]:
        """Return what jobs in rounds charged, as `spending.by_job`: up to `count`, newest first."""
        asked = Ask(question="charges", after=before, count=count)
        found: list[JobCharges] = await self._told(asked)
        return found

    async def chain(self, *, after: int = 0, count: int = 1000) -> list[LedgerEntry]:
        """Return up to `count` entries of the hash-chained ledger that follow entry `after`."""
        found: list[LedgerEntry] = await self._told(Ask(question="chain", after=after, count=count))
        return found

    async def _told(self, asked: Ask) -> Any:
        told = await self._vault.ask(asked, Told)
        return TOLD[asked.question].validate_json(told.parts[0])

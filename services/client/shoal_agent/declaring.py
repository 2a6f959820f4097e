"""Hands the trainer the data holder's declaration, anew with each manifest and new records."""

from shoal_agent.directory import Directory
from shoal_agent.vault_link import VaultLink
from shoal_holder.messages import AskSigned, Bytes
from shoal_holder.reporting import Report
from shoal_holder.status import RECORDS_TAKEN
from shoal_hosting.peers.exchange import Unavailable
from shoal_protocol.wire.errors import BadSignature, UnknownManifest


class Declaring:
    """Has the vault sign a declaration, if its owner makes one, until the trainer has judged it."""

    def __init__(self, vault: VaultLink, directory: Directory, report: Report) -> None:
        self._vault = vault
        self._directory = directory
        self._report = report
        self._judged: tuple[str, int] | None = None  # under which manifest, of which records

    async def step(self) -> None:
        """Send what is to be declared, unless it was."""
        now = self._directory.manifest, self._vault.told[RECORDS_TAKEN]
        trainer = self._directory.trainer_apart("declarations")
        if now == self._judged or not trainer.is_due:
            return
        signed = (await self._vault.ask(AskSigned(what="declaration"), Bytes)).parts
        if signed:
            try:
                answer = await trainer.post("/v1/declarations", signed[0], "application/json")
            except Unavailable as error:
                self._report("declaration not sent", reason=str(error))
                return
            self._report("declaration settled", outcome=answer.outcome)
            if answer.code == BadSignature.code:
                self._directory.note_other_key(trainer)
            if answer.code in (UnknownManifest.code, BadSignature.code):
                return  # trainer or holder is behind
        self._judged = now

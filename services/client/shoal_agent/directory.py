"""Connects to the peers of the manifest in force, and brings newer manifests to agent and vault."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Final

import httpx

from shoal_agent.vault_link import VaultLink
from shoal_holder.status import Report
from shoal_holder.vault import Vault
from shoal_kit.clock import Clock
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.peers.exchange import Reply, Unavailable
from shoal_kit.peers.peer import Peer, of_former_trainers
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import Manifest, ServiceParty
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    ProtocolError,
    RevokedHolder,
    UnknownSigner,
    WrongManifest,
)

BETWEEN_LOOKS: Final = timedelta(minutes=1)
"""How often a Compute node is asked for a newer manifest: a trainer that was replaced, and whoever
else holds a version back, shows none."""


class MemoryLost(Exception):
    """The vault takes part in nothing for now; the message says why, and what to do."""


class ShutOut(Exception):
    """No party takes this holder's messages again; the message says why, and what to do."""


class Directory:
    """Connections to the parties of the current manifest, opened when they are first needed."""

    def __init__(
        self,
        book: ManifestBook,
        vault: VaultLink,
        *,
        clock: Clock,
        random_bytes: RandomBytes,
        transport: httpx.AsyncBaseTransport | None,
        report: Report,
    ) -> None:
        self._book = book
        self._vault = vault
        self._clock = clock
        self._random_bytes = random_bytes
        self._transport = transport
        self._report = report
        self._peers: dict[tuple[str, ServiceParty], Peer] = {}  # by purpose and party
        self._handed = -1  # the newest version that the vault has from here
        self._handing = asyncio.Lock()
        self.may_be_behind = False
        """Whether to ask for newer versions before anything else."""
        self._looked_at, self._looks = clock(), 0
        self._looking: asyncio.Task[None] | None = None
        self.shut_out: str | None = None
        """Why no party takes this holder's messages again, and what to do: nobody is asked."""

    async def ask(self, peer: Peer, path: str, **parameters: int) -> Reply:
        """Return a party's answer; if it is a trainer that knows no such job, a former trainer's.

        Raises:
            Unavailable: the party did not answer.
        """
        answer = await peer.get(path, **parameters)
        trainers = {
            each.manifest.trainer.name: each.manifest.trainer for each in self._book.versions
        }
        others = [party for name, party in trainers.items() if name != peer.name]
        with suppress(Unavailable):  # it has ended its jobs, or may be switched off
            return await of_former_trainers(
                answer, others, lambda party: self.party(party.name, path).get(path, **parameters)
            )
        return answer

    @property
    def trainer(self) -> Peer:
        """Return the trainer, over the connections for jobs in rounds."""
        return self._peer(self._book.current.manifest.trainer, "jobs")

    def parties(self, manifest: str) -> Manifest:
        """Return a manifest version, with its parties.

        Raises:
            UnknownManifest: the version was never accepted here.
        """
        return self._book.get(manifest).manifest

    def party(self, name: str, path: str) -> Peer:
        """Return the trainer or Compute node of this name in the newest version that has it.

        A trainer has connections of their own for each kind of thing in its paths.

        Raises:
            UnknownSigner: no version has it.
        """
        for version in reversed(self._book.versions):
            if version.manifest.trainer.name == name:
                return self._peer(version.manifest.trainer, path.split("/")[2])
            for node in version.manifest.compute_nodes:
                if node.name == name:
                    return self._peer(node)
        raise UnknownSigner

    def _peer(self, party: ServiceParty, purpose: str = "") -> Peer:
        if (purpose, party) not in self._peers:
            self._peers[purpose, party] = Peer(
                party,
                clock=self._clock,
                random_bytes=self._random_bytes,
                transport=self._transport,
                book=self._book,
            )
        return self._peers[purpose, party]

    async def close(self) -> None:
        """Close all connections; they are opened again when needed."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
            self._looking = None
        while self._peers:
            _, peer = self._peers.popitem()
            await peer.close()

    def note_refusal(self, peer: Peer, code: str) -> None:
        """Note that a peer refused something, by the code of its problem."""
        # it knows no key of this holder, or another: one of us missed a manifest
        if code in (BadSignature.code, RevokedHolder.code):
            peer.pause()
            self.may_be_behind = True

    async def bring_vault_up(self) -> None:
        """Hand the vault the versions that it has not accepted, one after another.

        Raises:
            ProtocolError: one is no version that follows the vault's.
        """
        if self.shut_out is not None:
            return
        if self.may_be_behind or self.trainer.is_away:
            with suppress(Unavailable, MalformedDocument, WrongManifest, BadSignature):
                await self.catch_up()
                self.may_be_behind = False
        self._look()
        current = self._book.current.manifest.sequence
        if self._handed == current:
            return
        async with self._handing:
            while (opened := await self._vault.ask(Vault.opened)).sequence < current:
                version = self._book.version(opened.sequence + 1)
                document, roster = version.signed_manifest.encode(), version.roster.encode()
                await self._vault.ask(Vault.take, document=document, roster=roster)
        self._handed = current
        self.shut_out = opened.refusal if opened.is_shut_out else None

    def _look(self) -> None:
        """Begin to ask the next node in turn for a newer manifest, if it is time; wait for none."""
        now = self._clock()
        if timedelta(0) <= now - self._looked_at < BETWEEN_LOOKS:
            return
        if self._looking is None or self._looking.done():
            nodes = self._book.current.manifest.compute_nodes
            node = self._peer(nodes[self._looks % len(nodes)])
            self._looking = asyncio.create_task(_ask_for_newer(node))
            self._looked_at, self._looks = now, self._looks + 1

    async def catch_up(self) -> None:
        """Accept the versions that follow ours: the trainer's, or a node's if it does not answer.

        Raises:
            Unavailable: nobody answered.
            ProtocolError: what it sent is no manifest that follows ours.
            OSError: a manifest could not be stored.
        """
        *others, last = map(self._peer, self._book.current.manifest.compute_nodes)
        for peer in (self.trainer, *others):
            with suppress(Unavailable):
                return await peer.catch_up()
        await last.catch_up()


async def _ask_for_newer(node: Peer) -> None:
    with suppress(Unavailable, ProtocolError, OSError):  # the next one is asked soon
        await node.catch_up()

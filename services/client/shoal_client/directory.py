"""The peers of the manifest in force, and how a newer manifest comes in; trusts its chain only."""

import httpx

from shoal_client.clock import Clock
from shoal_client.peer import NOT_FOUND, OK, Peer
from shoal_hosting.manifest_book import ManifestBook
from shoal_protocol.errors import MalformedDocument
from shoal_protocol.manifest import ServiceParty
from shoal_protocol.sharing import RandomBytes


class Directory:
    """Connections to the parties of the current manifest, opened when they are first needed."""

    def __init__(
        self,
        book: ManifestBook,
        *,
        clock: Clock,
        random_bytes: RandomBytes,
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._book = book
        self._clock = clock
        self._random_bytes = random_bytes
        self._transport = transport
        self._peers: dict[ServiceParty, Peer] = {}
        self._crowd_peers: dict[ServiceParty, Peer] = {}

    @property
    def trainer(self) -> Peer:
        """Return the trainer."""
        return self._peer(self._book.current.manifest.trainer)

    @property
    def crowd_trainer(self) -> Peer:
        """Return the trainer by connections of their own: its pauses there hold up no round."""
        return self._peer(self._book.current.manifest.trainer, self._crowd_peers)

    def nodes(self, manifest: str) -> list[Peer]:
        """Return the Compute nodes of a manifest version, in its order.

        Raises:
            UnknownManifest: the version was never accepted here.
        """
        return [self._peer(node) for node in self._book.get(manifest).manifest.compute_nodes]

    def _peer(self, party: ServiceParty, known: dict[ServiceParty, Peer] | None = None) -> Peer:
        peers = self._peers if known is None else known
        if party not in peers:
            peers[party] = Peer(
                party,
                clock=self._clock,
                random_bytes=self._random_bytes,
                transport=self._transport,
            )
        return peers[party]

    async def close(self) -> None:
        """Close all connections; they are opened again when needed."""
        for peers in (self._peers, self._crowd_peers):
            while peers:
                _, peer = peers.popitem()
                await peer.close()

    async def catch_up(self) -> None:
        """Ask the trainer for the versions that follow ours, and accept them one after another.

        The authority's signature decides, so it does not matter who relays them.

        Raises:
            Unavailable: the trainer did not answer.
            ProtocolError: what it sent is no manifest that follows ours.
            OSError: a manifest could not be stored.
        """
        while True:
            following = self._book.current.manifest.sequence + 1
            answer = await self.trainer.get(f"/v1/manifests/{following}")
            if answer.status == NOT_FOUND:
                return
            if answer.status != OK:
                raise MalformedDocument("the trainer shows no manifest")
            named = self._book.current.announced(answer.body).body.roster
            if named.digest == self._book.current.manifest.roster.digest:
                roster = self._book.current.roster.encode()
            else:
                path = f"/v1/rosters/{named.digest}"
                came = await self.trainer.get_large(path, limit_bytes=named.size_bytes)
                if came.status != OK:
                    raise MalformedDocument("the trainer shows no roster")
                roster = came.body
            self._book.accept(answer.body, roster)

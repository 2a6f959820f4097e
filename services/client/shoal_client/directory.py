"""The peers of the manifest in force, and how a newer manifest comes in; trusts its chain only."""

import base64
import binascii

import httpx

from shoal_client.clock import Clock
from shoal_client.peer import OK, Peer
from shoal_hosting.manifest_book import ManifestBook
from shoal_protocol.encoding import canonical_json
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

    @property
    def trainer(self) -> Peer:
        """Return the trainer."""
        return self._peer(self._book.current.manifest.trainer)

    def nodes(self, manifest: str) -> list[Peer]:
        """Return the Compute nodes of a manifest version, in its order.

        Raises:
            UnknownManifest: the version was never accepted here.
        """
        return [self._peer(node) for node in self._book.get(manifest).manifest.compute_nodes]

    def _peer(self, party: ServiceParty) -> Peer:
        if party not in self._peers:
            self._peers[party] = Peer(
                party,
                clock=self._clock,
                random_bytes=self._random_bytes,
                transport=self._transport,
            )
        return self._peers[party]

    async def close(self) -> None:
        """Close all connections; they are opened again when needed."""
        while self._peers:
            _, peer = self._peers.popitem()
            await peer.close()

    async def catch_up(self) -> None:
        """Ask the trainer for its manifest and accept it if it is the next one of our chain.

        The authority's signature decides, so it does not matter who relays it.

        Raises:
            Unavailable: the trainer did not answer.
            ProtocolError: what it sent is no manifest that follows ours.
            OSError: the manifest could not be stored.
        """
        answer = await self.trainer.get("/v1/manifest")
        if answer.status != OK:
            raise MalformedDocument("the trainer shows no manifest")
        bundle = answer.json()
        if not isinstance(bundle, dict) or bundle.keys() != {"manifest", "roster"}:
            raise MalformedDocument("a manifest comes with its roster")
        try:
            manifest = canonical_json(bundle["manifest"])
            roster = base64.b64decode(bundle["roster"], validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise MalformedDocument("a manifest comes with its roster") from None
        self._book.accept(manifest, roster)

"""Tells a sender which of its envelopes are stored; it takes none, and knows no share."""

from shoal_compute.round_book import RoundBook
from shoal_compute.shares import stored_digests
from shoal_hosting.storage import StorageThread
from shoal_protocol.held import decode_query


class HeldQueries:
    """Answers from what is on file, not from memory: that is what a freeze would attest."""

    def __init__(self, rounds: RoundBook, storage: StorageThread) -> None:
        self._rounds = rounds
        self._storage = storage

    async def answer(self, round_id: str, body: bytes) -> list[bool]:
        """Return, for each (client, digest) in `body`, whether that very envelope is stored.

        Raises:
            MalformedQuery, UnknownRound, StorageUnavailable
        """
        entries = decode_query(body)
        await self._rounds.find(round_id)
        clients = sorted({client for client, _ in entries})
        stored = await self._storage.run(stored_digests, round_id, clients) if clients else {}
        return [stored.get(client) == digest for client, digest in entries]

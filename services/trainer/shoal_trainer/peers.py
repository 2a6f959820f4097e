"""The trainer's side of HTTP: announces rounds and asks for their outcomes.

Answers are bytes from another organisation: bounded here, verified by whoever asked.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.manifest_exchange import exchange
from shoal_kit.peers.exchange import Connections, Reply, Unavailable
from shoal_protocol.rounds.round_spec import LARGEST_DIMENSION, RoundSpec
from shoal_protocol.trust.manifest import Consortium, ServiceParty
from shoal_protocol.wire.errors import (
    BadSignature,
    ProtocolError,
    UnknownManifest,
    WrongManifest,
)
from shoal_protocol.wire.service_errors import MissingRequest


def _document_limit_bytes(dimension: int) -> int:
    # base64 of 8 bytes for each coordinate, and room for the rest of the document
    return dimension * 8 * 4 // 3 + (1 << 16)


HANDED_LIMIT_BYTES: Final = 1 << 20  # a total names each round of its job, of 10,000 at most
ANSWER_LIMIT_BYTES: Final = _document_limit_bytes(LARGEST_DIMENSION)
LONG_POLL_SECONDS: Final = 25
REACH_SECONDS: Final = 5.0  # until a service that does not answer counts as away
ANSWER_SECONDS: Final = 15.0  # for an answer's head to come, and as long for its body: no peer
# that drips them holds up a job for longer
# they ask for another try, unlike the rest of 400 to 499
_TRY_AGAIN: Final = frozenset({408, 421, 425, 429})
# what a party answers that has another version: a key may be another one there
_BEHIND: Final = frozenset({WrongManifest.code, UnknownManifest.code, BadSignature.code})
_OPEN: Final = {WrongManifest.code, MissingRequest.code}  # the next offer may be accepted
_LONGEST_REASON: Final = 250  # characters of a party's own words, which a job's reason has


@dataclass(frozen=True)
class Reception:
    """Which services have accepted a round, and the words of one that refused it.

    `open` says why others have done neither, by name.
    """

    accepted: frozenset[str] = frozenset()
    refusal: str | None = None
    open: dict[str, str] = field(default_factory=dict)


class Peers:
    """Sends the trainer's requests to the services of the consortium."""

    def __init__(self, connections: Connections, book: ManifestBook) -> None:
        """Ask over `connections`; who has other versions than `book` is brought to the same."""
        self._connections, self._book = connections, book

    async def announce(
        self,
        spec: bytes,
        consortium: Consortium,
        *,
        request: bytes,
        asked_under: Consortium,
        informed: set[str],
        without: frozenset[str],
    ) -> Reception:
        """Offer a signed spec to all services at once but those that accepted it already.

        Compute nodes that are not among the `informed` are handed the job's signed request before,
        of the version `asked_under`. Those that accept the round are informed from then on.
        """
        manifest = consortium.manifest
        parties = [
            party
            for party in (manifest.aggregator, *manifest.compute_nodes)
            if party.name not in without
        ]
        offer = ("/v1/rounds", spec, consortium)
        nodes = {node.name for node in manifest.compute_nodes}
        answers = await asyncio.gather(
            *(
                self._offer(
                    party,
                    [("/v1/jobs", request, asked_under), offer]
                    if party.name in nodes - informed
                    else [offer],
                )
                for party in parties
            )
        )
        told = {party.name: said for party, said in zip(parties, answers, strict=True)}
        informed.difference_update(told)
        informed.update(name for name, (taken, _) in told.items() if taken)
        refusals = [
            f"{name} refused the round: {why}"
            for name, (taken, why) in told.items()
            if taken is False
        ]
        return Reception(
            without | {name for name, (taken, _) in told.items() if taken},
            refusals[0] if refusals else None,
            {name: why for name, (taken, why) in told.items() if taken is None},
        )

    async def reach(self, parties: Sequence[ServiceParty]) -> dict[str, str | None]:
        """Return why services cannot do their work now, by name; None if they can."""
        answers = await asyncio.gather(*map(self._reached, parties))
        return {party.name: why for party, why in zip(parties, answers, strict=True)}

    async def _reached(self, party: ServiceParty) -> str | None:
        try:
            async with asyncio.timeout(REACH_SECONDS):
                reply = await self._send(party, "GET", "/readyz")
        except TimeoutError:
            return "no answer in time"
        except Unavailable as error:
            return str(error)
        return None if reply.status == 200 else reply.reason[:_LONGEST_REASON]

    async def _offer(
        self, party: ServiceParty, documents: Sequence[tuple[str, bytes, Consortium]]
    ) -> tuple[bool | None, str]:
        """Tell whether the party accepted these, None if that is open, and why it did not.

        The offer is also open where the party lost the job's request, or has another manifest than
        ours: its version may be the newer one, which will reach us.
        """
        for document in documents:
            try:
                reply = await self._hand_bound(party, *document)
            except Unavailable as error:
                return None, str(error)
            if reply.status not in {200, 201}:
                again = reply.status in _TRY_AGAIN or reply.code in _OPEN
                is_refused = 400 <= reply.status < 500 and not again
                return False if is_refused else None, reply.reason[:_LONGEST_REASON]
        return True, ""

    async def total(self, party: ServiceParty, end: bytes, consortium: Consortium) -> bytes:
        """Have a Compute node sign what it charged of a job, at the trainer's signed `end` of it.

        Raises:
            Unavailable
        """
        reply = await self._hand_bound(party, "/v1/totals", end, consortium)
        if reply.status != 200:
            raise Unavailable("the node signs no total now")
        return reply.body

    async def outcome(
        self, aggregator: ServiceParty, spec: RoundSpec, *, wait_seconds: int
    ) -> bytes | None:
        """Return a round's outcome, unverified; None while it is open.

        The aggregator answers once it has decided, after `wait_seconds` at the latest.

        Raises:
            Unavailable
        """
        query = f"?wait={wait_seconds}" if wait_seconds else ""
        reply = await self._send(
            aggregator,
            "GET",
            f"/v1/rounds/{spec.digest}/outcome{query}",
            limit_bytes=(len(spec.compute_nodes) + 1) * _document_limit_bytes(spec.dimension),
            wait_seconds=wait_seconds,
        )
        if reply.status not in (200, 202):
            raise Unavailable("the aggregator says nothing of the round")
        return reply.body if reply.status == 200 else None

    async def _hand_bound(
        self, party: ServiceParty, path: str, document: bytes, consortium: Consortium
    ) -> Reply:
        """Hand a party a document that is bound to a version, and that version if it lacks it.

        Raises:
            Unavailable: or it does not take the version.
        """
        reply = await self._send(party, "POST", path, document, limit_bytes=HANDED_LIMIT_BYTES)
        if 400 <= reply.status < 500 and reply.code in _BEHIND:
            # it may not have heard of the version, or we of a later one: anyone may relay that
            try:
                is_told = await exchange(self._connections.to(party), self._book)
            except (ProtocolError, OSError) as error:
                raise Unavailable("it shows no manifest that follows") from error
            if is_told:
                reply = await self._send(
                    party, "POST", path, document, limit_bytes=HANDED_LIMIT_BYTES
                )
        return reply

    async def _send(
        self,
        party: ServiceParty,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        limit_bytes: int = ANSWER_LIMIT_BYTES,
        wait_seconds: int = 0,
    ) -> Reply:
        return await self._connections.to(party).ask(
            method, path, content, limit_bytes=limit_bytes, wait_seconds=wait_seconds
        )

"""Sending again what was sent before: to the same node, another node, another round, at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from shoal_kit.outcome import CREATED, OK
from shoal_protocol.sharing.envelope import frame
from shoal_protocol.wire.errors import BadSignature
from shoal_protocol.wire.service_errors import WrongNode, WrongRound
from shoal_redteam.attack import Attack
from shoal_redteam.findings import Finding, refused, seen
from shoal_redteam.played_round import begin
from shoal_redteam.target import BYTES, Target

COPIES: Final = 12


class Replay(Attack):
    """An envelope that somebody recorded is sent again."""

    name = "replay"
    liar = "anybody who recorded a message"
    tries = "the same envelope again, many at once, at another node, in another round"
    stopped_by = "one envelope per client and round; wrong-node, wrong-round, bad-signature"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Replay into rounds that then must release each answer once."""
        first, second = await begin(target), await begin(target)
        node, another = target.nodes[:2]
        victim, *others = first.clients
        recorded = first.sent[victim] = first.contribution(victim)
        envelope = recorded.envelopes[0]
        copies = await asyncio.gather(*(first.upload(0, envelope) for _ in range(COPIES)))
        statuses = [each.status for each in copies]
        body = frame([envelope] * COPIES)
        bulk = await target.send(node, f"{first.path}/shares/bulk", body, BYTES)
        yield seen(
            f"{COPIES} copies of an envelope at once, or on different replicas",
            stopped=sorted(statuses) == [OK] * (COPIES - 1) + [CREATED],
            answered=f"{node}: {statuses.count(CREATED)} stored, {statuses.count(OK)} known",
            check="one share per client and round, on disk before it is acknowledged",
        )
        known = [each["status"] for each in bulk.json().get("outcomes", [])]
        yield seen(
            f"{COPIES} copies in one body",
            stopped=known == [OK] * COPIES,
            answered=f"{node}: {known.count(CREATED)} stored, {known.count(OK)} known",
            check="one share per client and round, on disk before it is acknowledged",
        )
        yield refused(
            "the envelope for one node at another",
            {another: await first.upload(1, envelope)},
            by={WrongNode.code},
            check="the envelope's header names its node",
        )
        yield refused(
            "the envelope of one round in another",
            {node: await second.upload(0, envelope)},
            by={WrongRound.code},
            check="the envelope's header names its round",
        )
        rewritten = envelope[:44] + bytes.fromhex(second.signed.digest) + envelope[76:]
        yield refused(
            "the same with the other round written into its header",
            {node: await second.upload(0, rewritten)},
            by={BadSignature.code},
            check="the client signed the header",
        )
        for index in range(1, len(target.nodes)):
            await first.upload(index, recorded.envelopes[index])
        await first.answer(others)
        await second.answer(second.clients)
        for tried, played in {"": first, ", the other round": second}.items():
            yield seen(
                f"the total after all this{tried}",
                stopped=await played.released_exactly(played.clients),
                answered=f"{target.aggregator}: the sum that counts each answer once",
                check="the shares are those that were acknowledged, once each",
            )
        yield seen(
            "the envelope once more after the result",
            stopped=(await first.upload(0, envelope)).status == OK
            and await first.released_exactly(first.clients),
            answered=f"{node}: known; the result is what it was",
            check="a round that is over takes nothing",
        )

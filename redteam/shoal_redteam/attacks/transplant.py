"""Moving a sealed box under another header: another data holder, node, round or answer."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from nacl.signing import SigningKey

from shoal_protocol.sharing.envelope import Header
from shoal_protocol.sharing.received import parse
from shoal_protocol.wire.encoding import domain
from shoal_protocol.wire.errors import BadSignature
from shoal_protocol.wire.service_errors import TransplantedCiphertext, UnopenableCiphertext
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.played_round import PlayedRound, begin
from shoal_redteam.target import Target

HEADER_BYTES: Final = 92
_SIGNATURE_BYTES: Final = 64
_BOUND: Final = "the box holds the digest of its own header"


def transplanted(envelope: bytes, header: Header, key: SigningKey) -> bytes:
    """Return an envelope with the box of `envelope` under another header, signed anew."""
    content = header.encode() + envelope[HEADER_BYTES:-_SIGNATURE_BYTES]
    return content + key.sign(domain("share_envelope") + content).signature


class Transplant(Attack):
    """A client puts a sealed box that is not its own, or not for this place, under its name."""

    name = "transplant"
    liar = "a client that recorded another's envelope"
    tries = "one client's sealed box under another client's, node's, round's or answer's header"
    stopped_by = "transplanted-ciphertext, unopenable-ciphertext, bad-signature"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Try each header; afterwards the round must release the honest answers and no more."""
        played, other = await begin(target), await begin(target)
        victim, keys = played.clients[0], target.keys.clients
        # the thief is due the same kind of share, so that only the box can give it away
        owner, nodes = target.holder(victim), len(target.nodes)
        others = played.clients[1:]
        alike = [each for each in others if (target.holder(each) - owner) % nodes == 0]
        if not alike:
            raise CannotAttack("no other data holder is due the same kind of share")
        thief = alike[0]
        stolen = played.contribution(victim).envelopes[0]
        header = parse(stolen).header

        async def attempt(
            tried: str,
            changed: Header,
            client: int,
            code: str,
            check: str,
            *,
            to: PlayedRound = played,
        ) -> Finding:
            envelope = transplanted(stolen, changed, keys[client])
            answers = {target.nodes[changed.node]: await to.upload(changed.node, envelope)}
            return refused(tried, answers, by={code}, check=check)

        yield await attempt(
            "under another client's name, signed by that client",
            replace(header, holder=target.holder(thief)),
            thief,
            TransplantedCiphertext.code,
            _BOUND,
        )
        yield await attempt(
            "under another client's name, signed by its owner",
            replace(header, holder=target.holder(thief)),
            victim,
            BadSignature.code,
            "the holder in the header must have signed",
        )
        yield await attempt(
            "in another round of another task, signed by its owner",
            replace(header, round_id=other.signed.digest),
            victim,
            TransplantedCiphertext.code,
            _BOUND,
            to=other,
        )
        yield await attempt(
            "at another node, signed by its owner",
            replace(header, node=1),
            victim,
            UnopenableCiphertext.code,
            "the box is sealed to one node's key",
        )
        answer_id = target.random_bytes(len(header.answer))
        yield await attempt(
            "under another answer id, signed by its owner",
            replace(header, answer=answer_id),
            victim,
            TransplantedCiphertext.code,
            _BOUND,
        )
        exact = True
        for each in (played, other):
            await each.answer(each.clients)
            exact &= await each.released_exactly(each.clients)
        yield seen(
            "the totals of the rounds in which it was tried",
            stopped=exact,
            answered=f"{target.aggregator}: the sum of the honest answers",
            check="nothing of what was transplanted was stored",
        )

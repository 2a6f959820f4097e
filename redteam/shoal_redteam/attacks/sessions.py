"""Speaking under another holder's session: by what was recorded, or by a session of one's own."""

from collections.abc import AsyncIterator, Sequence

from shoal_protocol.sharing.session_envelope import SessionHeader, SessionWrapping, seed_for, wrap
from shoal_protocol.sharing.sessions import (
    Opening,
    Prekey,
    advance,
    hour_for,
    open_session,
)
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.wire.documents import Role, Signed, decode, sign
from shoal_protocol.wire.errors import BadSignature
from shoal_protocol.wire.service_errors import (
    RefusedOpening,
    UnknownSession,
    UnopenableCiphertext,
    WrongNode,
)
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.played_round import PlayedRound, begin
from shoal_redteam.target import Target

Keys = dict[str, bytes]


class Sessions(Attack):
    """A data holder, or who recorded its messages, speaks under another one's session."""

    name = "sessions"
    liar = "a data holder, or anybody who recorded messages"
    tries = "a recorded opening, one in another's name, a notice under another's session"
    stopped_by = "refused-opening, bad-signature, unopenable-ciphertext, unknown-session"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Attack a round that then must release each honest answer once."""
        played = await begin(target, wrapping="session")
        victim, attacker = played.clients[:2]
        prekeys = [await _prekey(target, node) for node in target.nodes]
        number = int(target.clock().timestamp())
        recorded, _ = await _opened(target, victim, prekeys, number)
        newer, keys = await _opened(target, victim, prekeys, number + 1, recorded.digest)
        own, own_keys = await _opened(target, attacker, prekeys, number + 1)
        yield refused(
            "an opening that was recorded, after a newer one",
            await target.tell(target.nodes, "/v1/openings", recorded.encode()),
            by={RefusedOpening.code},
            check="a session's number is higher than all before",
        )
        body, _ = _made(target, victim, prekeys, number + 2, newer.digest)
        forged = sign(body, Role.HOLDER, target.keys.clients[attacker])
        yield refused(
            "an opening in another data holder's name",
            await target.tell(target.nodes, "/v1/openings", forged.encode()),
            by={BadSignature.code},
            check="the data holder signs its openings",
        )
        node = _seed_node(played, victim)
        name, another = target.nodes[node], target.nodes[node - 1]
        under_own_key = _notice(played, victim, node, newer.body.number, own_keys[name])
        yield refused(
            "a notice in another data holder's name, by the key of one's own session",
            {name: await played.upload(node, under_own_key)},
            by={UnopenableCiphertext.code},
            check="the key follows from the holder's session, and authenticates the header",
        )
        of_no_session = _notice(played, victim, node, own.body.number + 9, own_keys[name])
        yield refused(
            "the same under a number that the other has not opened",
            {name: await played.upload(node, of_no_session)},
            by={UnknownSession.code},
            check="only the newest session of a data holder is known",
        )
        notice = _notice(played, victim, node, newer.body.number, keys[name])
        yield refused(
            "a true notice at another node",
            {another: await played.upload(target.nodes.index(another), notice)},
            by={WrongNode.code},
            check="the header names its node",
        )
        moved = notice[:7] + bytes([target.nodes.index(another)]) + notice[8:]
        yield refused(
            "the same with the other node written into its header",
            {another: await played.upload(target.nodes.index(another), moved)},
            by={UnopenableCiphertext.code},
            check="each node has a key of its own",
        )
        await played.answer(played.clients)
        yield seen(
            "the total after all this",
            stopped=await played.released_exactly(played.clients),
            answered=f"{target.aggregator}: the sum that counts each answer once",
            check="nothing was stored in another's name",
        )


async def _prekey(target: Target, node: str) -> Prekey:
    answer = await target.ask(node, "/v1/prekey")
    if answer.is_refusal:
        raise CannotAttack(f"{node} keeps no sessions: {answer.code}")
    return decode(answer.body, Prekey).body


def _made(
    target: Target, client: int, prekeys: Sequence[Prekey], number: int, previous: str | None
) -> tuple[Opening, Keys]:
    return open_session(
        prekeys,
        holder=target.holder(client),
        number=number,
        previous=previous,
        random_bytes=target.random_bytes,
    )


async def _opened(
    target: Target,
    client: int,
    prekeys: Sequence[Prekey],
    number: int,
    previous: str | None = None,
) -> tuple[Signed[Opening], Keys]:
    """Open a session of a client's holder with every node.

    Raises:
        CannotAttack: a node refuses it.
    """
    body, keys = _made(target, client, prekeys, number, previous)
    signed = sign(body, Role.HOLDER, target.keys.clients[client])
    answers = await target.tell(target.nodes, "/v1/openings", signed.encode())
    for name, answer in answers.items():
        if answer.is_refusal:
            raise CannotAttack(f"{name} refuses an honest opening: {answer.code}")
    return signed, keys


def _seed_node(played: PlayedRound, client: int) -> int:
    """Return a node to which the client's holder sends a notice."""
    nodes, holder = len(played.target.nodes), played.target.holder(client)
    kinds = [
        played.spec.sharing.kind_for(holder=holder, node=node, nodes=nodes) for node in range(nodes)
    ]
    return kinds.index(ShareKind.SEED)


def _notice(played: PlayedRound, client: int, node: int, number: int, first: bytes) -> bytes:
    """Return a notice in the name of a client's holder, by the chain that begins with `first`."""
    target, spec = played.target, played.spec
    key = advance(first, hour_for(number, spec.opened_at) - number // 3600)
    header = SessionHeader(
        SessionWrapping.NOTICE,
        node,
        target.holder(client),
        number,
        played.signed.digest,
        target.random_bytes(16),
    )
    share = Share(ShareKind.SEED, seed_for(header, key, manifest=spec.manifest))
    return wrap(share, header, key=key, manifest=spec.manifest)


ATTACKS = (Sessions,)

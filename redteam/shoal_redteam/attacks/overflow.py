"""Clients that lie about what they send: numbers out of bounds, shares that are no shares.

What a client says within the bounds of a possible total is not checked: no proof of range exists
here, and the last finding says so.
"""

from collections.abc import AsyncIterator
from typing import Final

import numpy as np

from shoal_holder.contribution import box_keys
from shoal_protocol.rounds.attestations import Abandonment, Result
from shoal_protocol.rounds.outcomes import is_possible
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import ANSWER_BYTES, Header, seal
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind
from shoal_protocol.wire.encoding import Int64Vector
from shoal_protocol.wire.service_errors import (
    MalformedEnvelope,
    WrongShare,
)
from shoal_redteam.attack import Attack
from shoal_redteam.findings import THREAT_MODEL, CannotAttack, Finding, documented, refused, seen
from shoal_redteam.played_round import PlayedRound, begin
from shoal_redteam.target import Target

_RING: Final = 2**63
_POSSIBLE: Final = "a total that no honest cohort can have is never released: sum_failed"


class Overflow(Attack):
    """A client wants to make the sum wrap around, or to spoil it unseen."""

    name = "overflowing-client"
    liar = "a client"
    tries = "values beyond the bounds, wrap-around, shares of a wrong form or of nothing"
    stopped_by = "wrong-share, sum_failed; not lies within bounds"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Send each lie in place of one honest answer."""
        async for finding in self._malformed(target):
            yield finding
        far = {
            "a value far beyond what the clients together may say": None,
            "a value half the ring away, so that the sum wraps round": _RING - 1,
            "the most negative value that there is": -_RING,
        }
        for tried, value in far.items():
            played = await begin(target)
            vector = np.zeros(played.spec.dimension, np.int64)
            vector[0] = value or 8 * first_impossible(played.spec)
            yield await self._released(played, tried, vector)
        yield await self._of_two_answers(target)
        yield await self._within_bounds(target)

    async def _malformed(self, target: Target) -> AsyncIterator[Finding]:
        played = await begin(target)
        client = next(
            each for each in played.clients if target.holder(each) % len(target.nodes) == 0
        )
        length = 8 * played.spec.dimension
        shares = {
            "a share with a coordinate too many": (ShareKind.VECTOR, length + 8),
            "a share with a coordinate too few": (ShareKind.VECTOR, length - 8),
            "a seed where the whole vector is due": (ShareKind.SEED, SEED_BYTES),
        }
        for tried, (kind, size) in shares.items():
            share = Share(kind, target.random_bytes(size))
            answers = {target.nodes[0]: await played.upload(0, sealed(played, client, 0, share))}
            yield refused(
                tried,
                answers,
                by={WrongShare.code},
                check="a share's kind and length are the spec's",
            )
        whole = sealed(played, client, 0, Share(ShareKind.VECTOR, target.random_bytes(length)))
        yield refused(
            "an envelope that is cut short",
            {target.nodes[0]: await played.upload(0, whole[:100])},
            by={MalformedEnvelope.code},
            check="the layout of an envelope",
        )
        if sharing := threshold_of(target):
            played = await begin(target, sharing=sharing)
            due = ShareKind.VECTOR
            client = next(
                each
                for each in played.clients
                if sharing.kind_for(holder=target.holder(each), node=0, nodes=len(target.nodes))
                is due
            )
            beyond = Share(due, b"\xff" * 8 * played.spec.dimension)
            yield refused(
                "a share that is no residue of the prime",
                {target.nodes[0]: await played.upload(0, sealed(played, client, 0, beyond))},
                by={WrongShare.code},
                check="every coordinate is below the modulus",
            )

    async def _released(self, played: PlayedRound, tried: str, vector: Int64Vector) -> Finding:
        liar, *others = played.clients
        lie = played.contribution(liar, vector=vector)
        for node, envelope in enumerate(lie.envelopes):
            await played.upload(node, envelope)
        await played.answer(others)
        outcome = await played.outcome()
        return seen(
            tried,
            stopped=isinstance(outcome.body, Abandonment)
            and outcome.body.reason.code == "sum_failed"
            and not await played.partial_sums(),
            answered=f"{played.target.aggregator}: {word_of(outcome.body)}",
            check=_POSSIBLE,
        )

    async def _of_two_answers(self, target: Target) -> Finding:
        played = await begin(target)
        liar, *others = played.clients
        spec, nodes = played.spec, len(target.nodes)
        answer = target.random_bytes(ANSWER_BYTES)
        for node in range(nodes):
            kind = spec.sharing.kind_for(holder=target.holder(liar), node=node, nodes=nodes)
            size = SEED_BYTES if kind is ShareKind.SEED else 8 * spec.dimension
            share = Share(kind, target.random_bytes(size))
            await played.upload(node, sealed(played, liar, node, share, answer=answer))
        await played.answer(others)
        outcome = await played.outcome()
        return seen(
            "shares under one answer id that do not belong together",
            stopped=isinstance(outcome.body, Abandonment)
            and outcome.body.reason.code == "sum_failed",
            answered=f"{target.aggregator}: {word_of(outcome.body)}",
            check=_POSSIBLE,
        )

    async def _within_bounds(self, target: Target) -> Finding:
        played = await begin(target)
        liar, *others = played.clients
        vector = np.zeros(played.spec.dimension, np.int64)
        vector[0] = played.spec.query.largest_value * len(others) // 2  # of many clients, alone
        lie = played.sent[liar] = played.contribution(liar, vector=vector)
        for node, envelope in enumerate(lie.envelopes):
            await played.upload(node, envelope)
        await played.answer(others)
        tried = f"{len(others) // 2} times the largest value, within a possible total"
        if await played.released_exactly(played.clients):
            said = f"{target.aggregator}: a result, with the lie in it"
            return documented(tried, answered=said, where=f"{THREAT_MODEL}, A data holder")
        return seen(
            tried,
            stopped=True,
            answered=f"{target.aggregator}: {word_of((await played.outcome()).body)}",
            check="nothing was released",
        )


def first_impossible(spec: RoundSpec) -> int:
    """Return a power of two, next beyond what a coordinate of the total can be."""
    total = np.zeros(spec.dimension, np.int64)
    for bits in range(60):
        total[0] = 1 << bits
        if not is_possible(spec, total, cohort_size=spec.population_size):
            return 1 << bits
    raise CannotAttack("every total is possible")


def sealed(
    played: PlayedRound,
    client: int,
    node: int,
    share: Share,
    *,
    answer: bytes = bytes(ANSWER_BYTES),
) -> bytes:
    """Return an envelope with any share in it, sealed and signed as the client would."""
    header = Header(
        kind=share.kind,
        node=node,
        holder=played.target.holder(client),
        manifest=played.spec.manifest,
        round_id=played.signed.digest,
        answer=answer,
    )
    return seal(
        share,
        header,
        box_key=box_keys(played.target.consortium)[node],
        key=played.target.keys.clients[client],
        random_bytes=played.target.random_bytes,
    )


def threshold_of(target: Target) -> ThresholdSharing | None:
    """Return the sharing with the smallest threshold that the policy allows, if it allows any."""
    nodes = len(target.nodes)
    policy = target.consortium.manifest.policy
    for threshold in range(2, nodes):
        sharing = ThresholdSharing(threshold=threshold)
        if (
            sharing.refusal(
                nodes=nodes, minimum_threshold=policy.minimum_threshold, minimum_committee=None
            )
            is None
        ):
            return sharing
    return None


def word_of(body: object) -> str:
    """Word the aggregator's last word on a round."""
    if isinstance(body, Abandonment):
        return f"abandoned, {body.reason.code}"
    return "a result" if isinstance(body, Result) else "something else"


ATTACKS = (Overflow,)

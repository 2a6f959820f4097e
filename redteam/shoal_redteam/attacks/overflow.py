"""Clients that lie about what they send: numbers out of bounds, shares that are no shares.

What a client says within the bounds of a possible total is not checked: no proof of range exists
here, and the last finding says so.
"""

from collections.abc import AsyncIterator
from typing import Final

import numpy as np

from shoal_holder.contribution import box_keys
from shoal_protocol.rounds.attestations import Abandonment, Result
from shoal_protocol.rounds.possible_sums import is_possible
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.envelope import ANSWER_BYTES, Header, seal
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind
from shoal_protocol.sharing.threshold import ThresholdSharing
from shoal_protocol.wire.encoding import Int64Vector
from shoal_protocol.wire.errors import MalformedEnvelope, WrongLength, WrongResidue, WrongShareKind
from shoal_redteam.attack import Attack
from shoal_redteam.findings import THREAT_MODEL, CannotAttack, Finding, documented, refused, seen
from shoal_redteam.play import Play, begin
from shoal_redteam.stage import Stage

_RING: Final = 2**63
_POSSIBLE: Final = "a total that no honest cohort can have is never released: sum_failed"


class Overflow(Attack):
    """A client wants to make the sum wrap around, or to spoil it unseen."""

    name = "overflowing-client"
    liar = "a client"
    tries = "values beyond the bounds, wrap-around, shares of a wrong form or of nothing"
    stopped_by = "wrong-length, wrong-share-kind, wrong-residue, sum_failed; not lies within bounds"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Send each lie in place of one honest answer."""
        async for finding in self._malformed(stage):
            yield finding
        far = {
            "a value far beyond what the clients together may say": None,
            "a value half the ring away, so that the sum wraps round": _RING - 1,
            "the most negative value that there is": -_RING,
        }
        for tried, value in far.items():
            play = await begin(stage)
            vector = np.zeros(play.spec.dimension, np.int64)
            vector[0] = value or 8 * first_impossible(play.spec)
            yield await self._released(play, tried, vector)
        yield await self._of_two_answers(stage)
        yield await self._within_bounds(stage)

    async def _malformed(self, stage: Stage) -> AsyncIterator[Finding]:
        play = await begin(stage)
        client = next(each for each in play.clients if each % len(stage.nodes) == 0)
        length = 8 * play.spec.dimension
        shares = {
            "a share with a coordinate too many": (ShareKind.VECTOR, length + 8, WrongLength.code),
            "a share with a coordinate too few": (ShareKind.VECTOR, length - 8, WrongLength.code),
            "a seed where the whole vector is due": (
                ShareKind.SEED,
                SEED_BYTES,
                WrongShareKind.code,
            ),
        }
        for tried, (kind, size, code) in shares.items():
            share = Share(kind, stage.random_bytes(size))
            answers = {stage.nodes[0]: await play.upload(0, sealed(play, client, 0, share))}
            yield refused(
                tried, answers, by={code}, check="a share's kind and length are the spec's"
            )
        whole = sealed(play, client, 0, Share(ShareKind.VECTOR, stage.random_bytes(length)))
        yield refused(
            "an envelope that is cut short",
            {stage.nodes[0]: await play.upload(0, whole[:100])},
            by={MalformedEnvelope.code},
            check="the layout of an envelope",
        )
        if sharing := threshold_of(stage):
            play = await begin(stage, sharing=sharing)
            due = ShareKind.VECTOR
            client = next(
                each
                for each in play.clients
                if sharing.kind_for(client=each, node=0, nodes=len(stage.nodes)) is due
            )
            beyond = Share(due, b"\xff" * 8 * play.spec.dimension)
            yield refused(
                "a share that is no residue of the prime",
                {stage.nodes[0]: await play.upload(0, sealed(play, client, 0, beyond))},
                by={WrongResidue.code},
                check="every coordinate is below the modulus",
            )

    async def _released(self, play: Play, tried: str, vector: Int64Vector) -> Finding:
        liar, *others = play.clients
        lie = play.contribution(liar, vector=vector)
        for node, envelope in enumerate(lie.envelopes):
            await play.upload(node, envelope)
        await play.answer(others)
        outcome = await play.outcome()
        return seen(
            tried,
            stopped=isinstance(outcome.body, Abandonment)
            and outcome.body.reason.code == "sum_failed"
            and not await play.partial_sums(),
            answered=f"{play.stage.aggregator}: {word_of(outcome.body)}",
            check=_POSSIBLE,
        )

    async def _of_two_answers(self, stage: Stage) -> Finding:
        play = await begin(stage)
        liar, *others = play.clients
        spec, nodes = play.spec, len(stage.nodes)
        answer = stage.random_bytes(ANSWER_BYTES)
        for node in range(nodes):
            kind = spec.sharing.kind_for(client=liar, node=node, nodes=nodes)
            size = SEED_BYTES if kind is ShareKind.SEED else 8 * spec.dimension
            share = Share(kind, stage.random_bytes(size))
            await play.upload(node, sealed(play, liar, node, share, answer=answer))
        await play.answer(others)
        outcome = await play.outcome()
        return seen(
            "shares under one answer id that do not belong together",
            stopped=isinstance(outcome.body, Abandonment)
            and outcome.body.reason.code == "sum_failed",
            answered=f"{stage.aggregator}: {word_of(outcome.body)}",
            check=_POSSIBLE,
        )

    async def _within_bounds(self, stage: Stage) -> Finding:
        play = await begin(stage)
        liar, *others = play.clients
        vector = np.zeros(play.spec.dimension, np.int64)
        vector[0] = play.spec.query.largest_value * len(others) // 2  # of many clients, alone
        lie = play.sent[liar] = play.contribution(liar, vector=vector)
        for node, envelope in enumerate(lie.envelopes):
            await play.upload(node, envelope)
        await play.answer(others)
        tried = f"{len(others) // 2} times the largest value, within a possible total"
        if await play.released_exactly(play.clients):
            said = f"{stage.aggregator}: a result, with the lie in it"
            return documented(tried, answered=said, where=f"{THREAT_MODEL}, A client")
        return seen(
            tried,
            stopped=True,
            answered=f"{stage.aggregator}: {word_of((await play.outcome()).body)}",
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
    play: Play, client: int, node: int, share: Share, *, answer: bytes = bytes(ANSWER_BYTES)
) -> bytes:
    """Return an envelope with any share in it, sealed and signed as the client would."""
    header = Header(
        kind=share.kind,
        node=node,
        client=client,
        manifest=play.spec.manifest,
        round_id=play.signed.digest,
        answer=answer,
    )
    return seal(
        share,
        header,
        box_key=box_keys(play.stage.consortium)[node],
        key=play.stage.keys.clients[client],
        random_bytes=play.stage.random_bytes,
    )


def threshold_of(stage: Stage) -> ThresholdSharing | None:
    """Return the sharing with the smallest threshold that the policy allows, if it allows any."""
    nodes = len(stage.nodes)
    least = stage.consortium.manifest.policy.minimum_threshold
    for threshold in range(2, nodes):
        sharing = ThresholdSharing(threshold=threshold)
        if sharing.refusal(nodes=nodes, minimum_threshold=least) is None:
            return sharing
    return None


def word_of(body: object) -> str:
    """Word the aggregator's last word on a round."""
    if isinstance(body, Abandonment):
        return f"abandoned, {body.reason.code}"
    return "a result" if isinstance(body, Result) else "something else"


ATTACKS = (Overflow,)

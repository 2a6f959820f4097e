"""Collecting a second time: answers after the deadline, and rounds that are over."""

from collections.abc import AsyncIterator
from datetime import timedelta

from shoal_kit.outcome import OK
from shoal_protocol.rounds.attestations import Result
from shoal_protocol.wire.errors import RefusedSpec
from shoal_protocol.wire.service_errors import TooLate
from shoal_redteam.announcing import announced
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.played_round import SHORT_SECONDS, PlayedRound, begin, honest_spec
from shoal_redteam.target import Target


class LateCollection(Attack):
    """Somebody wants a sum over other clients once a sum is out."""

    name = "late"
    liar = "a client, the trainer"
    tries = "an answer after the freeze or the result, a second collection, a spec that is over"
    stopped_by = "too-late, refused-spec; a round's result is one document for ever"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Leave one client out of a round, then try to get it in."""
        played = await begin(target, seconds=SHORT_SECONDS)
        *present, absent = played.clients
        await played.answer(present)
        late = played.contribution(absent)
        await played.until_frozen()
        yield await _upload(played, "an answer after the deadline", late.envelopes)
        outcome = await played.outcome()
        if not isinstance(outcome.body, Result):
            raise CannotAttack("the honest round was abandoned")
        yield seen(
            "the total, of which that client is no part",
            stopped=played.is_exactly(outcome, present),
            answered=f"{target.aggregator}: the sum over those who were there in time",
            check="holdings are frozen before anybody votes",
        )
        yield await _upload(played, "an answer after the result", late.envelopes)
        again = await played.announce()
        taken = sorted({each.status for each in again.values()})
        yield seen(
            "the spec of the finished round announced once more",
            stopped=taken == [OK] and (await played.outcome()).encode() == outcome.encode(),
            answered="all: known already; the result is the same to the byte",
            check="a round is its spec, and it is over",
        )
        yield await _upload(played, "an answer after that second announcement", late.envelopes)
        spec = honest_spec(target)
        passed = {
            "opened_at": spec.opened_at - timedelta(hours=1),
            "deadline": spec.opened_at - timedelta(minutes=1),
        }
        old = spec.model_copy(update=passed).model_dump(mode="json")
        yield await announced(
            target,
            "a new spec whose deadline has passed",
            spec,
            {name: old[name] for name in passed},
            by={RefusedSpec.code},
            check="every service has a clock of its own",
        )


async def _upload(played: PlayedRound, tried: str, envelopes: list[bytes]) -> Finding:
    answers = {
        name: await played.upload(node, envelopes[node])
        for node, name in enumerate(played.target.nodes)
    }
    check = "a node that froze takes no more shares"
    return refused(tried, answers, by={TooLate.code}, check=check)

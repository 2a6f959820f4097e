"""Rounds that a job's certificate is not to show: a number twice, out of turn, or afterwards."""

from collections.abc import AsyncIterator
from typing import Final

from shoal_protocol.jobs.totals import JobEnd, JobTotal
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import BadSignature, WrongSigner
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_redteam.attack import Attack
from shoal_redteam.findings import Finding, refused, seen
from shoal_redteam.forging import call_off
from shoal_redteam.played_round import begin, honest_spec
from shoal_redteam.target import Target

_FEWER: Final = (
    "one round for each number of a job, in order, on file at each node and the aggregator"
)
_OVER: Final = "a node that signed how many rounds of a job it charged takes no other"


class SecondRounds(Attack):
    """A job releases more than the rounds that its trainer means to certify."""

    name = "second-rounds"
    liar = "the trainer"
    tries = "two rounds of one number, a number out of turn, a round after the job's end"
    stopped_by = "conflicting-document: each number once, in order, and none after the signed total"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Announce a job's rounds, honest each by itself, again and out of turn."""
        first = await begin(target, number=1)
        job, services = first.spec.job, (*target.nodes, target.aggregator)
        other = honest_spec(target, job=job, number=1, clients=first.clients[:-1], dropouts=0)
        yield await self._refused(target, "another round of the same number", other, _FEWER)
        lower = honest_spec(target, job=job, number=0)
        yield await self._refused(target, "a round of a lower number", lower, _FEWER)
        known = await target.tell(services, "/v1/rounds", first.signed.encode())
        report = target.random_bytes(32).hex()
        end = JobEnd(manifest=target.consortium.digest, job=job, report=report)
        answers = await target.tell(
            target.nodes, "/v1/totals", target.sign(end, target.aggregator).encode()
        )
        yield refused(
            "the job ended by the aggregator",
            answers,
            by={WrongSigner.code, BadSignature.code},
            check="the trainer's word ends a job",
        )
        ended = await target.tell(
            target.nodes, "/v1/totals", target.sign(end, target.trainer).encode()
        )
        totals = [decode(each.body, JobTotal) for each in ended.values() if not each.is_refusal]
        for each in totals:
            target.consortium.verify(each)
        yield seen(
            "what the nodes sign of the job in the end",
            stopped=not any(each.is_refusal for each in known.values())
            and len(totals) == len(target.nodes)
            and all(each.body.rounds == (first.signed.digest,) for each in totals),
            answered=f"{len(totals)} nodes: one round, the one that they took",
            check="a total names every round that its node charged",
        )
        later = honest_spec(target, job=job, number=2)
        answers = await target.tell(
            target.nodes, "/v1/rounds", target.sign(later, target.trainer).encode()
        )
        yield refused(
            "a further round after that", answers, by={ConflictingDocument.code}, check=_OVER
        )
        await call_off(first)

    async def _refused(self, target: Target, tried: str, spec: RoundSpec, check: str) -> Finding:
        answers = await target.tell(
            (*target.nodes, target.aggregator),
            "/v1/rounds",
            target.sign(spec, target.trainer).encode(),
        )
        return refused(tried, answers, by={ConflictingDocument.code}, check=check)

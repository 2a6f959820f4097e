"""What a lying trainer tells a data holder about the batches of a job, services in league."""

from collections.abc import AsyncIterator
from typing import Final

from pyroaring import BitMap

from shoal_holder.vault import Vault
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.rounds.batches import participations
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.received import parse
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import RefusedJob
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.sybil import COLUMNS, job_request
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.played_round import honest_spec
from shoal_redteam.target import DROPOUTS, Target
from shoal_redteam.victim import victim
from shoal_studies.catalogue.variational import LogisticRegressionTask
from shoal_studies.study_request import StudyRequest

_ROUNDS: Final = 6


class LiesAboutBatches(Attack):
    """The trainer asks one client for more than its share of a job's batches."""

    name = "batches"
    liar = "the trainer, in league with all services"
    tries = "a client asked outside its batch or too often; batches, numbers, rounds not the job's"
    stopped_by = "the client's own checks and its ledger: what the job may cost it, and no more"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Show each lie to a data holder of its own, which has budget left."""
        batch = len(target.crew)
        # as many beside the batch as there are, for the fewer of the rounds ask one client
        population = batch + min(len(target.outsiders), batch)
        task = LogisticRegressionTask(
            features=COLUMNS[:1], target=COLUMNS[1], rounds=_ROUNDS, batch=batch
        )
        job = job_request(
            target, round_seconds=30, grace_seconds=20, task=task, population=population
        )
        policy = target.consortium.manifest.policy
        if "gradient_sum" not in policy.queries or "discrete_gaussian" not in policy.mechanisms:
            yield refused(
                "a job with batches",
                {target.trainer: await target.send(target.trainer, "/v1/jobs", job.encode())},
                by={RefusedJob.code},
                check="the policy's queries and mechanisms",
            )
            return
        most = participations(task.rounds, task.batch, population)
        if most == _ROUNDS:
            raise CannotAttack("every client is asked in every round: enrol more of them")
        whole = job.body.privacy.cap
        yield await self._asked_too_often(
            target, job, whole.part(1.0 / most), most, "in every round, though each is asked in"
        )
        yield await self._asked_too_often(
            target, job, whole.part(2.0 / most), most // 2, "at twice a round's price, enough for"
        )
        crew, share = BitMap(target.crew), whole.part(1.0 / most)
        larger, smaller = crew | BitMap(target.outsiders[:1]), crew - BitMap(target.crew[-1:])
        lies = {
            "a batch that is one client smaller": round_of(
                target, job, smaller, cost=share, dropouts=DROPOUTS - 1
            ),
            "a batch that is one client larger": round_of(target, job, larger, cost=share),
            "a round beyond the job's last one": round_of(
                target, job, crew, cost=share, number=_ROUNDS
            ),
            "a round whose noise lets the job cost more": round_of(
                target, job, crew, cost=Cost.gaussian(whole.whole.mu * 1.001)
            ),
        }
        for tried, spec in lies.items():
            async with victim(target, job) as prey:
                answers = await prey.shown(spec)
                yield seen(
                    tried,
                    stopped=not answers and bool(prey.refusal),
                    answered=f"a data holder: {prey.refusal or 'answers'}",
                    check="the job that it joined",
                )
        yield await self._left_out(target, job, share)
        yield await self._number_again(target, job, share, honest=0, again=0)
        yield await self._number_again(target, job, share, honest=2, again=1)

    async def _asked_too_often(
        self, target: Target, job: Signed[StudyRequest], cost: Cost, most: int, how: str
    ) -> Finding:
        """Ask the same clients in every round of a job."""
        answered = 0
        async with victim(target, job) as prey:
            for number in range(_ROUNDS):
                spec = round_of(target, job, BitMap(target.crew), cost=cost, number=number)
                answered += await prey.shown(spec)
            kinds = [each.statement and each.statement.kind for each in await prey.holder.chain()]
            if answered < most:
                raise CannotAttack(f"the data holder answers {answered} of {most} honest rounds")
            return seen(
                f"one client asked {how} {most} of {_ROUNDS} at most",
                stopped=answered == most == kinds.count("answer") and "cost more" in prey.refusal,
                answered=f"a data holder: answers {answered}; {prey.refusal}",
                check="its ledger of the job, which may cost no more than it said",
            )

    async def _left_out(self, target: Target, job: Signed[StudyRequest], share: Cost) -> Finding:
        """Show a client a round of a batch that it is not in."""
        left_out, *rest = target.crew
        others = BitMap((*rest, target.outsiders[0]))
        async with victim(target, job) as prey:
            spec = round_of(target, job, others, cost=share)
            await prey.shown(spec)
            sent = map(parse, prey.network.envelopes.get(spec.digest, ()))
            answers = target.holder(left_out) in {each.holder for each in sent}
            pays = left_out in await prey.holder.vault.ask(Vault.spent)
            return seen(
                "a round shown to a client that is not in its batch",
                stopped=not answers and not pays,
                answered=f"a data holder: {'answers' if answers else 'sends nothing for it'}",
                check="only who is in a round's population answers it",
            )

    async def _number_again(
        self, target: Target, job: Signed[StudyRequest], share: Cost, honest: int, again: int
    ) -> Finding:
        """Show rounds 0 and `honest`, and then another one with the number `again`."""
        crew = BitMap(target.crew)
        async with victim(target, job) as prey:
            for number in sorted({0, honest}):
                if not await prey.shown(round_of(target, job, crew, cost=share, number=number)):
                    raise CannotAttack(f"the data holder answers no honest round: {prey.refusal}")
            spec = round_of(target, job, crew, cost=share, number=again, seconds=31.0)
            answers = await prey.shown(spec)
            return seen(
                f"the same batch again as round {again}, after round {honest} was answered",
                stopped=not answers and bool(prey.refusal),
                answered=f"a data holder: {prey.refusal or 'answers'}",
                check="one answer for a job's round, and numbers only rise",
            )


def round_of(
    target: Target,
    job: Signed[StudyRequest],
    clients: BitMap,
    *,
    cost: Cost,
    number: int = 0,
    seconds: float = 30.0,
    dropouts: int = DROPOUTS,
) -> RoundSpec:
    """Return a round of a job for this price, as `honest_spec`."""
    task = job.body.task
    if not isinstance(task, LogisticRegressionTask):
        raise TypeError("these rounds are of logistic regressions only")
    return honest_spec(
        target,
        clients=clients,
        seconds=seconds,
        cost=cost,
        dropouts=dropouts,
        query=task.gradient_query((0.0,) * task.model.dimension(len(task.columns))),
        job=job.digest,
        number=number,
    )

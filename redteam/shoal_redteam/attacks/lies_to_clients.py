"""What a lying trainer tells a data holder, whose services are all in league with it."""

from collections.abc import AsyncIterator
from typing import Any, Final

from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import canonical_json
from shoal_redteam.announcing import noise_worth, priced
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.findings import CannotAttack, Finding, not_carried_out, seen
from shoal_redteam.forging import changed, forged
from shoal_redteam.played_round import cost_of, honest_spec
from shoal_redteam.target import Target
from shoal_redteam.victim import PRIVATE_COLUMN, Victim, victim
from shoal_studies.catalogue.linear_regression import LinearRegressionTask, query_for
from shoal_studies.study_request import StudyRequest

_SECONDS: Final = 20.0
_SHADE: Final = 1e-6
_PRICE: Final = 1 / 1600  # of a budget, which is thrown away


class LiesToClients(Attack):
    """The trainer and all services lie to one data holder, which has nobody to ask."""

    name = "lies-to-clients"
    liar = "the trainer, in league with all services"
    tries = "rounds that cost more, ask other things or come twice, shown to a client alone"
    stopped_by = "the client's own checks: nothing is sent"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Show each lie to a data holder of its own, and an honest round to the first."""
        job = job_request(target, round_seconds=30, grace_seconds=20)
        spec = spec_of(target, job)
        sent, _ = await self._shows(target, job, spec, {})
        if not sent:
            raise CannotAttack("the data holder answers not even an honest round")
        halved = spec.noise.model_copy(update={"scale": spec.noise.scale / 2})
        reckless = noise_worth(spec, cost_of(target, 0.9))
        other_columns = tuple(
            column.model_copy(update={"name": PRIVATE_COLUMN}) if place else column
            for place, column in enumerate(spec.query.columns)
        )
        query = spec.query.model_dump(mode="json")
        steep = [each.model_copy(update={"scale": 1e-300}) for each in spec.query.columns]
        fewer = spec.query.model_copy(update={"columns": spec.query.columns[1:]})
        longer = spec.query.model_copy(
            update={"records_per_client": spec.query.records_per_client + 1}
        )
        lies: dict[str, dict[str, Any]] = {
            "half the noise at the same price": {"noise": halved.model_dump(mode="json")},
            "a round that costs 90 % of the budget, priced as such, of a job that may not": priced(
                spec, noise=reckless
            )
            | {"noise": reckless.model_dump(mode="json")},
            "a column that the job did not name, and that the owner allows nobody": {
                "query": query | {"columns": [each.model_dump() for each in other_columns]}
            },
            "only one of the job's two columns": priced(spec, query=fewer)
            | {"query": fewer.model_dump(mode="json"), "dimension": fewer.dimension},
            "whether a value is above a threshold: a column with next to no scale": {
                "query": query | {"columns": [each.model_dump() for each in steep]}
            },
            "another intercept": {"query": query | {"intercept": 1.0}},
            "more records than the job asks for": priced(spec, query=longer)
            | {"query": longer.model_dump(mode="json")},
            "fewer colluders than the job tolerates": priced(spec, colluders=spec.colluders - 1)
            if spec.colluders
            else {"colluders": -1},
            "a round of another job": {"job": target.random_bytes(32).hex()},
            "a round out of turn": {"number": 1},
            "other Compute nodes than the manifest's": {
                "compute_nodes": list(reversed(spec.compute_nodes))
            },
            "a round bound to a manifest that nobody signed": {
                "manifest": target.random_bytes(32).hex()
            },
        }
        for tried, lie in lies.items():
            sent, said = await self._shows(target, job, spec, lie)
            yield seen(
                tried,
                stopped=not sent and bool(said),
                answered=f"a data holder: {said or 'answers'}",
                check="the job that it joined, the policy and the manifest that it pinned",
            )
        yield await self._signed_by_another(target, job, spec)
        yield await self._twice(target, job, spec)

    async def _shows(
        self, target: Target, job: Signed[StudyRequest], spec: RoundSpec, lie: dict[str, Any]
    ) -> tuple[bool, str]:
        """Return whether a data holder answered a lie, and why it refused."""
        key = target.key(target.trainer)
        document = forged(spec.kind, changed(spec, **lie), target.trainer, key)
        async with victim(target, job) as prey:
            await shown(prey, canonical_json(document))
            return bool(prey.network.uploads), prey.refusal

    async def _signed_by_another(
        self, target: Target, job: Signed[StudyRequest], spec: RoundSpec
    ) -> Finding:
        async with victim(target, job) as prey:
            await shown(prey, target.sign(spec, target.aggregator).encode())
            return seen(
                "an honest round that the aggregator signed",
                stopped=not prey.network.uploads and bool(prey.refusal),
                answered=f"a data holder: {prey.refusal or 'answers'}",
                check="only the trainer, by the manifest, signs rounds",
            )

    async def _twice(self, target: Target, job: Signed[StudyRequest], spec: RoundSpec) -> Finding:
        """Show one round, then another in its place: two answers would differ by fresh noise."""
        second = spec.model_copy(update={"give_up_at": target.after(_SECONDS * 3)})
        second = second.model_copy(update={"proceed_at": second.give_up_at})
        async with victim(target, job) as prey:
            await shown(prey, target.sign(spec, target.trainer).encode())
            prey.network.specs = {
                number: target.sign(second, target.trainer).encode() for number in range(3)
            }
            for _ in range(4):
                await prey.step()
            rounds = sorted(prey.network.uploads)
            return seen(
                "another spec in the place of a round that was answered",
                stopped=rounds == [spec.digest],
                answered=f"a data holder: answers {len(rounds)} round of that number",
                check="one answer for a job's round, for ever, on disk before it leaves",
            )


async def shown(prey: Victim, spec: bytes) -> None:
    """Show a round to a data holder, and give it time to join, to judge and to answer."""
    prey.network.specs = {0: spec}
    for _ in range(4):
        await prey.step()


def spec_of(
    target: Target,
    job: Signed[StudyRequest],
    *,
    price: float = _PRICE,
    seconds: float = _SECONDS,
) -> RoundSpec:
    """Return the first round of a job, for a small part of its price."""
    task = job.body.task
    if not isinstance(task, LinearRegressionTask):
        raise TypeError("the attacks ask for linear regressions only")
    return honest_spec(
        target,
        query=query_for(task, len(target.crew), ()),
        job=job.digest,
        price=price,
        seconds=seconds,
        grace=_SECONDS,
    )


class BeyondTheOwner(Attack):
    """A job that the consortium allows, but not the owner of the data."""

    name = "against-the-owner"
    liar = "an analyst, with the trainer and all services"
    tries = "a job of an analyst, columns, price or tolerances that the owner does not allow"
    stopped_by = "the owner's own policy and ledger: the job is not joined, and nothing is sent"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Show one job, and a round of it, to data holders that each forbid one thing of it."""
        job = job_request(target, round_seconds=30, grace_seconds=20)
        spec, privacy, columns = spec_of(target, job), job.body.privacy, job.body.task.columns
        async with victim(target, job) as prey:
            await shown(prey, target.sign(spec, target.trainer).encode())
            if not (prey.network.joined and prey.network.uploads):
                raise CannotAttack("the data holder takes no part in an honest job")
        rules: dict[str, tuple[dict[str, Any], str]] = {
            "an analyst whom the owner does not allow": ({"analysts": ()}, "analyst"),
            "a query that the owner does not allow": ({"queries": ()}, "query"),
            "a column that the owner does not allow": ({"columns": (columns[0].name,)}, "column"),
            "fewer clients than the owner demands": (
                {"minimum_population": job.body.minimum_population + 1},
                "minimum_population",
            ),
            "fewer colluders than the owner demands": (
                {"minimum_colluders": privacy.colluders + 1},
                "colluders",
            ),
            "a price that is a millionth beyond the owner's cap": (
                {"maximum_epsilon": privacy.epsilon * (1.0 - _SHADE)},
                "exceeds",
            ),
        }
        for tried, (owner, due) in rules.items():
            async with victim(target, job, owner=owner) as prey:
                await shown(prey, target.sign(spec, target.trainer).encode())
                yield _joined_nothing(tried, prey, due)
        # two jobs of one cost sqrt(2) of it at least
        async with victim(target, job, owner={"maximum_epsilon": 1.2 * privacy.epsilon}) as prey:
            await prey.step()
            if prey.network.joined != {job.digest}:
                raise CannotAttack("the data holder does not join the first of two jobs")
            prey.network.joined.clear()
            prey.network.waiting.add(job.digest)
            prey.network.job = job_request(target, round_seconds=30, grace_seconds=20)
            for _ in range(2):
                await prey.step()
            yield _joined_nothing(
                "a second job, beyond the owner's cap together with the first", prey, "budget left"
            )


def _joined_nothing(tried: str, prey: Victim, due: str) -> Finding:
    said = f"a data holder: {prey.refusal or 'refuses nothing'}"
    if prey.network.joined or prey.network.uploads:
        return seen(tried, stopped=False, answered="a data holder: joins", check="")
    if due not in prey.refusal:
        return not_carried_out(tried, said)
    check = "the owner's policy, before anything is signed; the ledger counts jobs, not rounds"
    return seen(tried, stopped=True, answered=said, check=check)

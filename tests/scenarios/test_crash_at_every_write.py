"""Every party is killed before and after every write that a job makes it do; the others answer it.

The writes are those of a run in which nothing happens: a new transaction is covered by being there.
What comes of the job must be that run's: of one round, the same sum, cohort and posterior to the
last bit; of two, whose second asks another batch by noise drawn anew, the same clients and charges.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal_consortium.parties import next_manifest
from shoal_consortium.party_files import read_signing_key
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.manifest_bundle import bundle
from shoal_protocol.trust.succession import following_version
from tests.world.audit import audit, look_at
from tests.world.batches import BATCH, CONSORTIUM, HOLDERS, TASK
from tests.world.durable import MARK, Death, DurableSteps, Step, When
from tests.world.federation import Federation
from tests.world.lives import Life
from tests.world.spending import costs_of
from tests.world.trust import SITES, Trust, make_trust

pytestmark = pytest.mark.essential

ABSENT = "clinic-c"  # two sites have the 10 clients that a job needs
CLIENTS = sum(SITES.values()) - SITES[ABSENT]
PARTIES = ("compute-0", "compute-1", "aggregator", "trainer", "clinic-a", "clinic-b")
TWINS = {"compute-1", "clinic-b"}  # run the same program as the party before them, in its place
# what must be among the writes of each kind of party, lest the enumeration miss one
KNOWN = {
    "compute": {"check_schema", "_add", "add_shares", "freeze", "keep", "agree"}
    | {"cast", "publish", "roster.bin", "manifest.json"},
    "aggregator": {"check_schema", "add_round", "offer", "publish", "manifest.json"},
    "trainer": {"check_schema", "add_job", "keep", "move_job", "add_round"}
    | {"open_round", "publish_round", "finish_job", "roster.bin", "manifest.json"},
    "clinic": {"add_job", "settle", "add_round", "record_answer"}
    | {"end_job", "roster.bin", "manifest.json", MARK},
}
ROUNDS = 2
# those that each of two rounds has anew: a death in the second is not covered by one in the first
IN_EACH_ROUND = {
    "compute": {"_add", "add_shares", "freeze", "agree", "publish"},
    "aggregator": {"add_round", "offer", "publish"},
    "trainer": {"add_round", "open_round", "publish_round"},
    "clinic": {"add_round", "record_answer", "settle"},
}


@dataclass(frozen=True)
class Ended:
    """What came of a job, and the writes that were done."""

    outcome: dict[str, Any]
    steps: list[Step]


async def one_round(trust: Trust, directory: Path, plan: Sequence[Death] = ()) -> Ended:
    """Run a job under a manifest that is new to all but the analyst, while parties die."""
    durable = DurableSteps(list(plan))
    with durable.watched():
        async with Federation(trust, directory, same_noise=True, absent=[ABSENT]) as federation:
            version = second_version(trust)
            await tell_trainer(federation, version)
            federation.analyst_book.accept(
                version.signed_manifest.encode(), version.roster.encode()
            )
            job = await federation.submit(maximum_population=CLIENTS)
            state = await federation.finish(job)
            await federation.until(lambda: is_certified(federation, job))

            async def all_died() -> bool:
                return not durable.plan

            await federation.until(all_died)  # the log's last write may come a moment later
            assert state["phase"] == "finished", state
            steps = list(durable.taken)
            federation.absent.clear()  # the audit asks every data holder
            (result,) = (await audit(federation)).values()
            assert result is not None
            report = await federation.report(job)
            outcome = {
                "values": result["values"],
                "cohort size": result["cohort_size"],
                "posterior": report.posterior,
                "privacy": report.privacy,
            }
            return Ended(outcome, steps)


async def two_rounds(trust: Trust, directory: Path, plan: Sequence[Death] = ()) -> Ended:
    """Run a job of two rounds, each of which asks a batch, while parties die."""
    durable = DurableSteps(list(plan))
    with durable.watched():
        async with Federation(trust, directory, holders=HOLDERS, absent=[ABSENT]) as federation:
            task = TASK.model_copy(update={"rounds": ROUNDS})
            job = await federation.submit(task=task, maximum_population=CLIENTS)
            state = await federation.finish(job)
            assert not durable.plan, "a death did not come about"
            assert state["phase"] == "finished", state
            steps = list(durable.taken)
            federation.absent.clear()  # the audit asks every data holder
            results = await audit(federation)
            report = await federation.report(job)
            assert len(results) == ROUNDS and None not in results.values()
            specs = sorted(look_at(federation).specs.values(), key=lambda spec: spec.number)
            outcome = {
                "asked": [spec.clients() for spec in specs],
                "cohort sizes": report.cohort_sizes,
                "participations": report.participations,
                "privacy": report.privacy,
                "charges": {
                    client: [cost.mu for cost in costs]
                    for site in SITES
                    for client, costs in (await costs_of(federation.holder(site))).items()
                },
            }
            return Ended(outcome, steps)


Run = Callable[[Trust, Path, Sequence[Death]], Awaitable[Ended]]
JOBS: dict[str, tuple[Run, int]] = {"one round": (one_round, 23), "two rounds": (two_rounds, 97)}
"""By name: a job, and every how manieth write of a party is tried in each run of the tests."""


async def is_certified(federation: Federation, job: str) -> bool:
    """Tell whether the certificate is there: the last write."""
    answer = await federation.ask("trainer", f"/v1/jobs/{job}/certificate")
    return answer.status_code == 200


def second_version(trust: Trust) -> Consortium:
    """Return a manifest that differs from the first in its number only."""
    first = trust.consortium
    key = read_signing_key(trust.directory / "authority" / "signing.key")
    manifest = next_manifest(first, roster=first.roster, authority=key)
    return following_version(first, manifest.encode(), first.roster.encode())


async def tell_trainer(federation: Federation, version: Consortium) -> None:
    """Relay a manifest until the trainer has it; all others learn it from the trainer."""
    url = f"{version.manifest.trainer.url}/v1/manifest"
    transport = federation.wire.of(Life("authority"))
    async with httpx.AsyncClient(transport=transport) as client:

        async def is_accepted() -> bool:
            try:
                return (await client.put(url, content=bundle(version))).status_code == 200
            except httpx.TransportError:
                return False

        await federation.until(is_accepted)


@dataclass
class Calm:
    """A job in which nothing happens, to compare with."""

    trust: Trust
    run: Run
    every: int
    ended: Ended

    def writes(self, party: str, when: When) -> list[Step]:
        """Return the writes of a party, of which a death before a mark is one after its commit."""
        marks = when is When.AFTER
        return [
            each
            for each in self.ended.steps
            if each.party == party and (marks or each.name != MARK)
        ]

    def dies(self, directory: Path, *plan: Death) -> None:
        """Run the job again, with deaths, and compare."""
        ended = asyncio.run(self.run(self.trust, directory, plan))
        assert ended.outcome == self.ended.outcome, plan


@pytest.fixture(
    scope="module", params=["one round", pytest.param("two rounds", marks=pytest.mark.exhaustive)]
)
def calm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Calm:
    """Run among two Compute nodes: as few messages and transactions as there can be."""
    run, every = JOBS[request.param]
    policy = CONSORTIUM if run is two_rounds else {}
    trust = make_trust(tmp_path_factory.mktemp("small"), nodes=2, **policy)
    return Calm(trust, run, every, asyncio.run(run(trust, tmp_path_factory.mktemp("calm"), ())))


def test_the_writes_of_a_job_are_those_of_which_it_is_made_and_every_run_is_the_same(
    calm: Calm, tmp_path: Path
) -> None:
    """Or a death would be looked for at a write that its own run does not do."""
    assert {step.party for step in calm.ended.steps} == set(PARTIES)
    for kind, names in KNOWN.items() if calm.run is one_round else ():
        done = {step.name for step in calm.ended.steps if step.party.startswith(kind)}
        assert names <= done, (kind, " ".join(sorted(done)))
    if calm.run is two_rounds:
        for party in PARTIES:
            taken = [step.name for step in calm.ended.steps if step.party == party]
            names = IN_EACH_ROUND[party.partition("-")[0]]
            assert all(taken.count(name) >= ROUNDS for name in names), (party, taken)
        assert calm.ended.outcome["cohort sizes"] == (BATCH, BATCH)
        assert {len(costs) for costs in calm.ended.outcome["charges"].values()} == {1, 2}
    assert asyncio.run(calm.run(calm.trust, tmp_path, ())) == calm.ended


WHOLLY = pytest.mark.parametrize(
    "wholly", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["some", "all"]
)


@WHOLLY
@pytest.mark.parametrize("when", When, ids=lambda when: when.value)
@pytest.mark.parametrize(
    "party",
    [
        pytest.param(party, marks=[pytest.mark.exhaustive] if party in TWINS else [])
        for party in PARTIES
    ],
)
def test_a_death_at_any_write_changes_nothing(
    calm: Calm, tmp_path: Path, party: str, when: When, wholly: bool
) -> None:
    writes = calm.writes(party, when)
    first = 0 if wholly else (7 * PARTIES.index(party)) % min(calm.every, len(writes))
    for number, step in enumerate(writes[first :: 1 if wholly else calm.every]):
        calm.dies(tmp_path / f"{number}", Death(when, party, step.name, step.number))


@WHOLLY
@pytest.mark.parametrize("again", [True, False], ids=["the same party", "another party"])
def test_a_second_death_may_follow_at_the_next_write(
    calm: Calm, tmp_path: Path, again: bool, wholly: bool
) -> None:
    """Of the party that died, once it was started again; or of another one."""
    steps = calm.ended.steps
    for number in range(5, len(steps), 20 if wholly else 4 * calm.every):
        step = steps[number]
        later = [each.party for each in steps[number + 1 :] if (each.party == step.party) is again]
        for when in When if wholly and later else [When.AFTER] if later else []:
            first = Death(When.AFTER, step.party, step.name, step.number)
            calm.dies(tmp_path / f"{number}-{when.value}", first, Death(when, later[0]))


async def test_a_federation_in_which_all_die_after_every_step_ends_a_job_all_the_same(
    federation: Federation,
) -> None:
    job = await federation.submit()
    deaths = 0
    while not await federation.is_over(job):
        assert deaths < 400, "it never came about"
        for name in federation.names:
            await federation.step([name])
            await federation.crash(name)
            deaths += 1
        federation.clock.move(1.0)
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    [result] = (await audit(federation)).values()
    assert result is not None and result["cohort_size"] == sum(SITES.values())

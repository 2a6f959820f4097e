"""Every party is killed before and after every durable step that a job makes it take.

The steps are those of a run in which nothing happens: a new transaction is covered by being there.
The outcome must be that run's, to the last bit: the same sum, cohort and posterior.
"""

import asyncio
from collections.abc import Sequence
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
from tests.world.audit import audit
from tests.world.durable import MARK, Death, DurableSteps, Step, When
from tests.world.federation import Federation
from tests.world.lives import Life
from tests.world.trust import SITES, Trust, make_trust

ABSENT = "clinic-c"  # two sites have the 10 clients that a job needs
CLIENTS = sum(SITES.values()) - SITES[ABSENT]
PARTIES = ("compute-0", "compute-1", "aggregator", "trainer", "clinic-a", "clinic-b")
TWINS = {"compute-1", "clinic-b"}  # run the same program as the party before them, in its place
PAIRS_EVERY = 20
# what must be among the steps, lest the enumeration miss a kind of them
KNOWN_KINDS = {
    "compute": {"check_schema", "_add", "add_shares", "freeze", "keep", "agree"}
    | {"keep_and_cast", "publish", "roster.bin", "manifest.json"},
    "aggregator": {"check_schema", "add_round", "offer_partial_sum", "publish", "manifest.json"},
    "trainer": {"check_schema", "add_job", "add_joins", "fix_population", "add_round"}
    | {"open_round", "publish_round", "finish_job", "roster.bin", "manifest.json"},
    "clinic": {"_prepare", "add_job", "settle_join", "add_round", "record_answer"}
    | {"settle_envelope", "end_job", "roster.bin", "manifest.json"},
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    """Two Compute nodes: as few messages and transactions as there can be."""
    return make_trust(tmp_path_factory.mktemp("small"), nodes=2)


@dataclass(frozen=True)
class Ended:
    """What came of a job, and the durable steps that were taken."""

    outcome: dict[str, Any]
    steps: list[Step]


async def run(trust: Trust, directory: Path, plan: Sequence[Death] = ()) -> Ended:
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
            await federation.until(lambda: is_logged(federation, job))

            async def all_died() -> bool:
                return not durable.plan

            await federation.until(all_died)  # the log's last step may come a moment later
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


async def is_logged(federation: Federation, job: str) -> bool:
    """Tell whether the certificate is there with the proof that the log has it: the last step."""
    answer = await federation.ask("trainer", f"/v1/jobs/{job}/certificate")
    return answer.headers.get("ETag", "").endswith('-logged"')


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


@pytest.fixture(scope="module")
def calm(small: Trust, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return asyncio.run(run(small, tmp_path_factory.mktemp("calm")))


def test_the_steps_of_a_job_are_those_of_which_it_is_made(calm: Ended) -> None:
    for kind, names in KNOWN_KINDS.items():
        taken = {step.name for step in calm.steps if step.party.startswith(kind)}
        assert names | {MARK} <= taken, f"{kind}: {sorted(taken)}"


def test_every_run_is_the_same_run(small: Trust, calm: Ended, tmp_path: Path) -> None:
    """Or a death would be looked for at a step that its own run does not have."""
    assert asyncio.run(run(small, tmp_path)) == calm


@pytest.mark.slow
@pytest.mark.parametrize(
    "every",
    [5, pytest.param(1, marks=pytest.mark.exhaustive)],
    ids=["every fifth step", "every step"],
)
@pytest.mark.parametrize("when", When, ids=lambda when: when.value)
@pytest.mark.parametrize(
    "party",
    [
        pytest.param(party, marks=[pytest.mark.exhaustive] if party in TWINS else [])
        for party in PARTIES
    ],
)
def test_a_death_at_any_step_changes_nothing(
    small: Trust, calm: Ended, tmp_path: Path, party: str, when: When, every: int
) -> None:
    steps = [step for step in calm.steps if step.party == party]
    if when is When.BEFORE:  # a mark: that is after its commit
        steps = [step for step in steps if step.name != MARK]
    assert len(steps) >= every
    for number, step in enumerate(steps[::every]):
        plan = [Death(when, party, step.name, step.number)]
        ended = asyncio.run(run(small, tmp_path / f"{number}", plan))
        assert ended.outcome == calm.outcome, plan


SECOND = pytest.mark.parametrize(
    "when",
    [pytest.param(When.BEFORE, marks=pytest.mark.exhaustive), When.AFTER],
    ids=["before", "after"],
)


def test_the_parties_are_all_that_take_steps(calm: Ended) -> None:
    assert {step.party for step in calm.steps} == set(PARTIES)


@pytest.mark.slow
@SECOND
def test_a_party_may_die_again_at_its_first_step_after_it_was_started_again(
    small: Trust, calm: Ended, tmp_path: Path, when: When
) -> None:
    last = {step.party: step for step in calm.steps}  # after which there is none to die at
    for number, step in enumerate(calm.steps[::PAIRS_EVERY]):
        if step != last[step.party]:
            plan = [Death(When.AFTER, step.party, step.name, step.number), Death(when, step.party)]
            ended = asyncio.run(run(small, tmp_path / f"{number}", plan))
            assert ended.outcome == calm.outcome, plan


@pytest.mark.slow
@SECOND
def test_another_party_may_die_at_its_next_step_after_the_first_one_died(
    small: Trust, calm: Ended, tmp_path: Path, when: When
) -> None:
    for number in range(0, len(calm.steps), PAIRS_EVERY):
        step = calm.steps[number]
        later = [each.party for each in calm.steps[number + 1 :] if each.party != step.party]
        if later:
            plan = [Death(when, step.party, step.name, step.number), Death(when, later[0])]
            ended = asyncio.run(run(small, tmp_path / f"{number}", plan))
            assert ended.outcome == calm.outcome, plan

"""Every party is killed before and after its durable steps in a job of two rounds of batches.

Noise that was drawn and not kept is drawn again: so what must not change is who was asked, who took
part and what everybody was charged, and that all that is released is the exact sum of records and
of the noise that was drawn (`audit`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.federation.test_batches import specs_of
from tests.federation.test_crash_anywhere import ABSENT, CLIENTS, PARTIES
from tests.world.audit import audit
from tests.world.batches import BATCH, CONSORTIUM, HOLDERS, TASK
from tests.world.durable import Death, DurableSteps, Step, When
from tests.world.federation import Federation
from tests.world.trust import SITES, Trust, make_trust

ROUNDS = 2
JOB = TASK.model_copy(update={"rounds": ROUNDS})
# steps that each round has anew: a death in the second one is not covered by one in the first
EACH_ROUND = {
    "compute-0": {"_add", "add_shares", "freeze", "agree", "publish"},
    "compute-1": {"_add", "add_shares", "freeze", "agree", "publish"},
    "aggregator": {"add_round", "offer_partial_sum", "publish"},
    "trainer": {"add_round", "open_round"},  # a result is stored with the round that follows it
    "clinic-a": {"add_round", "record_answer", "settle_envelope"},
    "clinic-b": {"add_round", "record_answer", "settle_envelope"},
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("small"), nodes=2, **CONSORTIUM)


@dataclass(frozen=True)
class Ended:
    """What came of a job, and the durable steps that were taken."""

    outcome: dict[str, Any]
    steps: list[Step]


async def run(trust: Trust, directory: Path, plan: Sequence[Death] = ()) -> Ended:
    """Run the job while parties die."""
    durable = DurableSteps(list(plan))
    with durable.watched():
        async with Federation(trust, directory, holders=HOLDERS, absent=[ABSENT]) as federation:
            job = await federation.submit(task=JOB, maximum_population=CLIENTS)
            state = await federation.finish(job)
            assert not durable.plan, "a death did not come about"
            assert state["phase"] == "finished", state
            steps = list(durable.taken)
            federation.absent.clear()  # the audit asks every data holder
            results = await audit(federation)
            report = await federation.report(job)
            assert len(results) == ROUNDS and None not in results.values()
            outcome: dict[str, Any] = {
                "asked": [spec.clients() for spec in specs_of(federation)],
                "cohort sizes": report.cohort_sizes,
                "participations": report.participations,
                "privacy": report.privacy,
                "charges": await charges(federation),
            }
            return Ended(outcome, steps)


async def charges(federation: Federation) -> dict[int, list[float]]:
    """Return what each client's own ledger says that it paid, round by round."""
    return {
        client: [cost.mu for cost in costs]
        for site in SITES
        for client, costs in (await federation.holder(site).spent()).items()
    }


@pytest.fixture(scope="module")
def calm(small: Trust, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return asyncio.run(run(small, tmp_path_factory.mktemp("calm")))


def test_both_rounds_are_made_of_the_same_steps_and_cost_what_they_should(calm: Ended) -> None:
    for party, names in EACH_ROUND.items():
        taken = [step.name for step in calm.steps if step.party == party]
        assert all(taken.count(name) >= ROUNDS for name in names), (party, taken)
        if party.startswith("compute"):  # with the holdings that it follows from, or after them
            assert taken.count("cast") + taken.count("keep_and_cast") >= ROUNDS
    assert calm.outcome["cohort sizes"] == (BATCH, BATCH)
    assert {len(costs) for costs in calm.outcome["charges"].values()} == {1, 2}


async def dies(small: Trust, calm: Ended, directory: Path, death: Death) -> None:
    ended = await run(small, directory, [death])
    assert ended.outcome == calm.outcome, death


@pytest.mark.parametrize("when", When, ids=lambda when: when.value)
@pytest.mark.parametrize("party", PARTIES)
def test_a_death_in_the_second_round_changes_nothing(
    small: Trust, calm: Ended, tmp_path: Path, party: str, when: When
) -> None:
    """At one step; all others are below."""
    last = [step for step in calm.steps if step.party == party and step.number > 0]
    place = (3 * len(PARTIES) + PARTIES.index(party)) % len(last)
    step = last[place]
    death = Death(when, party, step.name, step.number)
    asyncio.run(dies(small, calm, tmp_path, death))


@pytest.mark.exhaustive
@pytest.mark.parametrize("when", When, ids=lambda when: when.value)
@pytest.mark.parametrize("party", PARTIES)
def test_a_death_at_any_step_of_either_round_changes_nothing(
    small: Trust, calm: Ended, tmp_path: Path, party: str, when: When
) -> None:
    steps = [step for step in calm.steps if step.party == party]
    assert steps
    for number, step in enumerate(steps):
        death = Death(when, party, step.name, step.number)
        asyncio.run(dies(small, calm, tmp_path / f"{number}", death))

"""Every party is killed before and after its durable steps in a job of batches, and a hidden one.

Two rounds each. Noise that was drawn and not kept is drawn again, and coins are tossed again: so
what must not change is who was asked, who took part and what everybody was charged, and that all
that is released is the exact sum of records, or zeros, and of the noise that was drawn (`audit`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shoal_protocol.tasks import LogisticRegressionTask
from tests.federation.test_batches import specs_of
from tests.federation.test_crash_anywhere import ABSENT, CLIENTS, PARTIES
from tests.simulated.audit import audit
from tests.simulated.batches import BATCH, CONSORTIUM, HIDDEN_TASK, HOLDERS, TASK
from tests.simulated.durable import Death, DurableSteps, Step, When
from tests.simulated.trust import SITES, Trust, make_trust
from tests.simulation import PRIVACY, Federation

ROUNDS = 2
JOBS = {
    "batches": TASK.model_copy(update={"rounds": ROUNDS}),
    "hidden": HIDDEN_TASK.model_copy(update={"rounds": ROUNDS}),
}
# steps that each round has anew: a death in the second one is not covered by one in the first
EACH_ROUND = {
    "compute-0": {"_add", "add_shares", "freeze", "cast", "agree", "publish"},
    "compute-1": {"_add", "add_shares", "freeze", "cast", "agree", "publish"},
    "aggregator": {"add_round", "offer_partial_sum", "publish"},
    "trainer": {"add_round", "open_round", "publish_round"},
    "clinic-a": {"add_round", "record_answers", "settle_envelopes"},
    "clinic-b": {"add_round", "record_answers", "settle_envelopes"},
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("small"), nodes=2, **CONSORTIUM)


@dataclass(frozen=True)
class Ended:
    """What came of a job, and the durable steps that were taken."""

    outcome: dict[str, Any]
    steps: list[Step]


async def run(
    trust: Trust, directory: Path, task: LogisticRegressionTask, plan: Sequence[Death] = ()
) -> Ended:
    """Run a job while parties die."""
    durable = DurableSteps(list(plan))
    with durable.watched():
        async with Federation(trust, directory, holders=HOLDERS, absent=[ABSENT]) as federation:
            job = await federation.submit(task=task, maximum_population=CLIENTS)
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
def calm(small: Trust, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    return {
        name: asyncio.run(run(small, tmp_path_factory.mktemp(name), task))
        for name, task in JOBS.items()
    }


def test_both_rounds_are_made_of_the_same_steps_and_cost_what_they_should(
    calm: dict[str, Ended],
) -> None:
    for ended in calm.values():
        for party, names in EACH_ROUND.items():
            taken = [step.name for step in ended.steps if step.party == party]
            assert all(taken.count(name) >= ROUNDS for name in names), (party, taken)
    batches, hidden = calm["batches"].outcome, calm["hidden"].outcome
    assert batches["cohort sizes"] == (BATCH, BATCH)
    assert {len(costs) for costs in batches["charges"].values()} == {1, 2}
    assert hidden["cohort sizes"] == (CLIENTS, CLIENTS)
    assert set(map(tuple, hidden["charges"].values())) == {(PRIVACY.cost.mu, 0.0)}


async def dies(small: Trust, calm: Ended, directory: Path, name: str, death: Death) -> None:
    ended = await run(small, directory, JOBS[name], [death])
    assert ended.outcome == calm.outcome, death


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("party", PARTIES)
def test_a_death_in_the_second_round_changes_nothing(
    small: Trust, calm: dict[str, Ended], tmp_path: Path, party: str, name: str
) -> None:
    """At one step, and on one side of it; all others are below."""
    last = [step for step in calm[name].steps if step.party == party and step.number > 0]
    place = (3 * len(PARTIES) + PARTIES.index(party)) % len(last)
    step = last[place]
    when = list(When)[(place + list(JOBS).index(name)) % 2]
    death = Death(when, party, step.name, step.number)
    asyncio.run(dies(small, calm[name], tmp_path, name, death))


@pytest.mark.exhaustive
@pytest.mark.parametrize("when", When, ids=lambda when: when.value)
@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize("party", PARTIES)
def test_a_death_at_any_step_of_either_round_changes_nothing(
    small: Trust, calm: dict[str, Ended], tmp_path: Path, party: str, name: str, when: When
) -> None:
    steps = [step for step in calm[name].steps if step.party == party]
    assert steps
    for number, step in enumerate(steps):
        death = Death(when, party, step.name, step.number)
        asyncio.run(dies(small, calm[name], tmp_path / f"{number}", name, death))

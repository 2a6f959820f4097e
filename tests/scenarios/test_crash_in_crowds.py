"""A data holder and the trainer are killed before and after durable steps that a crowd job takes.

Whatever dies, each charge is one contribution, what was acknowledged is in the closing, and the
closing bears out what every data holder kept.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.federation.test_crowd_jobs import (
    HOLDERS,
    charged,
    crowd_status,
    finish,
    open_crowd,
)
from tests.world.durable import Death, DurableSteps, Step, When
from tests.world.federation import Federation
from tests.world.trust import SITES, Trust

KNOWN = {
    "clinic-a": {"add", "charge", "settle", "end_job", "conclude"},
    "trainer": {"add_crowd", "replace_all", "close"},
}


@dataclass(frozen=True)
class Ended:
    """What came of a crowd job, and the durable steps that were taken."""

    charges: Counter[int]
    outcomes: Counter[str]
    in_the_end: int
    steps: list[Step]


async def run(trust: Trust, directory: Path, plan: list[Death]) -> Ended:
    durable = DurableSteps(plan)
    with durable.watched():
        async with Federation(trust, directory, holders=HOLDERS) as federation:
            job = await open_crowd(
                federation,
                contributions_per_client=1,
                open_seconds=30,
            )
            model = await finish(federation, job)
            assert not durable.plan, "a death did not come about"
            steps = list(durable.taken)
            outcomes: Counter[str] = Counter()
            for site in SITES:
                found = await crowd_status(federation, site)
                assert found is not None and found.verdict == "borne out"
                outcomes.update(found.contributions)
            return Ended(await charged(federation), outcomes, model.contributions, steps)


@pytest.fixture(scope="module")
def calm(open_trust: Trust, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return asyncio.run(run(open_trust, tmp_path_factory.mktemp("calm"), []))


def test_the_steps_of_a_crowd_job_are_those_of_which_it_is_made(calm: Ended) -> None:
    assert set(calm.charges.values()) == {1} and calm.in_the_end == len(calm.charges)
    for party, names in KNOWN.items():
        assert names <= {step.name for step in calm.steps if step.party == party}


@pytest.mark.parametrize("when", When, ids=lambda when: when.value)
@pytest.mark.parametrize(("party", "name"), [(p, name) for p in KNOWN for name in sorted(KNOWN[p])])
def test_a_death_at_a_step_costs_nobody_more_and_loses_nothing_acknowledged(
    open_trust: Trust, calm: Ended, tmp_path: Path, party: str, name: str, when: When
) -> None:
    """At the second step of its name, or the only one."""
    count = sum((step.party, step.name) == (party, name) for step in calm.steps)
    plan = [Death(when, party, name, min(1, count - 1))]
    ended = asyncio.run(run(open_trust, tmp_path, plan))
    assert max(ended.charges.values()) == 1
    assert sum(ended.charges.values()) == sum(ended.outcomes.values())
    assert ended.outcomes["acknowledged"] <= ended.in_the_end <= sum(ended.outcomes.values())
    assert ended.outcomes["acknowledged"] >= len(calm.charges) - 1  # at most one was cut off

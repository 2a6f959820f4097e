"""A trainer's death just before and just after each kind of durable step of a crowd job."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.federation.test_crowd_jobs import (
    HOLDERS,
    charged,
    crowd_status,
    finish,
    open_crowd,
    open_trust,
)
from tests.simulated.durable import Death, DurableSteps, Step, When
from tests.simulated.trust import SITES, Trust
from tests.simulation import Federation

__all__ = ["open_trust"]

CLIENTS = sum(SITES.values())
KINDS = ("add_crowd", "replace_all", "close")


async def run(trust: Trust, directory: Path, plan: Sequence[Death] = ()) -> list[Step]:
    """Run a crowd job to its end and check what came of it; return the trainer's steps."""
    durable = DurableSteps(list(plan))
    with durable.watched():
        async with Federation(trust, directory, holders=HOLDERS) as federation:
            job = await open_crowd(
                federation, contributions_per_client=1, contributions_per_record=1
            )
            model = await finish(federation, job)
            assert not durable.plan, "a death did not come about"
            assert model.contributions == CLIENTS
            assert await charged(federation) == {client: 1 for client in range(CLIENTS)}
            for site, clients in SITES.items():
                found = await crowd_status(federation, site)
                assert found is not None
                assert (found.contributions, found.verdict) == (
                    {"acknowledged": clients},
                    "borne out",
                )
    return [step for step in durable.taken if step.party == "trainer" and step.name in KINDS]


@pytest.fixture(scope="module")
def calm(open_trust: Trust, tmp_path_factory: pytest.TempPathFactory) -> list[Step]:
    return asyncio.run(run(open_trust, tmp_path_factory.mktemp("calm")))


@pytest.mark.parametrize("when", When, ids=lambda when: when.value)
@pytest.mark.parametrize("kind", KINDS)
def test_a_trainers_death_at_any_kind_of_step_loses_and_doubles_nothing(
    open_trust: Trust, calm: list[Step], tmp_path: Path, kind: str, when: When
) -> None:
    numbers = [step.number for step in calm if step.name == kind]
    plan = [Death(when, "trainer", kind, numbers[len(numbers) // 2])]
    asyncio.run(run(open_trust, tmp_path, plan))

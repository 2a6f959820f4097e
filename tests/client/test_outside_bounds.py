"""What a data holder's log says of values that a job's bounds cut, and of whom it says nothing."""

from pathlib import Path

import numpy as np
import pytest

from shoal_client.outside_bounds import FEWEST_CLIENTS, outside_bounds
from shoal_client.records import Records
from shoal_protocol.tasks.bounds import ColumnBounds
from tests.client.crowd_world import CrowdWorld
from tests.client.world import World

AGE = ColumnBounds(name="age", lower=0.0, upper=100.0)
DOSE = ColumnBounds(name="dose", lower=-1.0, upper=1.0)
CLIENTS = 200


def records(*, old: int, doses: int, clients: int = CLIENTS) -> Records:
    """Return records in which so many ages lie above their bounds, and doses below theirs."""
    ages, amounts = np.full(clients, 100.0), np.full(clients, -1.0)
    ages[:old], amounts[:doses] = 100.5, -7.0
    return Records(("dose", "age"), np.column_stack([amounts, ages]), np.arange(clients + 1))


@pytest.mark.parametrize(
    ("old", "doses", "said"),
    [
        (0, 0, ""),
        (2, 0, ""),
        (3, 0, "age: more than 1 %"),
        (21, 101, "age: more than a tenth; dose: more than half"),
    ],
)
def test_columns_whose_values_pass_their_bounds_are_named_with_a_coarse_share(
    old: int, doses: int, said: str
) -> None:
    assert outside_bounds(records(old=old, doses=doses), [AGE, DOSE]) == said


def test_nothing_is_said_where_a_share_could_be_one_clients() -> None:
    few, enough = FEWEST_CLIENTS - 1, FEWEST_CLIENTS
    assert outside_bounds(records(old=few, doses=0, clients=few), [AGE]) == ""
    assert outside_bounds(records(old=enough, doses=0, clients=enough), [AGE]) != ""


def beyond(given: Records) -> Records:
    return Records(given.columns, given.values + np.array([1000.0, 0.0]), given.starts)


async def test_a_log_says_once_that_bounds_do_not_fit_whichever_protocol_a_job_has(
    tmp_path: Path,
) -> None:
    crowd, rounds = CrowdWorld(tmp_path / "crowd", FEWEST_CLIENTS), World(tmp_path, FEWEST_CLIENTS)
    rounds.submit()
    for world, taken in ((crowd, "crowd job taken"), (rounds, "job joined")):
        told: list[tuple[str, object]] = []
        holder = world.holder(
            records=beyond(world.records),
            report=lambda event, to=told, **facts: to.append((event, facts.get("columns"))),
        )
        for _ in range(100):
            await holder.step()
            world.clock.pass_seconds(1)
        assert [event for event, _ in told].count(taken) == 1
        assert [columns for event, columns in told if event == "values outside bounds"] == [
            "age: more than half"
        ]
        await holder.close()

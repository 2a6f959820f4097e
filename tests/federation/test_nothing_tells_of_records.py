"""Jobs that differ in `records_per_client` alone, and cost nothing, show nothing of records."""

import json
from pathlib import Path

import numpy as np
import pytest

from shoal_holder.records import Records
from tests.world.federation import Federation
from tests.world.people import people
from tests.world.trust import COLUMNS, SITES, TASK, Trust, make_trust

HOW_MANY = (1, 2, 3)


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"))


def records(trust: Trust, site: str) -> Records:
    """Return records of clients that have 0 to 4, and of each of these counts some."""
    rows, starts = [], [0]
    for client, (age, pressure) in enumerate(trust.records(site).values.tolist()):
        own = [[age, pressure]] * (client % 5) or [[np.nan, pressure]]
        rows += own
        starts.append(len(rows))
    return people(COLUMNS, np.array(rows), starts)


async def test_three_jobs_show_nobody_how_many_records_a_client_has(
    trust: Trust, tmp_path: Path
) -> None:
    """One site is away, so that the least population is never there, and nothing is paid."""
    told: list[str] = []

    def report(event: str, /, **facts: object) -> None:
        if event != "declaration settled":  # once, before the first job
            told.append(repr((event, facts)))

    holders = {site: {"records": records(trust, site), "report": report} for site in SITES}
    everybody, away = sum(SITES.values()), list(SITES)[-1]
    here = [site for site in SITES if site != away]
    expected = everybody - SITES[away]
    async with Federation(trust, tmp_path, holders=holders, absent=[away]) as federation:
        shown, said = [], []
        for most in HOW_MANY:
            told.clear()
            job = await federation.submit(
                task=TASK.model_copy(update={"records_per_client": most}),
                minimum_population=everybody,
                maximum_population=everybody,
            )
            state = await federation.finish(job)
            said.append([each.replace(job, "JOB") for each in told])
            joins = [
                json.loads(message.body)["body"]["holder"]
                for message in federation.wire.log
                if message.path == f"/v1/jobs/{job}/joins"
            ]
            shown.append((state["joined"], state["phase"], sorted(joins)))
        statuses = [await federation.holder(site).status() for site in here]
        spent = [await federation.holder(site).spent() for site in here]
    assert shown == [(expected, "failed", [0, 1])] * len(HOW_MANY)
    assert not any(spent)
    assert said[0] == said[1] == said[2]
    for status in statuses:
        assert not status.refused
        assert len({(each.join, each.ended, each.rounds) for each in status.jobs}) == 1

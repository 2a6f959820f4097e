"""Whatever a round asks that depends on records was paid for: it follows from released sums alone.

The step that bounds columns by their spreads is where private data reach a query. So every query of
a job is made again here from the task, the population's size and the results that were published.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shoal_protocol.rounds.attestations import PartialSum, Result
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import from_json
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64
from shoal_studies.contract import RequestedRound
from shoal_studies.registry import learner_for
from tests.world.audit import look_at
from tests.world.federation import Federation
from tests.world.trust import SITES, TASK_WITH_PROJECTION, Trust, make_trust

POPULATION = sum(SITES.values())


class Released(NamedTuple):
    """A round and what it released."""

    spec: RoundSpec
    result: Result


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"))


@pytest.fixture
async def learned(trust: Trust, tmp_path: Path) -> Any:
    """A federation that has finished a job of two rounds."""
    async with Federation(trust, tmp_path) as federation:
        await federation.learn(task=TASK_WITH_PROJECTION)
        yield federation


async def rounds_of(federation: Federation) -> list[Released]:
    """Return the job's rounds, with what was released of each, in order."""
    specs = sorted(look_at(federation).specs.values(), key=lambda spec: spec.number)
    return [Released(spec, await result_of(federation, spec)) for spec in specs]


async def result_of(federation: Federation, spec: RoundSpec) -> Result:
    [end, *_] = await federation.outcome(spec.digest)
    return from_json(end, Result).body


def asked(released: list[Released]) -> Iterator[Any]:
    """Yield the query of each round as public knowledge alone makes it."""
    sums = [ReleasedSum.of(*each) for each in released]
    for number in range(len(released)):
        wanted = learner_for(TASK_WITH_PROJECTION).next(POPULATION, sums[:number])
        assert isinstance(wanted, RequestedRound)
        yield wanted.query


@pytest.mark.slow
async def test_every_query_follows_from_the_task_and_released_sums_alone(
    learned: Federation,
) -> None:
    released = await rounds_of(learned)
    assert len(released) == 2
    assert list(asked(released)) == [each.spec.query for each in released]


@pytest.mark.slow
async def test_the_second_rounds_bounds_do_depend_on_what_the_first_released(
    learned: Federation,
) -> None:
    first, second = await rounds_of(learned)
    values = decode_uint64(first.result.values)
    more = first.result.model_copy(update={"values": encode_uint64(values * 4)})
    [_, otherwise] = asked([Released(first.spec, more), second])
    assert otherwise != second.spec.query, "there would be nothing to pay for"


@pytest.mark.slow
async def test_every_round_that_bounds_came_from_is_on_everybodys_ledger(
    learned: Federation,
) -> None:
    rounds = {each.spec.digest for each in await rounds_of(learned)}
    entries = (await learned.ask("trainer", "/v1/ledger")).json()["entries"]
    assert {each["round"] for each in entries if each["mu"] > 0} == rounds
    for site in SITES:
        said = [each.statement for each in await learned.holder(site).chain()]
        assert {each.subject for each in said if each and each.kind == "answer"} == rounds
    for round_id in rounds:
        [_, *shown] = await learned.outcome(round_id)
        sums = [from_json(each, PartialSum).body for each in shown]
        assert {each.node for each in sums} == set(learned.nodes)
        assert all(each.round == round_id and each.charge.job_rounds > 0 for each in sums)

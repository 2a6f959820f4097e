"""The public rule by which rounds with mini-batches ask clients, and what each of these pays."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Cost, compose
from shoal_protocol.privacy.job_costs import Participation
from shoal_protocol.rounds.batches import check_batch, choose_batch, largest_part
from shoal_protocol.wire.encoding import domain
from shoal_protocol.wire.errors import RefusedSpec

JOB = "5a" * 32
COST = Cost.gaussian(0.25)
populations = st.sets(st.integers(0, 2**32 - 1), min_size=2, max_size=40).map(BitMap)
NOBODY = BitMap()


def choose(
    participation: Participation, gone: BitMap = NOBODY, owners=None, **changes
) -> BitMap | None:
    arguments = {"job": JOB, "size": 3, "most": 10**6} | changes
    owners = alone(participation.population) if owners is None else owners
    return choose_batch(participation, participation.population - gone, owners, **arguments)


def alone(population: BitMap) -> np.ndarray:
    """Return owners of whom each has one client."""
    return np.arange(len(population), dtype=np.uint32)


@st.composite
def jobs(draw):
    population = draw(populations)
    return population, draw(st.integers(1, len(population))), draw(st.integers(1, 40))


@given(jobs())
def test_nobody_is_asked_more_often_than_the_rounds_need_and_nobody_less_by_two(job):
    population, size, rounds = job
    participation = Participation(population)
    for number in range(1, rounds + 1):
        batch = choose(participation, size=size)
        assert len(batch) == size
        assert batch.issubset(population)
        participation.add(batch, COST)
        assert participation.rounds.max() == math.ceil(number * size / len(population))
        assert participation.rounds.max() - participation.rounds.min() <= 1


@pytest.mark.slow
@given(jobs(), st.data())
def test_the_hard_limit_holds_whoever_leaves_and_readers_can_tell_that_they_left(job, data):
    population, size, rounds = job
    most = math.ceil(rounds * size / len(population))
    participation, gone, seen = Participation(population), BitMap(), BitMap()
    for _ in range(rounds):
        leaving = data.draw(st.sets(st.sampled_from(sorted(population)), max_size=2))
        gone |= BitMap(leaving)
        batch = choose(participation, gone, size=size, most=most)
        if batch is None:
            break
        assert not batch & gone
        rule = {"job": JOB, "size": size, "most": most}
        seen = check_batch(batch, participation, seen, alone(population), **rule, may_leave=True)
        assert seen.issubset(gone)
        participation.add(batch, COST)
        assert participation.rounds.max() <= most


@given(jobs(), st.data())
def test_the_rule_is_the_one_on_the_protocol_page(job, data):
    """Written again from the page: fewest rounds first, then by rank in the job's order."""
    population, size, rounds = job
    participation = Participation(population)
    holders = st.lists(st.integers(0, 3), min_size=len(population), max_size=len(population))
    owner = dict(zip(population, data.draw(holders), strict=True))
    owners = np.array(list(owner.values()), np.uint32)
    asked = dict.fromkeys(population, 0)

    def digest(client: int) -> bytes:
        content = bytes.fromhex(JOB) + client.to_bytes(4, "little")
        return hashlib.sha256(domain("batch-order") + content).digest()

    line: list[int] = []
    for first in sorted(population, key=digest):
        if first not in line:
            his = [each for each in population if owner[each] == owner[first]]
            line += sorted(his, key=digest)

    def place(client: int) -> tuple[int, int, int]:
        at = line.index(client)
        return asked[client], at * size % len(line), at

    for _ in range(rounds):
        expected = BitMap(sorted(population, key=place)[:size])
        assert choose(participation, owners=owners, size=size) == expected
        participation.add(expected, COST)
        for client in expected:
            asked[client] += 1


@given(st.lists(st.integers(1, 30), min_size=2, max_size=8), st.data())
def test_the_largest_part_covers_every_population_that_a_job_could_have(sizes, data):
    joined = data.draw(st.lists(st.sampled_from(range(len(sizes))), min_size=1, unique=True))
    able = [data.draw(st.integers(1, sizes[each])) for each in joined]  # others lack budget
    least = data.draw(st.integers(1, sum(able)))
    size, holders = data.draw(st.integers(1, least)), data.draw(st.integers(1, 3))
    promised = largest_part(sizes, holders=holders, size=size, population=least)
    assert largest_part(able, holders=holders, size=size, population=sum(able)) <= promised <= size


def test_there_is_no_batch_when_too_few_may_be_asked():
    participation = Participation(BitMap(range(4)))
    assert choose(participation, size=4) == participation.population
    assert choose(participation, size=5) is None
    assert choose(participation, BitMap([2]), size=4) is None
    participation.add(BitMap([1]), COST)
    assert choose(participation, size=4, most=1) is None
    assert choose(participation, size=3, most=1) == BitMap([0, 2, 3])
    with pytest.raises(ValueError, match="at least one"):
        choose(participation, size=0)


def check(batch: BitMap, participation: Participation, gone: BitMap, *, may_leave: bool) -> BitMap:
    rule = {"job": JOB, "size": 3, "most": 5}
    owners = alone(participation.population)
    return check_batch(batch, participation, gone, owners, **rule, may_leave=may_leave)


def test_a_batch_of_the_trainers_own_choice_is_refused():
    participation = Participation(BitMap(range(12)))
    due = choose(participation)
    left_out = due[0]
    other = next(client for client in participation.population if client not in due)
    chosen = due - BitMap([left_out]) | BitMap([other])
    assert check(due, participation, NOBODY, may_leave=False) == NOBODY
    with pytest.raises(RefusedSpec, match="public rule"):
        check(chosen, participation, NOBODY, may_leave=False)
    with pytest.raises(RefusedSpec, match="public rule"):
        check(chosen, participation, BitMap([other]), may_leave=True)


def test_a_batch_too_small_or_of_strangers_is_refused():
    participation = Participation(BitMap(range(12)))
    due = choose(participation)
    for batch in (due - BitMap([due[0]]), due | BitMap([99]), BitMap()):
        for may_leave in (True, False):
            with pytest.raises(RefusedSpec):
                check(batch, participation, NOBODY, may_leave=may_leave)


rounds_of_a_job = st.lists(
    st.tuples(
        st.sets(st.integers(0, 20)).map(BitMap),
        st.floats(1e-3, 2.0).map(Cost.gaussian) | st.floats(1e-3, 2.0).map(Cost.pure),
    ),
    max_size=8,
)


@given(rounds_of_a_job, st.sets(st.integers(0, 20)).map(BitMap))
def test_a_client_pays_for_the_rounds_that_asked_it_and_no_others(rounds, of):
    participation = Participation(BitMap(range(21)))
    for clients, cost in rounds:
        participation.add(clients, cost)
    paid = [compose(cost for clients, cost in rounds if client in clients) for client in of]
    largest = participation.largest(of)
    assert largest.mu == pytest.approx(max((each.mu for each in paid), default=0.0))
    assert largest.epsilon == pytest.approx(max((each.epsilon for each in paid), default=0.0))
    counts = [sum(client in clients for clients, _ in rounds) for client in range(21)]
    assert np.array_equal(participation.rounds, counts)

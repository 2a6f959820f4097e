"""Budgets of clients over any sequence of jobs, against a plain model of them."""

import math

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_trainer.accounts import Accounts

CLIENTS = st.sets(st.integers(0, 30), min_size=1).map(BitMap)
COSTS = st.floats(0.01, 4.0)


@given(
    jobs=st.lists(st.tuples(CLIENTS, COSTS, st.floats(0.0, 1.0)), max_size=12),
    client=st.integers(0, 40),
)
def test_what_is_set_aside_and_not_spent_comes_back(
    jobs: list[tuple[BitMap, float, float]], client: int
) -> None:
    accounts, committed = Accounts(), 0.0
    for clients, allowed, spent_share in jobs:
        accounts.commit(clients, allowed)
        accounts.release(clients, allowed * (1.0 - spent_share))
        committed += allowed * spent_share if client in clients else 0.0
    room = math.sqrt(1.0 + 1e-6)
    budget_mu = math.sqrt(committed + 1.0)
    assert accounts.affords(client, mu=0.999, budget_mu=budget_mu)
    assert not accounts.affords(client, mu=room, budget_mu=budget_mu)


@given(
    jobs=st.lists(st.tuples(CLIENTS, COSTS), max_size=12),
    asked=CLIENTS,
    budget_mu=st.floats(0.1, 5.0),
)
def test_counting_who_can_afford_a_job_agrees_with_asking_each(
    jobs: list[tuple[BitMap, float]], asked: BitMap, budget_mu: float
) -> None:
    accounts = Accounts()
    for clients, cost in jobs:
        accounts.commit(clients, cost)
    alone = [accounts.affords(client, mu=1.0, budget_mu=budget_mu) for client in asked]
    assert accounts.count_affording(asked, mu=1.0, budget_mu=budget_mu) == sum(alone)


def test_a_budget_can_be_spent_to_the_last_bit_in_equal_parts() -> None:
    accounts, clients = Accounts(), BitMap([7])
    for _ in range(9):
        assert accounts.affords(7, mu=0.1, budget_mu=0.3)
        accounts.commit(clients, 0.1**2)
    assert not accounts.affords(7, mu=0.1, budget_mu=0.3)

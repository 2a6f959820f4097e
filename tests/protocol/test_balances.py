"""Costs of many clients at once, against the same costs composed client by client."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Balances, Cap, Cost, compose

costs = st.one_of(
    st.floats(1e-3, 5.0).map(Cost.gaussian),
    st.floats(1e-3, 5.0).map(Cost.pure),
)
populations = st.sets(st.integers(0, 40)).map(BitMap)
charges = st.lists(st.tuples(populations, costs), max_size=8)
caps = st.builds(Cap, epsilon=st.floats(0.1, 20.0), delta=st.sampled_from([0.0, 1e-9, 1e-3]))


@given(charged=charges, asked=populations, further=costs, cap=caps)
def test_a_client_affords_what_its_composed_costs_leave(charged, asked, further, cap):
    balances = Balances()
    for clients, cost in charged:
        balances.add(clients, cost)
    spent = {
        client: compose(cost for clients, cost in charged if client in clients) for client in asked
    }
    able = {client for client, cost in spent.items() if cap.allows(compose([cost, further]))}
    assert set(balances.affording(asked, further, cap)) == able
    assert set(balances.charged) == {client for clients, _ in charged for client in clients}
    assert {client: cost.epsilon for client, cost in balances.of(asked).items()} == pytest.approx(
        {client: cost.epsilon for client, cost in spent.items()}
    )
    largest = balances.largest(asked)
    assert math.isclose(largest.mu, max((cost.mu for cost in spent.values()), default=0.0))
    assert math.isclose(
        largest.epsilon, max((cost.epsilon for cost in spent.values()), default=0.0)
    )


@given(kept=charges, given_back=charges)
def test_what_is_taken_back_was_never_charged(kept, given_back):
    balances, plain = Balances(), Balances()
    for clients, cost in (*kept, *given_back):
        balances.add(clients, cost)
    for clients, cost in given_back:
        balances.take_back(clients, cost)
    for clients, cost in kept:
        plain.add(clients, cost)
    for client in range(41):
        found, expected = balances.largest(BitMap([client])), plain.largest(BitMap([client]))
        assert math.isclose(found.mu, expected.mu, abs_tol=1e-6)
        assert math.isclose(found.epsilon, expected.epsilon, abs_tol=1e-12)


def test_a_gaussian_charge_leaves_a_pure_cap_for_good_unless_it_is_taken_back():
    balances, client, cap = Balances(), BitMap([3]), Cap(epsilon=1.0, delta=0.0)
    balances.add(client, Cost.gaussian(0.01))
    assert not balances.affording(client, Cost.pure(0.1), cap)
    balances.take_back(client, Cost.gaussian(0.01))
    assert balances.affording(client, Cost.pure(1.0), cap) == client


@given(charged=charges, joined=populations, price=costs)
def test_a_job_reserves_what_its_rounds_have_not_cost_yet(charged, joined, price):
    spent, balances = Balances(), Balances()
    for clients, cost in charged:
        spent.add(clients, cost)
    before = balances.copy()
    balances.reserve(joined, price, spent=spent)
    for client, cost in spent.of(joined).items():
        found = balances.largest(BitMap([client]))
        assert math.isclose(found.mu**2, max(0.0, price.mu**2 - cost.mu**2), abs_tol=1e-9)
    assert not before.charged

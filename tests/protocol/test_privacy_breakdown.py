"""What a job's rounds were paid for: parts of the price that add up to all of it."""

import pytest

from shoal_protocol.jobs.privacy_breakdown import privacy_breakdown
from shoal_protocol.privacy.accounting import Cost
from tests.world import examples


def test_rounds_of_one_query_are_one_entry_and_parts_are_of_mu_squared() -> None:
    matrix = examples.spec(mu=0.3)
    counted = examples.spec(mu=0.1, query=examples.MOMENTS, number=1)
    found = privacy_breakdown([counted, matrix, matrix])
    assert [(each.query, each.rounds) for each in found] == [
        ("second_moments", 1),
        ("second_moment_matrix", 2),
    ]
    assert [each.share for each in found] == pytest.approx([0.01 / 0.19, 0.18 / 0.19])
    assert str(found[1]) == "94.7 % for moments of the columns (2 rounds)"


def test_with_pure_epsilon_parts_are_of_epsilon() -> None:
    laplace = {"manifest": examples.LAPLACE_CONSORTIUM, "mechanism": "discrete_laplace"}
    first = examples.spec(cost=Cost.pure(epsilon=0.5), query=examples.MOMENTS, **laplace)
    second = examples.spec(cost=Cost.pure(epsilon=1.5), **laplace)
    assert [each.share for each in privacy_breakdown([first, second])] == pytest.approx(
        [0.25, 0.75]
    )

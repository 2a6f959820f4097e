"""What a round of scores may choose, and what a client refuses because its job has it otherwise."""

from typing import Any

import pytest
from pydantic import ValidationError

from shoal_protocol.jobs.job_request import AS_STATED, Range, RoundTerms, Terms
from shoal_protocol.queries import Mechanism, ScoreSum
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.scores import Family
from shoal_protocol.wire.errors import RefusedSpec

AGE = ColumnBounds(name="age", lower=18.0, upper=90.0)
VISITS = ColumnBounds(name="visits", lower=0.0, upper=20.0)
SCORES = ScoreSum(
    columns=(AGE.column(), VISITS.column()),
    intercept=0.25,
    radius=0.9,
    grid_bits=12,
    records_per_client=2,
    family="poisson",
    point=(0.0, 0.0),
    dispersion=1.0,
    residual_cut=2.0,
)
MECHANISMS: tuple[Mechanism, ...] = ("discrete_gaussian", "discrete_laplace")


def terms(*, recentred: bool, family: Family = "poisson") -> Terms:
    kind = RoundTerms(
        rounds=2,
        query=changed(family=family),
        recentred=recentred,
        stretch=AS_STATED,
        radius=Range(least=0.5, most=1.0),
    )
    return Terms(bounds=(AGE, VISITS), batch=None, kinds=(kind,))


def changed(**changes: Any) -> ScoreSum:
    return ScoreSum.model_validate(SCORES.model_dump() | changes)


@pytest.mark.parametrize("family", ["normal", "poisson"])
@pytest.mark.parametrize("recentred", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"point": (-1.5, 3.0)},
        {"point": (1e6, -1e6)},
        {"dispersion": 1e-300},
        {"dispersion": 1e6},
        {"residual_cut": 5e-324},
        {"residual_cut": 1e6},
        {"radius": 0.5},
        {"basis": ((1e6,), (-1e6, 1e-300))},
    ],
)
def test_a_round_chooses_where_scores_are_taken_and_cut_and_costs_no_more(
    change: dict[str, Any], recentred: bool, family: Family
) -> None:
    query = changed(family=family, **change)
    for number in range(2):
        terms(recentred=recentred, family=family).check(query, number=number)
    for mechanism in MECHANISMS:
        assert query.design(mechanism) == SCORES.design(mechanism)
    assert query.largest_value == SCORES.largest_value


@pytest.mark.parametrize("family", ["normal", "poisson"])
@pytest.mark.parametrize("recentred", [False, True])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"family": "logistic"}, "family"),
        ({"family": "negative_binomial"}, "family"),
        ({"grid_bits": 11}, "grid_bits"),
        ({"intercept": 0.5}, "intercept"),
        ({"records_per_client": 1}, "records_per_client"),
        ({"radius": 1.2}, "radius"),
        ({"radius": 0.4}, "radius"),
        ({"columns": (VISITS.column(), AGE.column())}, "columns"),
        ({"columns": (AGE.column(), VISITS.column().model_copy(update={"scale": 1.0}))}, "scales"),
        ({"columns": (AGE.column(), VISITS.column().model_copy(update={"centre": -9.0}))}, "centr"),
    ],
)
def test_a_round_of_scores_that_is_another_ones_is_refused(
    change: dict[str, Any], reason: str, recentred: bool, family: Family
) -> None:
    with pytest.raises(RefusedSpec, match=reason):
        terms(recentred=recentred, family=family).check(
            changed(**{"family": family} | change), number=0
        )


def test_a_round_of_scores_of_fewer_coordinates_costs_no_more() -> None:
    query = changed(basis=((2.5,),))
    terms(recentred=True).check(query, number=0)
    assert query.dimension == SCORES.dimension - 2
    for mechanism in MECHANISMS:
        assert query.design(mechanism).sensitivity <= SCORES.design(mechanism).sensitivity


def test_a_round_of_scores_may_not_take_a_point_of_another_length_nor_ask_once_more() -> None:
    with pytest.raises(ValidationError, match="one coordinate"):
        changed(point=(0.0, 0.0, 0.0))
    with pytest.raises(RefusedSpec, match="no such round"):
        terms(recentred=False).check(SCORES, number=2)

"""A term's values follow from its variables, and never leave the range that public bounds give."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shoal_protocol.queries import Column, Counts, LevelCut, SecondMomentMatrix
from shoal_protocol.queries.columns import (
    Centred,
    ColumnBounds,
    Legendre,
    Level,
    Log,
    Power,
    Spline,
    Term,
    design_of,
    variables_of,
)

AGE = {"variable": "age", "lower": 18.0, "upper": 90.0}

finite = st.floats(allow_nan=False, allow_infinity=False)
bounds = st.tuples(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4)).map(
    lambda pair: {"lower": pair[0], "upper": pair[0] + pair[1]}
)
variables = st.sampled_from(["age", "bmi", "stage"])
powers = st.builds(
    lambda name, ends, exponent: Power(variable=name, **ends, exponent=exponent),
    variables,
    bounds,
    st.integers(1, 6),
)
logs = st.builds(
    lambda name, lower, factor: Log(variable=name, lower=lower, upper=lower * factor),
    variables,
    st.floats(1e-6, 1e6),
    st.floats(1.001, 1e6),
)
centred = st.builds(
    lambda name, ends, at: Centred(variable=name, **ends, at=at),
    variables,
    bounds,
    st.floats(-1e4, 1e4),
)
polynomials = st.builds(
    lambda name, ends, degree: Legendre(variable=name, **ends, degree=degree),
    variables,
    bounds,
    st.integers(1, 6),
)
levels = st.builds(Level, variable=variables, value=st.integers(0, 5).map(float))


@st.composite
def splines(draw: st.DrawFn) -> Spline:
    ends = draw(bounds)
    shares = sorted(draw(st.sets(st.integers(1, 99), max_size=5)))
    knots = [ends["lower"] + (ends["upper"] - ends["lower"]) * each / 100 for each in shares]
    place = draw(st.integers(0, len(knots) + 3))
    return Spline(variable=draw(variables), **ends, knots=tuple(knots), place=place)


factors = powers | centred | polynomials | logs | levels | splines()
values = finite | st.floats(-1e4, 1e4) | st.integers(-3, 6).map(float)


def is_small(factors: list[Any]) -> bool:
    try:
        Term(factors=tuple(factors))
    except ValidationError:
        return False
    return True


terms = (
    st.lists(factors, min_size=1, max_size=4).filter(is_small).map(lambda all: Term(factors=all))
)


@given(term=terms, age=values, bmi=values, stage=values)
def test_no_value_of_a_term_is_beyond_its_range(
    term: Term, age: float, bmi: float, stage: float
) -> None:
    found = term.of({"age": np.array([age]), "bmi": np.array([bmi]), "stage": np.array([stage])})
    lower, upper = term.range
    assert found.shape == (1,) and lower <= found[0] <= upper


@given(factor=powers | centred | logs | splines(), share=st.floats(0.0, 1.0))
def test_the_range_is_reached_and_not_wider_than_the_function_is(factor: Any, share: float) -> None:
    places = np.linspace(factor.lower, factor.upper, 501)
    found = factor.of(places)
    lower, upper = factor.range
    if isinstance(factor, Spline):
        assert found.max() <= 1.0 and found.min() >= 0.0
    else:
        inner = 0.0 if lower == 0.0 and factor.lower < 0.0 else lower
        assert found.max() == pytest.approx(upper) and found.min() <= inner + 1e-3 * abs(upper)


def test_each_factor_is_the_function_that_it_says() -> None:
    values = np.array([-5.0, 18.0, 40.0, 90.0, 1e300])
    cut = [18.0, 18.0, 40.0, 90.0, 90.0]
    assert Power(**AGE, exponent=1).of(values).tolist() == cut
    assert Power(**AGE, exponent=3).of(values).tolist() == [each**3 for each in cut]
    assert Centred(**AGE, at=50.0).of(values).tolist() == [each - 50.0 for each in cut]
    assert Centred(**AGE, at=50.0).range == (-32.0, 40.0)
    assert Log(**AGE).of(values) == pytest.approx(np.log(cut), rel=1e-15)
    assert Level(variable="age", value=40.0).of(values).tolist() == [0, 0, 1, 0, 0]
    assert Power(variable="x", lower=-2.0, upper=3.0, exponent=2).range == (0.0, 9.0)
    assert Power(variable="x", lower=-2.0, upper=1.0, exponent=3).range == (-8.0, 1.0)


def test_polynomials_are_those_of_numpy_and_orthogonal_over_the_bounds() -> None:
    nodes, weights = np.polynomial.legendre.leggauss(8)
    basis = [Legendre(**AGE, degree=degree) for degree in range(1, 7)]
    found = np.array([each.of(54.0 + 36.0 * nodes) for each in basis])
    due = np.polynomial.legendre.legvander(nodes, 6).T[1:]
    assert found == pytest.approx(due, abs=1e-13)
    products = (found * weights) @ found.T
    assert products == pytest.approx(np.diag(2.0 / (2.0 * np.arange(1, 7) + 1.0)), abs=1e-13)


def test_a_level_out_of_its_variables_range_is_no_level() -> None:
    places = np.array([-1.0, 0.0, 2.0, 7.0])
    assert Level(variable="stage", value=2.0).of(places).tolist() == [0.0, 0.0, 1.0, 0.0]


@given(knots=st.sets(st.integers(1, 9), max_size=4), value=st.floats(-1.0, 11.0))
def test_splines_of_one_basis_add_up_to_one_and_are_those_of_scipy(
    knots: set[int], value: float
) -> None:
    scipy = pytest.importorskip("scipy.interpolate")
    inner = tuple(float(each) for each in sorted(knots))
    basis = [
        Spline(variable="x", lower=0.0, upper=10.0, knots=inner, place=place)
        for place in range(len(inner) + 4)
    ]
    found = np.array([each.of(np.array([value]))[0] for each in basis])
    assert math.fsum(found) == pytest.approx(1.0)
    whole = np.array([0.0] * 4 + list(inner) + [10.0] * 4)
    cut = min(max(value, 0.0), 10.0)
    due = scipy.BSpline.design_matrix(np.array([cut]), whole, 3).toarray()[0]
    assert found == pytest.approx(due, abs=1e-12)


@pytest.mark.parametrize(
    ("factor", "reason"),
    [
        ({"kind": "power", **AGE, "exponent": 7}, "less than or equal to 6"),
        ({"kind": "power", **AGE, "exponent": 0}, "greater than or equal to 1"),
        ({"kind": "power", **AGE, "exponent": 1, "upper": 18.0}, "below its upper"),
        ({"kind": "power", **AGE, "exponent": 1, "upper": 18.0 + 1e-12}, "too close"),
        ({"kind": "log", **AGE, "lower": 0.0}, "greater than 0"),
        ({"kind": "spline", **AGE, "knots": [50.0, 40.0], "place": 0}, "knots ascend"),
        ({"kind": "spline", **AGE, "knots": [18.0], "place": 0}, "knots ascend"),
        ({"kind": "spline", **AGE, "knots": [95.0], "place": 0}, "knots ascend"),
        ({"kind": "spline", **AGE, "knots": [40.0], "place": 5}, "no such place"),
        ({"kind": "level", "variable": "age", "value": math.nan}, "finite"),
        ({"kind": "level", "variable": "a\nge", "value": 1.0}, "printable"),
        ({"kind": "exp", **AGE}, "kind"),
        ({"kind": "power", **AGE, "exponent": 1, "code": "x"}, "not permitted"),
    ],
)
def test_what_is_not_of_the_language_is_refused(factor: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Term.model_validate({"factors": [factor]})


def test_a_term_that_floats_could_not_hold_is_refused() -> None:
    huge = Power(variable="x", lower=-1e9, upper=1e9, exponent=3)
    small = Power(variable="y", lower=-1e-9, upper=1e-9, exponent=3)
    assert Term(factors=(huge, small, huge)).range == pytest.approx((-1e27, 1e27))
    with pytest.raises(ValidationError, match="larger than 1e30"):
        Term(factors=(huge, huge, small))
    with pytest.raises(ValidationError, match="too close"):
        ColumnBounds.of_term("y", Term(factors=(small, small)))


QUADRATIC = ColumnBounds.of_term("age**2", Term(factors=(Power(**AGE, exponent=2),)))
INTERACTION = ColumnBounds.of_term(
    "age:stage[II]", Term(factors=(Power(**AGE, exponent=1), Level(variable="stage", value=1.0)))
)
PRESSURE = ColumnBounds(name="pressure", lower=60.0, upper=200.0)


def test_records_have_a_column_for_each_variable_once_in_order_of_appearance() -> None:
    columns = (QUADRATIC, PRESSURE, INTERACTION, ColumnBounds(name="age", lower=0.0, upper=120.0))
    assert variables_of(columns) == ("age", "pressure", "stage")
    records = np.array([[40.0, 130.0, 1.0], [95.0, 250.0, 2.0]])
    design = design_of(columns, records)
    assert design.tolist() == [[1600.0, 130.0, 40.0, 40.0], [8100.0, 250.0, 0.0, 95.0]]
    assert design_of(columns, records[:0]).shape == (0, 4)
    plain = (PRESSURE,)
    assert design_of(plain, records[:, 1:2]) is not None and variables_of(plain) == ("pressure",)


def test_a_query_encodes_what_its_terms_make_of_the_records() -> None:
    columns = (QUADRATIC, INTERACTION, PRESSURE)
    fields = {"intercept": 0.25, "radius": 1.25, "grid_bits": 12, "records_per_client": 2}
    query = SecondMomentMatrix(columns=tuple(each.column() for each in columns), **fields)
    plain = SecondMomentMatrix(
        columns=tuple(each.model_copy(update={"term": None}).column() for each in columns), **fields
    )
    records = np.array([[40.0, 1.0, 130.0], [61.5, 0.0, 99.0]])
    design = design_of(columns, records)
    assert query.column_names == ("age", "stage", "pressure")
    assert query.encode(records).tolist() == plain.encode(design).tolist()
    assert query.design("discrete_gaussian") == plain.design("discrete_gaussian")
    assert not query.encode(records[:0]).any()
    with pytest.raises(ValueError, match="record 1, column 'stage'"):
        query.encode(np.array([[40.0, 1.0, 130.0], [40.0, math.nan, 1.0]]))
    with pytest.raises(ValidationError, match="same name"):
        SecondMomentMatrix(columns=(query.columns[0], query.columns[0]), **fields)


def test_what_a_term_makes_can_be_counted() -> None:
    cube = ColumnBounds.of_term("cube", Term(factors=(Power(**AGE, exponent=3),)))
    query = Counts(
        columns=(cube.column(),),
        cut=LevelCut(column=0, levels=(64_000.0,)),
        grid_bits=4,
        records_per_client=3,
    )
    counted = query.encode(np.array([[40.0], [41.0], [40.0]]))
    assert counted.tolist() == [32, 16, 48] and query.column_names == ("age",)


def test_a_column_keeps_its_term_on_the_wire() -> None:
    column = INTERACTION.column()
    assert Column.model_validate_json(column.model_dump_json()) == column
    assert column.term == INTERACTION.term and (column.centre, column.scale) == (45.0, 45.0)

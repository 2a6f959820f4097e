"""The data holder's own rules: what they refuse, and that nothing is allowed by default."""

from pathlib import Path
from typing import Any

import pytest

from shoal_holder.policy import Policy
from shoal_protocol.queries.columns import ColumnBounds, Level, Power, Term
from shoal_protocol.sharing.schemes import ADDITIVE, AdditiveSharing, Sharing, ThresholdSharing
from shoal_studies.catalogue.cohort_card import CohortCardTask, NumberVariable
from tests.world.around_holder import POLICY, QUERY, World

RULES = """
analysts = ["analyst"]
queries = ["second_moments", "second_moment_matrix"]
columns = ["age", "pressure"]
maximum_epsilon = 3.0
delta = 1e-6
minimum_population = 10
minimum_colluders = 2
approval = "automatic"
"""


@pytest.fixture
def request_for(tmp_path: Path):
    world = World(tmp_path)
    return lambda **changes: world.submit(**changes).body


def with_rules(**changes: Any) -> Policy:
    return Policy.model_validate(POLICY.model_dump() | changes)


def test_the_rules_are_read_from_toml(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(RULES)
    assert Policy.from_toml(path) == POLICY.model_copy(update={"declare": True})


@pytest.mark.parametrize("names", [["height"], ["age", "age"]])
def test_a_range_is_of_one_column_that_is_allowed(names: list[str]) -> None:
    ranges = [{"name": name, "lower": 0.0, "upper": 1.0} for name in names]
    with pytest.raises(ValueError, match="a range is of one of the columns"):
        with_rules(ranges=ranges)


@pytest.mark.parametrize(
    ("lower", "upper", "allowed"),
    [(0, 120, True), (-1, 130, True), (1, 120, False), (0, 119, False), (130, 140, False)],
)
def test_a_jobs_bounds_are_within_the_range(request_for, lower, upper, allowed) -> None:
    ranges = [{"name": "age", "lower": lower, "upper": upper}]
    reason = with_rules(ranges=ranges).refusal(request_for())  # which is about ages up to 120
    assert (reason is None) == allowed
    assert allowed or f"the column 'age' between {lower} and {upper} alone" in str(reason)


@pytest.mark.parametrize(
    ("owners", "jobs", "refused"), [(5, 4, True), (5, 5, False), (0, 0, False)]
)
def test_a_card_that_would_show_smaller_cells_than_the_owner_allows_is_refused(
    request_for: Any, owners: int, jobs: int, refused: bool
) -> None:
    variable = NumberVariable(name="age", lower=0, upper=100, bins=16)
    task = CohortCardTask(variables=(variable,), smallest_cell=jobs)
    rules = with_rules(queries=("tables",), columns=("age",), smallest_cell=owners)
    reason = rules.refusal(request_for(task=task))
    assert (reason is not None and "smallest_cell" in reason) == refused


def test_a_term_is_judged_by_the_variables_that_it_reads_and_the_bounds_that_it_cuts_them_to() -> (
    None
):
    ranges = [{"name": "age", "lower": 0.0, "upper": 120.0}]
    rules = with_rules(columns=("age", "smoker"), ranges=ranges)
    within = Power(variable="age", lower=0.0, upper=120.0, exponent=2)
    beyond = within.model_copy(update={"upper": 130.0})
    smokes = Level(variable="smoker", value=1.0)
    for factors, allowed in (
        ((within, smokes), True),
        ((beyond,), False),
        ((within, Level(variable="height", value=1.0)), False),
        ((Level(variable="age", value=121.0),), False),
    ):
        column = ColumnBounds.of_term("a term", Term(factors=factors))
        assert (rules.columns_refusal([column]) is None) == allowed


@pytest.mark.parametrize("missing", [line.split()[0] for line in RULES.strip().splitlines()[:-1]])
def test_every_rule_must_be_stated(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("\n".join(line for line in RULES.splitlines() if not line.startswith(missing)))
    with pytest.raises(ValueError, match=f"{path}.*{missing}"):
        Policy.from_toml(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("maximum_epsilom = 1.0", "maximum_epsilom"),
        ("maximum_epsilon = ", "not TOML"),
        ("[maximum_epsilon]", "not TOML"),
    ],
)
def test_a_mistyped_rule_is_refused(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(f"{RULES}\n{line}\n")
    with pytest.raises(ValueError, match=message):
        Policy.from_toml(path)


@pytest.mark.parametrize(
    ("rule", "value", "reason"),
    [
        ("analysts", (), "analyst"),
        ("queries", ("second_moments",), "query second_moment_matrix"),
        ("columns", ("age",), "column 'pressure'"),
        ("maximum_epsilon", 0.99, "exceeds what this data holder allows"),
        ("delta", 9e-7, "exceeds what this data holder allows"),
        ("minimum_population", 11, "minimum_population"),
        ("minimum_colluders", 3, "colluders"),
    ],
)
def test_each_rule_alone_refuses_a_job(request_for, rule: str, value: object, reason: str) -> None:
    rules = {"maximum_epsilon": 1.0, rule: value}
    assert with_rules(maximum_epsilon=1.0).refusal(request_for()) is None
    refusal = with_rules(**rules).refusal(request_for())
    assert refusal is not None and reason in refusal


@pytest.mark.parametrize(
    ("minimum", "sharing", "reason"),
    [
        (None, ADDITIVE, None),
        (None, ThresholdSharing(threshold=2), "additive sharing only"),
        (2, ADDITIVE, None),
        (2, ThresholdSharing(threshold=2), None),
        (3, ThresholdSharing(threshold=2), "below this data holder's 3"),
        (3, ThresholdSharing(threshold=3), None),
    ],
)
def test_threshold_sharing_is_refused_unless_the_rules_allow_it(
    request_for, minimum: int | None, sharing: Sharing, reason: str | None
) -> None:
    refusal = with_rules(minimum_threshold=minimum).refusal(request_for(sharing=sharing))
    assert (refusal is None) == (reason is None)
    assert reason is None or reason in str(refusal)


@pytest.mark.parametrize(
    ("minimum", "sharing", "allowed"),
    [
        (None, AdditiveSharing(committee=3), False),
        (4, AdditiveSharing(committee=3), False),
        (3, AdditiveSharing(committee=3), True),
        (3, ThresholdSharing(committee=3, threshold=2), True),
        (3, ThresholdSharing(committee=4, threshold=3), True),
    ],
)
def test_committees_are_refused_unless_the_rules_allow_them_so_small(
    request_for, minimum: int | None, sharing: Sharing, allowed: bool
) -> None:
    rules = with_rules(minimum_threshold=2, minimum_committee=minimum)
    refusal = rules.refusal(request_for(sharing=sharing))
    assert refusal is None if allowed else "minimum_committee" in str(refusal)


def test_a_query_for_a_column_or_of_a_kind_not_allowed_is_not_answered() -> None:
    assert with_rules(columns=("age",)).query_refusal(QUERY) is not None
    assert with_rules(queries=()).query_refusal(QUERY) is not None

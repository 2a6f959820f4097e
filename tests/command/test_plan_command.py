"""`shoal plan` says what a study would cost, by sizes alone, and refuses sizes that make none."""

import json

import pytest

from tests.command.running import run, shoal

SIZES = ("--clients", 50_000, "--features", 4, "--epsilon", 2)


@pytest.mark.slow
def test_both_ways_stand_side_by_side_with_error_trust_and_formulas() -> None:
    said = " ".join(shoal("plan", *SIZES).stdout.split())
    for fact in (
        "in rounds (DCA)",
        "Draw and Discard",
        "times that all wait for each other │ 5 │ 0",
        "times that one client takes part │ 5 │ 1",
        "(2, 1e-06) │ 2",
        "expected error of a coefficient",
        "With one instance instead of 20 Draw and Discard would err by",
        "contributions at this price each",
        "before the next one; 2 under way at a time, on average, cost a tenth",
        "open for 3.9 hours or longer",
        "2 of 3 Compute nodes and 500 other clients",
        "No node and no other client has to be trusted",
        "formulas: ",
        "Assumed: one record for each client",
    ):
        assert fact in said


@pytest.mark.slow
def test_instances_follow_from_the_load_where_they_are_not_given() -> None:
    def planned(*more: object) -> tuple[int, float]:
        study = json.loads(shoal("plan", *SIZES, *more, "--json").stdout)["study"]
        return study["instances"], study["open_sessions"]

    assert planned() == (20, 0.0)
    assert planned("--open-sessions", 70.5) == (71, 70.5)
    assert planned("--open-sessions", 70.5, "--instances", 5) == (5, 70.5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["linear", "logistic", "poisson"])
@pytest.mark.parametrize(
    "extreme",
    [("--effect", "100"), ("--effect", "5e-324"), ("--open-sessions", "5e-324"), ("--step", "1e6")],
)
def test_a_plan_of_extreme_numbers_is_made_or_refused(
    family: str, extreme: tuple[str, str]
) -> None:
    study = ["--clients", "2000", "--features", "3", "--epsilon", "1", "--family", family]
    result = run("plan", *study, *extreme)
    assert isinstance(result.exception, SystemExit | None), result.exception

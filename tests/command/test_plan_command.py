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
def test_of_committees_it_says_who_could_open_an_answer() -> None:
    options = ("--nodes", 30, "--committee", 3, "--threshold", 2)
    said = " ".join(shoal("plan", *SIZES, *options).stdout.split())
    assert "1 of 30 Compute nodes and 500 other clients" in said
    assert (
        "2 Compute nodes drawn at random open a committee with a chance of 0.138, a given data "
        "holder's with 0.0069." in said
    )
    shoal("plan", *SIZES, "--committee", 3, status=1)  # of three nodes all are in it


def test_the_same_comes_as_json() -> None:
    said = json.loads(shoal("plan", *SIZES, "--json").stdout)
    assert said["study"]["clients"] == 50_000
    rounds, crowd = said["distributed_compute"], said["draw_and_discard"]
    assert (rounds["rounds"], crowd["rounds"]) == (5, 0)
    assert rounds["sent_bytes"] > 2 * crowd["sent_bytes"]
    assert 0.0 < rounds["error"]["total"] < crowd["error"]["total"] < 1.0


@pytest.mark.slow
def test_instances_follow_from_the_load_where_they_are_not_given() -> None:
    def planned(*more: object) -> tuple[int, float]:
        study = json.loads(shoal("plan", *SIZES, *more, "--json").stdout)["study"]
        return study["instances"], study["open_sessions"]

    assert planned() == (20, 0.0)
    assert planned("--open-sessions", 70.5) == (71, 70.5)
    assert planned("--open-sessions", 70.5, "--instances", 5) == (5, 70.5)


@pytest.mark.slow
def test_a_job_must_be_open_for_longer_the_fewer_draws_may_overlap() -> None:
    """50,000 contributions of .5 s, of which 20 are under way at a time in nine tenths of it."""

    def planned(*more: object) -> tuple[float, float]:
        crowd = json.loads(shoal("plan", *SIZES, *more, "--json").stdout)["draw_and_discard"]
        return crowd["assumed_open_sessions"], crowd["sufficient_open_seconds"]

    assert planned("--open-sessions", 20) == (20.0, pytest.approx(25_000 / 20 / 0.9))
    assert planned("--instances", 1) == (0.1, pytest.approx(25_000 / 0.1 / 0.9))
    said = " ".join(shoal("plan", *SIZES, "--open-sessions", 20).stdout.split())
    assert "that 20 draws are under way at a time" in said
    assert "open for 24 minutes or longer" in said


def test_a_study_without_noise_is_a_mistake_in_one_line() -> None:
    few = ("--clients", 20, "--features", 4, "--epsilon", 2, "--dropouts", 15, "--colluders", 4)
    result = shoal("plan", *few, status=1)
    assert "more clients than dropouts + colluders + 1" in result.stderr


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

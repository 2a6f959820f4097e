"""`shoal plan` says what a crowd would err by, by sizes alone, and refuses sizes of none."""

import pytest

from tests.command.running import run


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

"""Gamma regressions, and counts with an exposure, of real records: intervals hold where trusted."""

import pytest

from bench import regressions


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [3.0, 10.0])
@pytest.mark.parametrize("name", ["fair, time of affairs", "fair, children by year"])
def test_slopes_of_real_records_hold(name: str, epsilon: float) -> None:
    """A false alarm in 1e-3 of seeds at a coverage of .9, were fits independent."""
    [each] = [each for each in regressions.shipped() if each.name == name]
    row = regressions.line(each, epsilon, 20)
    assert row is not None
    assert row["worst"] >= 0.65
    assert row["held"] >= 0.82
    assert row["trustworthy"] >= 0.25
    assert row["sd over all"] <= 3.0

"""Table 1: cells run in part grow as is said, and goals are judged by the authors' figures."""

from dataclasses import replace

import pytest

from bench.table1.costs import Cost
from bench.table1.growth import exponents, line
from bench.table1.report import goals, with_ratios


def test_what_grows_with_clients_is_scaled_and_what_does_not_is_not() -> None:
    part = Cost(cpu_seconds=5.0, run=100, empty=2.0)
    assert part.as_value(1_000) == {"cpu_seconds": 32.0, "run_in_part": 100}
    assert part.as_value(100) == {"cpu_seconds": 5.0}
    lucky = replace(part, cpu_seconds=1.5)  # less than an empty round, by chance
    assert lucky.as_value(1_000)["cpu_seconds"] == 2.0


def test_goals_are_parts_of_what_the_authors_took_and_of_an_empty_round() -> None:
    rows = {
        name: {"1000": {"100": {"cpu_seconds": seconds}}}
        for name, seconds in {"server": 0.7, "client": 0.01, "hospital": 2.0}.items()
    }
    rows["empty"] = {"10": {"10": {"cpu_seconds": 1.95}}}
    found = with_ratios(rows)
    assert found["server"]["1000"]["100"]["ratio"] == pytest.approx(0.7 / 74.8, rel=1e-2)
    judged = {name: (cpu, most) for name, _, _, cpu, most in goals(found)}
    assert judged["server"] == (0.7, pytest.approx(74.8))
    assert judged["hospital"] == (2.0, pytest.approx(2.05))


def test_exponents_are_those_that_made_the_points() -> None:
    points = [(m, n, d) for m in (3, 6) for n in (100, 1_000) for d in (100, 10_000)]
    found = {(m, n, d): m * n * (50e-6 + d * 2e-9) for m, n, d in points}
    assert [n for n, _ in line(found, 1)] == [100, 1_000]
    slopes = exponents(found)
    assert slopes["clients"] == pytest.approx(1.0) == slopes["nodes"]
    assert 0.0 < slopes["coordinates"] < 0.2

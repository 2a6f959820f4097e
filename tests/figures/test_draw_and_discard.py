"""The figures of Draw and Discard cut down: keys, pictures, and rules that can fail."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from figures.draw_and_discard import __main__ as command
from figures.draw_and_discard import experiments
from figures.draw_and_discard.checks import REFERENCE, findings
from figures.draw_and_discard.experiments import (
    SETTINGS,
    TARGETS,
    Accuracy,
    Discards,
    Size,
    Spread,
    Turn,
)
from figures.draw_and_discard.later_noise import epsilon_t_table
from figures.report import Report

ROOT = Path(__file__).parents[2]
SMALL = Size(instances=(2, 5), replicates=300, updates=3000, crowds=3, contributions=300)
SMALL = replace(SMALL, turned=320, turning_crowds=3)
EPSILON_T = {
    1.0: {10: {"paper": 0.74, "exact": 0.60}},
    4.0: {10: {"paper": 2.9, "exact": 2.6}, 100: {"paper": 0.93, "exact": 1.01}},
}


def small_run(directory: Path) -> Report:
    directory.mkdir()
    report = Report(directory, Console(quiet=True))
    command.run(report, SMALL, processes=1)
    return report


@pytest.mark.slow
def test_a_small_run_writes_every_figure_with_its_keys_and_is_the_same_again(tmp_path: Path):
    report = small_run(tmp_path / "one")
    written = json.loads((tmp_path / "one/draw_and_discard.json").read_text())
    assert set(written) == {"variance", "discarded", "epsilon_T", "glm_rmse", "turn"}
    assert set(written["variance"]) == set(written["discarded"]) == {"2", "5"}
    assert written["variance"]["5"]["formula"] == 2.5
    assert written["discarded"]["5"] == {
        "measured": pytest.approx(0.8, abs=0.04),
        "formula": 0.8,
    }
    assert written["epsilon_T"]["4"]["100"] == {
        "paper": pytest.approx(0.9304, abs=1e-4),
        "exact": pytest.approx(1.0094, abs=1e-3),
    }
    assert {family: {e: set(ks) for e, ks in by.items()} for family, by in REFERENCE.items()} == {
        family: {e: set(ks) for e, ks in by.items()} for family, by in written["glm_rmse"].items()
    }
    for name in ("variance", "discards", "epsilon_T", "rmse", "turn"):
        assert (tmp_path / f"one/draw_and_discard_{name}.png").stat().st_size > 10_000
    notes = json.loads((tmp_path / "one/draw_and_discard_notes.json").read_text())
    assert len(notes["findings"]) == len(report.findings) > 20
    spreads, discards, accuracies, turns = experiments.run(SMALL, processes=1)
    again = command.as_json(spreads, discards, {}, accuracies, turns)
    assert again == written | {"epsilon_T": {}}


def good() -> tuple[dict[int, Spread], dict[int, Discards], list[Accuracy]]:
    """Return figures exactly as they should be."""
    spread = Spread(
        updates=(10, 100),
        means=(2.0, 5.0),
        formula=(2.0, 5.0),
        measured=5.0,
        expected=5.0,
        standard_error=0.1,
    )
    discards = Discards(
        measured=0.9,
        expected=0.9,
        standard_error=0.001,
        lifetime=(28.3, 28.3),
        fixation=(90.0, 90.0),
        quantiles=(1, 4, 11, 35, 115),
    )
    accuracies = [
        Accuracy(
            family=family,
            epsilon=epsilon,
            instances=k,
            median=REFERENCE[family][f"{epsilon:g}"][str(k)],
            quartiles=(0.1, 0.2),
            root_mean_square=0.2,
            formula=0.2,
        )
        for family in TARGETS
        for epsilon, k, _ in SETTINGS
    ]
    return {10: spread}, {10: discards}, accuracies


def turn(learning_rate: float, errors: tuple[float, ...]) -> Turn:
    return Turn(
        instances=20,
        learning_rate=learning_rate,
        crowds=100,
        contributions=(0, 100, 200, 300),
        lags=(0.8, 0.4, 0.2, 0.1),
        lag_formula=(0.8, 0.4, 0.2, 0.1),
        errors=errors,
        error_formula=errors,
        spreads=(1.0, 1.0, 1.0, 1.0),
    )


TURNS = [turn(0.02, (0.8, 0.6, 0.4, 0.1)), turn(0.06, (0.8, 0.4, 0.2, 0.2))]


def broken(spreads, discards, epsilon_t, accuracies, turns: Sequence[Turn] = TURNS) -> list[str]:
    found = findings(spreads, discards, epsilon_t, accuracies, turns)
    return [each.rule for each in found if not each.holds]


def test_figures_as_they_should_be_hold():
    spreads, discards, accuracies = good()
    assert broken(spreads, discards, EPSILON_T, accuracies) == []


def test_each_rule_can_fail():
    spreads, discards, accuracies = good()
    off = {10: replace(spreads[10], measured=5.5)}
    assert broken(off, discards, EPSILON_T, accuracies) == ["k = 10: the spread settles at k/2"]
    slow = {10: replace(spreads[10], means=(1.4, 5.0))}
    assert broken(slow, discards, EPSILON_T, accuracies) == [
        "k = 10: the spread grows as the formula says"
    ]
    kept = {10: replace(discards[10], measured=0.89)}
    assert broken(spreads, kept, EPSILON_T, accuracies) == ["k = 10: 1 - 1/k are discarded"]
    never = {1.0: EPSILON_T[1.0], 4.0: {10: {"paper": 2.9, "exact": 2.6}}}
    [rule] = broken(spreads, discards, never, accuracies)
    assert rule.startswith("epsilon 4: the paper's")
    worse = [replace(each, median=1.3 * each.median) for each in accuracies]
    rules = broken(spreads, discards, EPSILON_T, worse)
    assert len(rules) == 15 and all("independent" in each for each in rules)
    upside_down = [replace(each, median=1.0 / each.instances) for each in accuracies]
    costs = [each for each in broken(spreads, discards, EPSILON_T, upside_down) if "larger" in each]
    assert len(costs) == 6
    late = replace(TURNS[0], lags=(0.8, 0.75, 0.6, 0.4))
    [rule] = broken(spreads, discards, EPSILON_T, accuracies, [late])
    assert rule == "k = 20, step 0.02: the model follows a turn as the formulas say"
    noisy = replace(TURNS[0], errors=(1.1, 0.9, 0.6, 0.2))
    assert broken(spreads, discards, EPSILON_T, accuracies, [noisy]) == [rule]
    [rule] = broken(spreads, discards, EPSILON_T, accuracies, TURNS[::-1])
    assert "follows sooner and settles noisier" in rule


def test_the_page_has_the_figures_of_the_exact_curve():
    page = (ROOT / "docs/figures.md").read_text()
    table = epsilon_t_table((1.0, 4.0, 8.0), (10, 30, 100, 1000), delta=1e-5)
    for epsilon, by_additions in table.items():
        [row] = re.findall(rf"^\| ε = {epsilon:g} \|(.*→.*)\|$", page, flags=re.MULTILINE)
        shown = [[float(part.strip(" *")) for part in cell.split("→")] for cell in row.split("|")]
        for cell, each in zip(shown, by_additions.values(), strict=True):
            assert cell == pytest.approx([each["paper"], each["exact"]], rel=0.005)

"""What the figures must show: rules with their false-alarm rates."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import hypot, sqrt
from typing import Final

from figures.authors import key
from figures.checks import Finding
from figures.draw_and_discard.experiments import TURN, Accuracy, Discards, Spread, Turn

STANDARD_ERRORS: Final = 4.5
"""Passed by chance in fewer than 1 of 10,000 runs with other seeds, with room for heavy tails."""

REFERENCE: Final = {
    "linear": {"1": {"1": 0.163, "20": 0.571}, "4": {"1": 0.043, "20": 0.128, "100": 0.247}},
    "logistic": {"1": {"1": 0.351, "20": 1.70}, "4": {"1": 0.087, "20": 0.345, "100": 0.586}},
    "poisson": {"1": {"1": 0.268, "20": 1.49}, "4": {"1": 0.073, "20": 0.240, "100": 0.477}},
}
"""An independent simulation in floating point, by family, epsilon and k: 8 crowds each, so known to
a tenth or two itself."""

TOLERANCE: Final = 0.25
EpsilonT = dict[float, dict[int, dict[str, float]]]


def findings(
    spreads: dict[int, Spread],
    discards: dict[int, Discards],
    epsilon_t: EpsilonT,
    accuracies: Iterable[Accuracy],
    turns: Iterable[Turn],
) -> list[Finding]:
    """Return every rule and whether it holds."""
    accuracies, turns = list(accuracies), list(turns)
    return [
        *(_near(f"k = {k}: the spread settles at k/2", each) for k, each in spreads.items()),
        *(_grows(k, each) for k, each in spreads.items()),
        *(_near(f"k = {k}: 1 - 1/k are discarded", each) for k, each in discards.items()),
        *_too_optimistic(epsilon_t),
        *(_as_reference(each) for each in accuracies),
        *_instances_cost(accuracies),
        *(_follows(each) for each in turns),
        *_longer_steps_follow_sooner(turns),
    ]


def _near(rule: str, found: Spread | Discards) -> Finding:
    off = found.measured - found.expected
    return Finding(
        rule=rule,
        holds=abs(off) < STANDARD_ERRORS * found.standard_error,
        detail=f"{found.measured:.4f}, formula {found.expected:.4f}, standard error"
        f" {found.standard_error:.4f}",
    )


def _grows(k: int, found: Spread) -> Finding:
    """Hold the way up against the formula; where both are small, against a tenth of the end."""
    off = max(
        abs(mean - formula) / max(formula, 0.1 * found.expected)
        for mean, formula in zip(found.means, found.formula, strict=True)
    )
    return Finding(
        rule=f"k = {k}: the spread grows as the formula says",
        holds=off < TOLERANCE,
        detail=f"at most {off:.1%} off, of the formula or a tenth of its end",
    )


def _too_optimistic(epsilon_t: EpsilonT) -> Iterator[Finding]:
    for epsilon, by_additions in epsilon_t.items():
        below = [t for t, each in by_additions.items() if each["paper"] < each["exact"]]
        if epsilon <= 1.0:
            rule, holds = "the paper's epsilon_T is on the safe side", not below
        elif epsilon >= 4.0:
            rule, holds = "the paper's epsilon_T is below the exact one somewhere", bool(below)
        else:
            continue
        where = ", ".join(map(str, below)) or "none"
        yield Finding(
            rule=f"epsilon {key(epsilon)}: {rule}", holds=holds, detail=f"below at T = {where}"
        )


def _as_reference(found: Accuracy) -> Finding:
    expected = REFERENCE[found.family][key(found.epsilon)][str(found.instances)]
    return Finding(
        rule=f"{found.family}, epsilon {key(found.epsilon)}, k = {found.instances}: error within"
        " a quarter of an independent simulation's",
        holds=abs(found.median / expected - 1.0) < TOLERANCE,
        detail=f"median {found.median:.3f}, independent {expected:.3f}, root mean square"
        f" {found.root_mean_square:.3f}, formula {found.formula:.3f}",
    )


def _instances_cost(accuracies: list[Accuracy]) -> Iterator[Finding]:
    for family, epsilon in {(each.family, each.epsilon): None for each in accuracies}:
        errors = [
            each.median for each in accuracies if (each.family, each.epsilon) == (family, epsilon)
        ]
        yield Finding(
            rule=f"{family}, epsilon {key(epsilon)}: more instances, larger errors",
            holds=errors == sorted(errors),
            detail=", ".join(f"{each:.3f}" for each in errors),
        )


def _follows(found: Turn) -> Finding:
    """Hold lags and errors against the formulas, which leave clipping out."""
    off = max(
        (abs(lag - formula) - STANDARD_ERRORS * error / sqrt(found.crowds)) / TURN
        for lag, formula, error in zip(
            found.lags, found.lag_formula, found.error_formula, strict=True
        )
    )
    ratio = hypot(*found.errors) / hypot(*found.error_formula)
    return Finding(
        rule=f"{_setting(found)}: the model follows a turn as the formulas say",
        holds=off < TOLERANCE / 2.0 and abs(ratio - 1.0) < TOLERANCE,
        detail=f"lags at most {max(off, 0.0):.1%} of the turn off beyond chance, errors"
        f" {ratio:.2f} times the formula's",
    )


def _longer_steps_follow_sooner(turns: list[Turn]) -> Iterator[Finding]:
    for one, other in pairwise(turns):
        if one.instances != other.instances:
            continue
        early, end = len(one.lags) // 4, -1
        yield Finding(
            rule=f"{_setting(other)}: follows sooner and settles noisier than {_setting(one)}",
            holds=other.errors[early] < one.errors[early] and other.errors[end] > one.errors[end],
            detail=f"{other.errors[early]:.3f} against {one.errors[early]:.3f} after a quarter,"
            f" {other.errors[end]:.3f} against {one.errors[end]:.3f} at the end",
        )


def _setting(found: Turn) -> str:
    return f"k = {found.instances}, step {found.learning_rate:g}"

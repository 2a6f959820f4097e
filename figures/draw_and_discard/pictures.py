"""Draws the figures of Draw and Discard from what was found; computes nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from matplotlib import pyplot
from matplotlib.axes import Axes

from figures.authors import key
from figures.draw_and_discard.checks import EpsilonT
from figures.draw_and_discard.experiments import TURN, Accuracy, Discards, Spread, Turn
from figures.pictures import finish

COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
"""Colours that the colour-blind can tell apart (Okabe and Ito 2008)."""

SPREAD: Final = (
    "Points: means over simulated crowds, which start alike and take updates of Laplace noise of"
    " variance 1. Lines: (k/2)(1 - (1 - 2/k^2)^t). Dotted: k/2, Theorem 1. Nothing is learned here:"
    " a gradient's pull makes the spread smaller."
)
DISCARDS: Final = (
    "Each update is followed in a crowd of its own until all k instances hold it or none."
    " Bars: 5 and 95 % of the updates until then, thick 25 and 75 %, dot the median."
)
LATER_NOISE: Final = (
    "What T later Laplace noises on the same weights leave of a contribution's local epsilon, at"
    " delta = 0.00001, steps 2 clip apart. Where the paper's formula runs below the exact curve it"
    " promises too much. An extra, on conditions: against whoever sees draw and submission the"
    " local epsilon is all there is."
)
ACCURACY: Final = (
    "200,000 contributions with 6 coefficients, variant one, the same learning rates for all"
    " families: .003, .03 and .15 for k = 1, 20 and 100. Bars: quartiles of simulated crowds."
    " Crosses: what the formulas expect, without clipping and curvature. k is a choice for the"
    " load: it costs accuracy."
)

TURNS: Final = (
    "A linear model at epsilon 4, variant one: one coefficient turns from -.4 to .4 at 0. Left:"
    " what the averaged model still lags behind, dots means over 128 simulated crowds, lines"
    " exp(-n pull / k), a time constant of k / pull contributions. Right: the root mean square"
    " error, dots simulated, lines the root of noise squared + lag squared. A longer step follows"
    " sooner and settles noisier; more instances do both worse."
)


def draw_spread(found: dict[int, Spread], path: Path) -> None:
    """Draw spread against updates for each k."""
    figure, axes = pyplot.subplots(figsize=(8.0, 5.5), layout="constrained")
    for (k, each), colour in zip(found.items(), COLOURS, strict=False):
        axes.plot(each.updates, each.means, "o", color=colour, markersize=3, label=f"k = {k}")
        axes.plot(each.updates, each.formula, color=colour, linewidth=1.0)
        axes.axhline(k / 2.0, color=colour, linestyle=":", linewidth=1.0)
    _logarithmic(axes, "updates", "variance over instances")
    axes.set_title("Spread of k instances")
    axes.legend(fontsize=8)
    finish(figure, path, [SPREAD])


def draw_discards(found: dict[int, Discards], path: Path) -> None:
    """Draw the part that is lost, and how long that takes, against k."""
    figure, (lost, decided) = pyplot.subplots(1, 2, figsize=(10.0, 4.8), layout="constrained")
    counts = list(found)
    kept = [1.0 - each.measured for each in found.values()]
    lost.plot(counts, kept, "o", color=COLOURS[0], label="simulated")
    lost.plot(counts, [1.0 - each.expected for each in found.values()], color="black", label="1/k")
    _logarithmic(lost, "instances k", "part of all updates that stays")
    lost.legend(fontsize=8)
    for k, each in found.items():
        low, first, median, third, high = each.quantiles
        decided.vlines(k, low, high, color=COLOURS[0], linewidth=1.2)
        decided.vlines(k, first, third, color=COLOURS[0], linewidth=4.0)
        decided.plot(k, median, "o", color="white", markeredgecolor=COLOURS[0], markersize=5)
    means = [each.lifetime for each in found.values()]
    decided.plot(
        counts, [each[0] for each in means], "x", color=COLOURS[3], label="mean, simulated"
    )
    decided.plot(counts, [each[1] for each in means], color=COLOURS[3], label="mean, $k H_{k-1}$")
    ends = [each.fixation[1] for each in found.values()]
    decided.plot(counts, ends, "--", color="black", label="mean if it stays, k(k - 1)")
    _logarithmic(decided, "instances k", "updates until that is decided")
    decided.legend(fontsize=8)
    for axes in (lost, decided):
        axes.set_xticks(counts, [str(k) for k in counts])
        axes.minorticks_off()
    finish(figure, path, [DISCARDS])


def draw_epsilon_t(found: EpsilonT, path: Path) -> None:
    """Draw the paper's and the exact epsilon against T for each local epsilon."""
    figure, axes = pyplot.subplots(figsize=(8.0, 5.5), layout="constrained")
    for (epsilon, by_additions), colour in zip(found.items(), COLOURS, strict=False):
        times = list(by_additions)
        exact = [each["exact"] for each in by_additions.values()]
        paper = [each["paper"] for each in by_additions.values()]
        axes.plot(times, exact, color=colour, label=f"epsilon {key(epsilon)}, exact")
        axes.plot(times, paper, "--", color=colour, label="the paper's formula")
    _logarithmic(axes, "later noises on the same weights, T", "epsilon_T")
    axes.set_title("What later noise hides")
    axes.legend(fontsize=8, ncols=2)
    finish(figure, path, [LATER_NOISE])


def draw_accuracy(found: Sequence[Accuracy], path: Path) -> None:
    """Draw the error of averaged coefficients by family, epsilon and k."""
    families = list(dict.fromkeys(each.family for each in found))
    figure, panels = pyplot.subplots(
        1, len(families), figsize=(3.6 * len(families), 4.8), layout="constrained", squeeze=False,
        sharey=True,
    )  # fmt: skip
    for axes, family in zip(panels[0], families, strict=True):
        own = [each for each in found if each.family == family]
        for place, each in enumerate(own):
            colour = COLOURS[0] if each.epsilon < 2.0 else COLOURS[3]
            reach = [[each.median - each.quartiles[0]], [each.quartiles[1] - each.median]]
            axes.errorbar(place, each.median, reach, fmt="o", color=colour, capsize=3)
            axes.plot(place, each.formula, "x", color="black")
        labels = [f"ε {key(each.epsilon)}\nk {each.instances}" for each in own]
        axes.set_xticks(range(len(own)), labels, fontsize=8)
        axes.set_yscale("log")
        axes.set_title(family)
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("root mean square error of coefficients")
    finish(figure, path, [ACCURACY])


def draw_turns(found: Sequence[Turn], path: Path) -> None:
    """Draw lag and error of the averaged model since the truth turned, for each k and step."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.0, 4.8), layout="constrained")
    for each, colour in zip(found, COLOURS, strict=False):
        label = f"k = {each.instances}, step {each.learning_rate:g}"
        for axes, simulated, formula in (
            (left, each.lags, each.lag_formula),
            (right, each.errors, each.error_formula),
        ):
            axes.plot(each.contributions, simulated, "o", color=colour, markersize=3, label=label)
            axes.plot(each.contributions, formula, color=colour, linewidth=1.0)
            axes.set_xlabel("contributions since the truth turned")
            axes.grid(alpha=0.3)
    left.set_ylabel(f"mean lag, of a turn of {TURN:g}")
    right.set_ylabel("root mean square error of the coefficient")
    right.set_yscale("log")
    left.legend(fontsize=8)
    finish(figure, path, [TURNS])


def _logarithmic(axes: Axes, across: str, up: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)

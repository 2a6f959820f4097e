"""Draws the figures from their files' contents; computes nothing."""

import textwrap
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")  # a picture for a file: no screen needed

from matplotlib import pyplot
from matplotlib.axes import Axes

from figures.authors import key

Curves = dict[str, dict[str, dict[str, float]]]

# Label, colour, marker: colours that the colour-blind can tell apart (Okabe and Ito 2008).
STYLES: Final = {
    "np": ("not private", "black", "none"),
    "proj_np": ("projected, not private", "#999999", "none"),
    "ta": ("trusted aggregator*", "#E69F00", "s"),
    "ddp": ("distributed*", "#D55E00", "D"),
    "proj_ta": ("trusted aggregator, projected*", "#56B4E9", "s"),
    "proj_ddp": ("distributed, projected*", "#0072B2", "D"),
    "input_perturbation": ("input perturbation*", "#CC79A7", "v"),
    "diffprivlib": ("diffprivlib (pure epsilon)", "#F0E442", "x"),
    "adassp": ("AdaSSP, as claimed", "#882255", "^"),
    "ours": ("ours, as claimed", "#009E73", "o"),
    "default": ("our default estimator, for intervals", "#44AA99", "P"),
    "noiseless": ("ours without noise, not private", "#009E73", "none"),
    "algorithm2_box": ("Algorithm 2 corrected, box", "#332288", "^"),
    "algorithm2_ball": ("Algorithm 2 corrected, ball", "#AA4499", "v"),
    "proj_ddp_best_search": ("distributed, projected, best search*", "#0072B2", "none"),
    "proj_ddp_worst_search": ("distributed, projected, worst search*", "#0072B2", "none"),
}
BAND: Final = ("proj_ddp_best_search", "proj_ddp_worst_search")
TITLES: Final = {"red_wine": "Red wine", "white_wine": "White wine", "abalone": "Abalone"}
CLOSE: Final = (
    *("np", "proj_ta", "adassp", "algorithm2_box", "algorithm2_ball"),
    *("default", "noiseless", "ours"),
)
_HIGHEST: Final = 30.0
_WIDTH: Final = 150


def draw_figure2(curves: dict[str, Curves], path: Path, said: list[str]) -> None:
    """Draw medians with quartiles for each data set: all methods, and the best ones close by."""
    figure, axes = pyplot.subplots(
        2, len(curves), figsize=(4.6 * len(curves), 9.5), layout="constrained", squeeze=False
    )
    for column, (name, methods) in enumerate(curves.items()):
        whole, close = axes[0][column], axes[1][column]
        _medians(whole, methods, tuple(each for each in STYLES if each not in BAND))
        _medians(close, methods, CLOSE)
        _band(close, methods, "median")
        whole.set_yscale("log")
        whole.set_ylim(0.5, _HIGHEST)
        whole.set_title(TITLES.get(name, name))
        close.set_xlabel("claimed epsilon, delta = 0.0001")
    for row, what in enumerate(("all methods, log scale", "the best, close by")):
        axes[row][0].set_ylabel(f"median absolute error on test rows\n({what})")
        axes[row][0].legend(fontsize=7)
    for each in axes.flat:
        _price_axis(each, [float(price) for price in next(iter(curves.values()))["ours"]])
    finish(figure, path, said)


def draw_figure3(curves: Curves, drugs: int, path: Path, said: list[str]) -> None:
    """Draw means with standard deviations over splits."""
    figure, axes = pyplot.subplots(figsize=(9.5, 8.0), layout="constrained")
    prices = [float(price) for price in curves["ours"]]
    for method, points in curves.items():
        if method in BAND:
            continue
        label, colour, marker = STYLES[method]
        axes.errorbar(
            prices,
            [each["mean"] for each in points.values()],
            [each["sd"] for each in points.values()],
            label=label,
            color=colour,
            marker=marker,
            capsize=2,
        )
    _band(axes, curves, "mean")
    axes.set_xlabel("claimed epsilon of one drug's release, delta = 0.0001")
    axes.set_ylabel(f"Spearman's rank correlation on 100 test cell lines, mean of {drugs} drugs")
    axes.set_title("Drug sensitivity (GDSC)")
    axes.legend(fontsize=7, ncols=2)
    _price_axis(axes, prices)
    finish(figure, path, said)


def draw_efficiency(curves: dict[str, dict[str, float]], path: Path) -> None:
    """Draw N times the median distance of the private fit from the exact one, over N."""
    figure, axes = pyplot.subplots(figsize=(7.0, 5.5), layout="constrained")
    for method, points in curves.items():
        label, colour, marker = STYLES[method]
        numbers = [int(number) for number in points]
        axes.plot(numbers, list(points.values()), color=colour, marker=marker, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("clients N")
    axes.set_ylabel("N times the distance from the exact fit, median")
    axes.set_title("Asymptotic efficiency")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    said = (
        "Simulated records of 5 features, epsilon = 1, delta = 1e-5. Flat: the distance is C / N."
    )
    finish(figure, path, [said])


def _medians(axes: Axes, methods: Curves, shown: tuple[str, ...]) -> None:
    for method in shown:
        label, colour, marker = STYLES[method]
        points = methods[method].values()
        median = [each["median"] for each in points]
        if min(median) > _HIGHEST:
            axes.plot([], [], color=colour, marker=marker, label=f"{label}: above {_HIGHEST:g}")
            continue
        axes.errorbar(
            [float(price) for price in methods[method]],
            median,
            [
                [each["median"] - each["q25"] for each in points],
                [each["q75"] - each["median"] for each in points],
            ],
            label=label,
            color=colour,
            marker=marker,
            markersize=4,
            capsize=2,
        )


def _band(axes: Axes, methods: Curves, what: str) -> None:
    """Fill the range of the published method over the seeds of its search for thresholds."""
    best, worst = (methods[each] for each in BAND)
    axes.fill_between(
        [float(price) for price in best],
        [each[what] for each in best.values()],
        [each[what] for each in worst.values()],
        color=STYLES["proj_ddp"][1],
        alpha=0.2,
        label="distributed, projected, over the seeds of its search*",
    )


def _price_axis(axes: Axes, prices: list[float]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(prices, [key(price) for price in prices])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def finish(figure: Any, path: Path, said: list[str]) -> None:
    """Write what is said below the figure, save it and close it."""
    lines = [line for each in said for line in textwrap.wrap(each, _WIDTH)]
    figure.supxlabel("\n".join(lines), fontsize=7, ha="left", x=0.01)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)

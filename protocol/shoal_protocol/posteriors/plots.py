"""Pictures of posteriors, by matplotlib.

matplotlib is loaded when something is drawn. Names may come from another party: they are drawn as
they are, never as formulas.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.posteriors.summaries import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from shoal_protocol.posteriors.base import BasePosterior

Scale = Literal["sd", "unit", "ratio"]
"""A coefficient for a standard deviation of its feature, for one unit, or its exponential."""

_INNER_LEVEL: Final = 0.5
_SCORES: Final = np.arange(0.0625, 3.5, 0.125)
_COLOUR: Final = "C0"
_LARGEST_HEIGHT: Final = 16.0  # inches


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Values at places, shapes (n,), with intervals and wider bands, shapes (n, 2)."""

    label: str
    places: NDArray[np.float64]
    values: NDArray[np.float64]
    intervals: NDArray[np.float64]
    bands: NDArray[np.float64]


def forest(
    posterior: "BasePosterior",
    axes: "Axes | None",
    *,
    level: float,
    names: Sequence[str] | None,
    caption: str | None,
    scale: Scale | None = None,
) -> "Axes":
    """Draw the mean of each number, and intervals that hold half of its margin and `level` of it.

    `names` are those to draw, from above; None is all, but "intercept" if there are others: its
    scale is another one. A posterior that is doubted has hollow marks and broken lines; of one that
    draws ratios exponentials are drawn. A `scale` that is given decides that, and the unit.

    Raises:
        ValueError: `level` is not strictly between 0 and 1, or a name is none of the posterior's.
        ImportError: matplotlib is not installed.
    """
    drawn = _chosen(posterior, names)
    own = scale in (None, "sd")
    units = posterior.units_drawn[drawn] if own else np.ones(len(drawn))
    outer = posterior.interval(level)[drawn] * units[:, None]
    inner = posterior.interval(_INNER_LEVEL)[drawn] * units[:, None]
    shown = [posterior.names[index] for index in drawn]
    rows, axes = np.arange(len(shown)), axes or _new_axes_for(shown)
    mean, none = posterior.mean[drawn] * units, 0.0
    low, high = float(outer.min()), float(outer.max())
    near = 2.0 * low - high <= 0.0 <= 2.0 * high - low  # enough not to squeeze the rest
    if scale == "ratio" or (own and posterior.draws_ratios):
        outer, inner, mean, none = np.exp(outer), np.exp(inner), np.exp(mean), 1.0
        axes.set_xscale("log")
    if near:
        axes.axvline(none, color="0.8", linewidth=1.0, zorder=0)
    style, fill = ("dashed", "white") if posterior.is_doubted else ("solid", _COLOUR)
    axes.hlines(rows, *outer.T, color=_COLOUR, linewidth=1.2, linestyle=style)
    axes.hlines(rows, *inner.T, color=_COLOUR, linewidth=3.5, linestyle=style)
    axes.plot(mean, rows, "o", color=_COLOUR, markersize=5, markerfacecolor=fill)
    _name_rows(axes, shown)
    said = f"posterior mean, {_INNER_LEVEL:.0%} and {_percent(level)} intervals"
    unit = posterior.unit_drawn if own else f"{'ratios ' * (scale == 'ratio')}for one unit"
    axes.set_xlabel("; ".join(each for each in (said, unit) if each))
    return _finished(axes, posterior.title, caption)


def density(
    posterior: "BasePosterior", axes: "Axes | None", *, level: float, caption: str | None
) -> "Axes":
    """Draw the density of a posterior's only number, with the interval that holds `level` of it.

    It is read off the posterior's intervals at many levels.

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
        ImportError: matplotlib is not installed.
    """
    scores = np.concatenate([-_SCORES[::-1], _SCORES])
    levels = [2.0 * NormalDist().cdf(score) - 1.0 for score in _SCORES.tolist()]
    halves = np.array([posterior.interval(each)[0] for each in levels])
    points = np.concatenate([halves[::-1, 0], halves[:, 1]])
    slopes = np.maximum(np.gradient(points, scores), 1e-9 * (points[-1] - points[0]))
    heights = np.exp(-0.5 * scores**2) / np.sqrt(2.0 * np.pi) / slopes
    low, high = posterior.interval(level)[0]
    axes = axes or _new_axes(height=3.6)
    axes.plot(points, heights, color=_COLOUR)
    inside = np.linspace(low, high, 200)
    axes.fill_between(inside, np.interp(inside, points, heights), color=_COLOUR, alpha=0.25)
    axes.axvline(float(posterior.mean[0]), color=_COLOUR, linewidth=1.0, linestyle=":")
    axes.set_ylim(bottom=0.0)
    axes.set_yticks([])
    axes.set_ylabel("posterior density")
    axes.set_xlabel(
        f"{visible(posterior.names[0])}; shaded: {_percent(level)} interval", parse_math=False
    )
    return _finished(axes, posterior.title, caption)


def predictions(
    mean: NDArray[np.float64],
    intervals: NDArray[np.float64],
    targets: NDArray[np.float64] | None,
    axes: "Axes | None",
    *,
    level: float,
    target: str,
    caption: str | None,
) -> "Axes":
    """Draw predictions, shape (n,), in their order of size, with `targets` if they are known.

    The band is `intervals`, shape (n, 2), which hold `level`.

    Raises:
        ImportError: matplotlib is not installed.
    """
    order = np.argsort(mean, kind="stable")
    ranks = np.arange(1, len(order) + 1)
    axes = axes or _new_axes(height=4.0)
    axes.fill_between(
        ranks,
        *intervals[order].T,
        color=_COLOUR,
        alpha=0.2,
        linewidth=0.0,
        label=f"{_percent(level)} interval",
    )
    axes.plot(ranks, mean[order], color=_COLOUR, label="prediction")
    if targets is not None:
        axes.plot(ranks, targets[order], ".", color="0.25", markersize=4, label="observed")
    axes.set_xlabel("records, in the order of their predictions")
    axes.set_ylabel(visible(target), parse_math=False)
    axes.legend()
    return _finished(axes, "Predictions", caption)


def calibration(
    probabilities: NDArray[np.float64],
    happened: NDArray[np.float64],
    axes: "Axes | None",
    *,
    level: float,
    target: str,
    caption: str | None,
) -> "Axes":
    """Draw how often what has these `probabilities` `happened`, shapes (n,), 0 or 1.

    Records are taken in groups of about the same probability. Intervals hold `level` by Wilson's
    score (1927, doi:10.1080/01621459.1927.10502953).

    Raises:
        ImportError: matplotlib is not installed.
    """
    groups = np.array_split(np.argsort(probabilities, kind="stable"), _groups(len(probabilities)))
    said = np.array([probabilities[each].mean() for each in groups])
    sizes = np.array([len(each) for each in groups])
    shares = np.array([happened[each].mean() for each in groups])
    reach = NormalDist().inv_cdf(0.5 + level / 2.0)
    weights = sizes + reach**2
    middles = (shares * sizes + reach**2 / 2.0) / weights
    halves = reach / weights * np.sqrt(shares * (1.0 - shares) * sizes + reach**2 / 4.0)
    axes = axes or _new_axes(height=5.0)
    axes.plot([0.0, 1.0], [0.0, 1.0], color="0.8", linewidth=1.0, zorder=0)
    axes.vlines(said, middles - halves, middles + halves, color=_COLOUR, linewidth=1.2)
    axes.plot(said, shares, "o", color=_COLOUR, markersize=5)
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(0.0, 1.0)
    axes.set_xlabel(visible(f"predicted {target}"), parse_math=False)
    axes.set_ylabel(f"observed share, {_percent(level)} intervals")
    return _finished(axes, "Calibration", caption)


def _groups(count: int) -> int:
    """Return into how many groups to divide so many records: ten at most, of ten at least."""
    return max(1, min(10, count // 10))


def histogram(
    axes: "Axes",
    *,
    edges: Sequence[float] | None,
    labels: Sequence[str],
    counts: Sequence[float | None],
    reaches: Sequence[float],
    title: str,
    caption: str | None,
) -> "Axes":
    """Draw counts between `edges`, if there are any, then of `labels`, each with its interval.

    A count that is None is not shown.
    """
    heights = np.array([np.nan if each is None else each for each in counts])
    lefts, widths, width, first = np.empty(0), np.empty(0), 1.0, 0.0
    ticks: list[float] = []
    if edges is not None:
        lefts, widths, width = np.array(edges[:-1]), np.diff(edges), edges[1] - edges[0]
        axes.set_xlim(edges[0], edges[-1])
        ticks = [each for each in axes.get_xticks().tolist() if edges[0] <= each <= edges[-1]]
        first = edges[-1] + 1.5 * width
    places = first + width * np.arange(len(labels))
    names = [*(f"{each:.6g}" for each in ticks), *map(visible, labels)]
    axes.set_xticks([*ticks, *places], names, parse_math=False)
    lefts = np.append(lefts, places - 0.4 * width)
    widths = np.append(widths, np.full(len(labels), 0.8 * width))
    axes.set_xlim(lefts[0] - 0.2 * width, lefts[-1] + width)
    middles, shown = lefts + widths / 2.0, ~np.isnan(heights)
    heights, ends, hidden = heights[shown], np.array(reaches)[shown], middles[~shown]
    axes.bar(
        *(lefts[shown], heights, widths[shown]),
        align="edge",
        color=_COLOUR,
        alpha=0.35,
        edgecolor="white",
    )
    axes.vlines(middles[shown], np.maximum(heights - ends, 0.0), heights + ends, color=_COLOUR)
    axes.plot(hidden, np.zeros(len(hidden)), "x", color="0.6", markersize=4)
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("records")
    return _finished(axes, title, caption)


def curves(
    axes: "Axes | None",
    groups: Sequence[Curve],
    *,
    title: str,
    across: str,
    up: str,
    caption: str | None,
) -> "Axes":
    """Draw curves with values from 0 to 1.

    Raises:
        ImportError: matplotlib is not installed.
    """
    axes = axes or _new_axes(height=4.2)
    for number, each in enumerate(groups):
        colour = f"C{number}"
        axes.fill_between(each.places, *each.bands.T, color=colour, alpha=0.12, linewidth=0.0)
        axes.fill_between(each.places, *each.intervals.T, color=colour, alpha=0.25, linewidth=0.0)
        axes.plot(each.places, each.values, ".-", color=colour, label=visible(each.label))
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel(visible(across), parse_math=False)
    axes.set_ylabel(up)
    if len(groups) > 1:
        for text in axes.legend().get_texts():
            text.set_parse_math(False)
    return _finished(axes, title, caption)


def new_panels(count: int, caption: str | None) -> list["Axes"]:
    """Return axes of a new figure of pyplot's, one above the other, over a caption.

    Raises:
        ImportError: matplotlib is not installed.
    """
    panels = _new_grid(count, height=0.8 + 2.2 * count)
    if caption is not None:
        figure: Any = panels[0].figure
        line = 0.3 / figure.get_figheight()  # of the figure, kept free below
        figure.get_layout_engine().set(rect=(0.0, line, 1.0, 1.0 - line))
        figure.text(0.02, 0.0, visible(caption), va="bottom", fontsize="small", color="0.35")
        figure.texts[-1].set_parse_math(False)
    return panels


def instances(
    names: Sequence[str],
    each: NDArray[np.float64],
    averaged: NDArray[np.float64],
    axes: "Axes | None",
    *,
    title: str,
    caption: str,
) -> "Axes":
    """Draw what a crowd's instances have for each name, shape (k, n), and their average, (n,).

    Raises:
        ImportError: matplotlib is not installed.
    """
    rows, axes = np.arange(len(names)), axes or _new_axes_for(names)
    axes.axvline(0.0, color="0.8", linewidth=1.0, zorder=0)
    axes.plot(each.T, rows, "|", color=_COLOUR, markersize=9, alpha=0.5)
    axes.plot(averaged, rows, "o", color=_COLOUR, markersize=5)
    _name_rows(axes, names)
    axes.set_xlabel("every instance, and their average")
    return _finished(axes, title, caption)


def _chosen(posterior: "BasePosterior", names: Sequence[str] | None) -> list[int]:
    """Return the positions of the numbers to draw."""
    if names is None:
        several = len(posterior.names) > 1
        return [
            i for i, name in enumerate(posterior.names) if not is_intercept(name) or not several
        ]
    if isinstance(names, str) or not names:
        raise ValueError("names must be a sequence of one or more of the posterior's names")
    unknown = [name for name in names if name not in posterior.names]
    if unknown:
        raise ValueError("a name to draw is none of the posterior's `names`")
    return [posterior.names.index(name) for name in names]


def is_intercept(name: str) -> bool:
    """Tell whether a coefficient is a constant."""
    return name == "intercept" or name.endswith(": intercept")  # the latter of one class


def _percent(level: float) -> str:
    return f"{100.0 * level:.4g}%"


def _new_axes_for(names: Sequence[str]) -> "Axes":
    return _new_axes(height=1.4 + 0.32 * len(names))


def _name_rows(axes: "Axes", names: Sequence[str]) -> None:
    """Write a name beside each row, from above."""
    axes.set_yticks(np.arange(len(names)), [visible(name) for name in names], parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)


def _new_axes(*, height: float) -> "Axes":
    """Return axes of a new figure of pyplot's, so that notebooks show it."""
    return _new_grid(1, height=height)[0]


def _new_grid(rows: int, *, height: float) -> list["Axes"]:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "pictures need matplotlib: install the extra `analysis` (pip install 'shoal[analysis]')"
        ) from error
    size = (7.0, min(height, _LARGEST_HEIGHT))
    _, grid = pyplot.subplots(rows, 1, figsize=size, layout="constrained", squeeze=False)
    return list(grid.ravel())


def _finished(axes: "Axes", title: str, caption: str | None) -> "Axes":
    axes.set_title(visible(title), parse_math=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if caption is not None:
        beside: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
        axes.annotate(
            visible(caption), (0.0, 0.0), xytext=(0, -46), fontsize="small", color="0.35", **beside
        ).set_parse_math(False)
    return axes

"""Pictures of posteriors, by matplotlib.

from shoal import plots

plots.draw(report.posterior, caption=str(report.privacy))    # an estimator's `plot` does both

matplotlib is loaded when something is drawn. Names may come from another party: they are drawn as
they are, never as formulas.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shoal_studies.catalogue.cohort_card import CohortCardPosterior, NumberCard
from shoal_studies.catalogue.kaplan_meier import KaplanMeierPosterior
from shoal_studies.catalogue.moments import MomentsPosterior
from shoal_studies.catalogue.piecewise_exponential import PiecewiseExponentialPosterior
from shoal_studies.catalogue.regression import MeasuredCoefficients, is_intercept
from shoal_studies.posteriors.base import LEVEL, BasePosterior
from shoal_studies.posteriors.forms import reach_of
from shoal_studies.posteriors.summaries import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Scale = Literal["sd", "unit", "ratio"]
"""A coefficient for a standard deviation of its feature, for one unit, or its exponential."""

_INNER_LEVEL: Final = 0.5
_COLOUR: Final = "C0"
_LARGEST_HEIGHT: Final = 16.0  # inches


def draw(
    posterior: BasePosterior,
    axes: "Axes | None" = None,
    *,
    level: float = LEVEL,
    names: Sequence[str] | None = None,
    caption: str | None = None,
    scale: Scale | None = None,
) -> "Axes":
    """Draw a posterior with intervals that hold `level`, on `axes` or on new ones; return them.

    A cohort card is drawn as the histogram of each variable of `names`, each on axes of its own,
    of which the first are returned; survival as the curve of each group of `names`, with its band
    in lighter colour; everything else as a forest plot of `names`.
    There None is all but "intercept", the features of hazards, and of correlations the clearest.

    `scale` is for regressions that measure their columns: "sd", or None, shows coefficients for a
    standard deviation of each feature, "unit" for one unit, and "ratio" the latter's exponentials;
    hazards are shown as ratios in any case but "unit". `caption` stands below the picture.

    Raises:
        ValueError: `level` is not strictly between 0 and 1, a name or a scale is unknown or the
            posterior has no such scale, or `axes` are for one variable and there are several.
        ImportError: matplotlib is not installed.
    """
    if scale is not None:
        _require_scale(posterior, scale)
    below = caption_below(posterior, caption)
    if isinstance(posterior, CohortCardPosterior):
        return _card(posterior, axes, level, names, below)
    if isinstance(posterior, KaplanMeierPosterior):
        return _groups_survival(posterior, axes, level, names, below)
    if isinstance(posterior, MomentsPosterior) and names is None:
        names = [posterior.names[place] for place in posterior.clearest()]
    if isinstance(posterior, PiecewiseExponentialPosterior):
        names = names or posterior.features
    return _forest(posterior, axes, level, names, below, scale)


def caption_below(posterior: BasePosterior, caption: str | None) -> str | None:
    """Return what stands below a picture, which travels without the posterior's summary.

    That is the caption, and the verdict or that there is a caution, if not all is well.
    """
    said = "mind the caution in the summary" if posterior.caution else None
    if isinstance(posterior, MeasuredCoefficients):
        kind = posterior.verdict.kind
        said = None if kind == "trustworthy" else f"verdict: {kind}, see the summary"
    return "; ".join(each for each in (caption, said) if each is not None) or None


def _require_scale(posterior: BasePosterior, scale: Scale) -> None:
    """Check that a posterior can be drawn on a scale.

    Raises:
        ValueError: there is no such scale, or it is for another kind of posterior.
    """
    if scale not in get_args(Scale):
        raise ValueError(f"scale is one of {', '.join(get_args(Scale))}")
    if not isinstance(posterior, MeasuredCoefficients):
        raise ValueError("a scale is for regressions that measure their columns first")
    if scale == "ratio":
        posterior.ratio  # noqa: B018 - is there any?


def _forest(
    posterior: BasePosterior,
    axes: "Axes | None",
    level: float,
    names: Sequence[str] | None,
    caption: str | None,
    scale: Scale | None,
) -> "Axes":
    """Draw the mean of each number, and intervals that hold half of its margin and `level` of it.

    A posterior that is doubted has hollow marks and broken lines.
    """
    drawn = _chosen(posterior, names)
    measured = posterior if isinstance(posterior, MeasuredCoefficients) else None
    per_sd = scale in (None, "sd")
    units = np.ones(len(drawn)) if measured is None or not per_sd else measured.units[drawn]
    outer = posterior.interval(level)[drawn] * units[:, None]
    inner = posterior.interval(_INNER_LEVEL)[drawn] * units[:, None]
    shown = [posterior.names[index] for index in drawn]
    rows, axes = np.arange(len(shown)), axes or _new_axes(height=1.4 + 0.32 * len(shown))
    mean, none = posterior.mean[drawn] * units, 0.0
    low, high = float(outer.min()), float(outer.max())
    near = 2.0 * low - high <= 0.0 <= 2.0 * high - low  # enough not to squeeze the rest
    is_hazard = isinstance(posterior, PiecewiseExponentialPosterior)
    if scale == "ratio" or (is_hazard and per_sd):
        outer, inner, mean, none = np.exp(outer), np.exp(inner), np.exp(mean), 1.0
        axes.set_xscale("log")
    if near:
        axes.axvline(none, color="0.8", linewidth=1.0, zorder=0)
    is_doubted = measured is not None and measured.verdict.kind == "doubtful"
    style, fill = ("dashed", "white") if is_doubted else ("solid", _COLOUR)
    axes.hlines(rows, *outer.T, color=_COLOUR, linewidth=1.2, linestyle=style)
    axes.hlines(rows, *inner.T, color=_COLOUR, linewidth=3.5, linestyle=style)
    axes.plot(mean, rows, "o", color=_COLOUR, markersize=5, markerfacecolor=fill)
    _name_rows(axes, shown)
    said = f"posterior mean, {_INNER_LEVEL:.0%} and {_percent(level)} intervals"
    unit = "for a standard deviation" if per_sd else f"{'ratios ' * (scale == 'ratio')}for one unit"
    axes.set_xlabel(said if measured is None else f"{said}; {unit}")
    return _finished(axes, posterior.title, caption)


def _card(
    posterior: CohortCardPosterior,
    axes: "Axes | None",
    level: float,
    names: Sequence[str] | None,
    caption: str | None,
) -> "Axes":
    """Draw the histogram of each variable of `names`, None: of all, with intervals of counts."""
    reach = reach_of(level, posterior.mechanism)  # first: a wrong level leaves no figure open
    chosen = [card for card in posterior.cards if names is None or card.name in names]
    if not chosen or (names is not None and len(chosen) != len(set(names))):
        raise ValueError("names to draw are of the card's variables")
    if axes is not None and len(chosen) > 1:
        raise ValueError("axes hold one variable: name it in `names`")
    panels = [axes] if axes is not None else _new_panels(len(chosen), caption)
    for card, panel in zip(chosen, panels, strict=True):
        counts = card.bars if isinstance(card, NumberCard) else card.counts
        counts = (*counts, card.missing)
        _histogram(
            panel,
            edges=card.edges if isinstance(card, NumberCard) else None,
            labels=(*(() if isinstance(card, NumberCard) else card.names), card.missing_label),
            counts=[None if each is None else max(each.mean, 0.0) for each in counts],
            reaches=[0.0 if each is None else reach * each.sd for each in counts],
            title=card.name,
            caption=caption if axes is not None else None,
        )
    return panels[0]


def _histogram(
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


def _groups_survival(
    posterior: KaplanMeierPosterior,
    axes: "Axes | None",
    level: float,
    names: Sequence[str] | None,
    caption: str | None,
) -> "Axes":
    """Draw the curve of each group of `names`, None: of all."""
    if names is not None and not set(names) <= {group.label for group in posterior.groups}:
        raise ValueError("names to draw are of groups")
    curves = posterior.mean, posterior.interval(level), posterior.bands(level)
    axes = axes or _new_axes(height=4.2)
    chosen = [
        (group, part)
        for group, part in zip(posterior.groups, posterior.parts, strict=True)
        if names is None or group.label in names
    ]
    for number, (group, part) in enumerate(chosen):
        colour = f"C{number}"
        times = [posterior.start, *posterior.times[: group.shown]]
        mean, ends, bands = (_from_one(each[part]) for each in curves)
        axes.fill_between(times, *bands.T, color=colour, alpha=0.12, linewidth=0.0)
        axes.fill_between(times, *ends.T, color=colour, alpha=0.25, linewidth=0.0)
        axes.plot(times, mean, ".-", color=colour, label=visible(group.label))
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel(visible(posterior.columns[0]), parse_math=False)
    axes.set_ylabel("without event")
    if len(chosen) > 1:
        for text in axes.legend().get_texts():
            text.set_parse_math(False)
    return _finished(axes, posterior.title, caption)


def _from_one(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([np.ones_like(values[:1]), values])


def _new_panels(count: int, caption: str | None) -> list["Axes"]:
    """Return axes of a new figure of pyplot's, one above the other, over a caption."""
    panels = _new_grid(count, height=0.8 + 2.2 * count)
    if caption is not None:
        figure: Any = panels[0].figure
        line = 0.3 / figure.get_figheight()  # of the figure, kept free below
        figure.get_layout_engine().set(rect=(0.0, line, 1.0, 1.0 - line))
        figure.text(0.02, 0.0, visible(caption), va="bottom", fontsize="small", color="0.35")
        figure.texts[-1].set_parse_math(False)
    return panels


def _chosen(posterior: BasePosterior, names: Sequence[str] | None) -> list[int]:
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


def _percent(level: float) -> str:
    return f"{100.0 * level:.4g}%"


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

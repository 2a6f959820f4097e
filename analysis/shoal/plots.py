"""Pictures of posteriors, by matplotlib.

from shoal import plots

plots.draw(report.posterior, caption=str(report.privacy))    # an estimator's `plot` does both

matplotlib is loaded when something is drawn. Names may come from another party: they are drawn as
they are, never as formulas.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.queries.design import Floats
from shoal_studies.catalogue.cohort_card import CohortCardPosterior, NumberCard
from shoal_studies.catalogue.kaplan_meier import KaplanMeierPosterior
from shoal_studies.catalogue.moments import MomentsPosterior
from shoal_studies.catalogue.piecewise_exponential import PiecewiseExponentialPosterior
from shoal_studies.catalogue.regression import MeasuredCoefficients, is_intercept
from shoal_studies.catalogue.validation import ValidationPosterior
from shoal_studies.crowds.simulation import CrowdModel
from shoal_studies.posteriors.base import LEVEL, BasePosterior
from shoal_studies.posteriors.forms import reach_of
from shoal_studies.posteriors.summaries import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Scale = Literal["sd", "unit", "ratio"]
"""A coefficient for a standard deviation of its feature, for one unit, or its exponential."""

_INNER_LEVEL: Final = 0.5
_SCORES: Final = np.arange(0.0625, 3.5, 0.125)
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
    in lighter colour; a single number as its density; everything else as a forest plot of `names`.
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
    if len(posterior.names) == 1:
        return _density(posterior, axes, level, below)
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


_Curve = tuple[str, Floats, Floats, Floats, Floats]
"""A label, places and values, shapes (n,), with intervals and wider bands, shapes (n, 2)."""


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


def _density(
    posterior: BasePosterior, axes: "Axes | None", level: float, caption: str | None
) -> "Axes":
    """Draw the density of a posterior's only number, with the interval that holds `level` of it.

    It is read off the posterior's intervals at many levels.
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
        ValueError: targets are not one for each prediction.
        ImportError: matplotlib is not installed.
    """
    if targets is not None and targets.shape != mean.shape:
        raise ValueError("targets must have one number for each row")
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


def _card(
    posterior: CohortCardPosterior,
    axes: "Axes | None",
    level: float,
    names: Sequence[str] | None,
    caption: str | None,
) -> "Axes":
    """Draw the histogram of each variable of `names`, None: of all, with intervals of counts."""
    reach = reach_of(level, posterior.tails)  # first: a wrong level leaves no figure open
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
    mean, ends, bands = posterior.mean, posterior.interval(level), posterior.bands(level)
    curves = [
        (
            group.label,
            np.array([posterior.start, *posterior.times[: group.shown]]),
            _from_one(mean[part]),
            _from_one(ends[part]),
            _from_one(bands[part]),
        )
        for group, part in zip(posterior.groups, posterior.parts, strict=True)
        if names is None or group.label in names
    ]
    across = posterior.columns[0]
    return _curves(
        axes, curves, title=posterior.title, across=across, up="without event", caption=caption
    )


def survival(
    posterior: PiecewiseExponentialPosterior,
    rows: NDArray[np.float64],
    axes: "Axes | None" = None,
    *,
    level: float = LEVEL,
    labels: Sequence[str] | None = None,
    caption: str | None = None,
) -> "Axes":
    """Draw the curve of each of `rows`, shape (n, q), as `survival` has it, with its `labels`.

    Raises:
        ValueError: as `survival`; or there is not one label for each row.
        ImportError: matplotlib is not installed.
    """
    found = posterior.survival(rows, level)
    labels = labels or [f"row {number}" for number in range(len(found.survival))]
    if len(labels) != len(found.survival):
        raise ValueError("labels are one for each row")
    curves = [
        (label, found.times, _from_one(curve), _from_one(ends), _from_one(band))
        for label, curve, ends, band in zip(labels, *found[1:], strict=True)
    ]
    return _curves(
        axes,
        curves,
        title=posterior.title,
        across=posterior.time,
        up="without event",
        caption=caption_below(posterior, caption),
    )


def _from_one(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([np.ones_like(values[:1]), values])


def calibration_of_sites(
    posterior: ValidationPosterior, axes: "Axes | None" = None, *, level: float = LEVEL
) -> "Axes":
    """Draw targets' means where about the same was predicted, at all sites; return the axes.

    Raises:
        ValueError: noise hides all of them, or `level` is not strictly between 0 and 1.
        ImportError: matplotlib is not installed.
    """
    if not posterior.calibration:
        raise ValueError("noise hides the calibration: spend more, or ask fewer bins")
    reach = reach_of(level, posterior.tails)
    observed = np.array([each.observed.mean for each in posterior.calibration])
    sds = np.array([each.observed.sd for each in posterior.calibration])
    ends = np.clip(np.column_stack([observed - reach * sds, observed + reach * sds]), 0.0, 1.0)
    predicted = np.array([each.predicted.mean for each in posterior.calibration])
    curve = ("all sites", predicted, observed, ends, ends)
    across = f"predicted {posterior.target}, from 0 to 1 between its bounds"
    axes = _curves(axes, [curve], title="Calibration", across=across, up="observed", caption=None)
    axes.plot([0.0, 1.0], [0.0, 1.0], color="0.8", linewidth=1.0, zorder=0)
    return axes


def _curves(
    axes: "Axes | None",
    groups: Sequence[_Curve],
    *,
    title: str,
    across: str,
    up: str,
    caption: str | None,
) -> "Axes":
    """Draw curves with values from 0 to 1."""
    axes = axes or _new_axes(height=4.2)
    for number, (label, places, values, intervals, bands) in enumerate(groups):
        colour = f"C{number}"
        axes.fill_between(places, *bands.T, color=colour, alpha=0.12, linewidth=0.0)
        axes.fill_between(places, *intervals.T, color=colour, alpha=0.25, linewidth=0.0)
        axes.plot(places, values, ".-", color=colour, label=visible(label))
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel(visible(across), parse_math=False)
    axes.set_ylabel(up)
    if len(groups) > 1:
        for text in axes.legend().get_texts():
            text.set_parse_math(False)
    return _finished(axes, title, caption)


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


def instances(model: CrowdModel, axes: "Axes | None" = None) -> "Axes":
    """Draw every instance's normalised weights of a crowd's model, and their average.

    Raises:
        ImportError: matplotlib is not installed.
    """
    names = model.task.weight_names
    rows, axes = np.arange(len(names)), axes or _new_axes(height=1.4 + 0.32 * len(names))
    axes.axvline(0.0, color="0.8", linewidth=1.0, zorder=0)
    axes.plot(model.weights.T, rows, "|", color=_COLOUR, markersize=9, alpha=0.5)
    axes.plot(model.averaged, rows, "o", color=_COLOUR, markersize=5)
    _name_rows(axes, names)
    axes.set_xlabel("every instance, and their average")
    caption = "the spread over instances is no standard error"
    return _finished(axes, f"{model.title}, normalised", caption)


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

"""What a cohort card says: numbers with intervals, as a table and as pictures."""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors import plots
from shoal_protocol.posteriors.base import LEVEL
from shoal_protocol.posteriors.intervals import require_level
from shoal_protocol.posteriors.known import (
    REACHES,
    Known,
    KnownQuantile,
    Number,
    NumbersPosterior,
    Part,
    Tails,
    reach_of,
)
from shoal_protocol.posteriors.summaries import Summary
from shoal_protocol.studies.one_round import Labels, and_others, called, own_label
from shoal_protocol.wire.numbers import Count, Finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_Cells = tuple[Known | None, ...]

_MANY: Final = 0.25
_NEARLY_ALL: Final = 0.9


class NumberCard(Part):
    """What is known of a number. `bars` are counts between `edges`; None is not shown."""

    kind: Literal["number"] = "number"
    name: str
    present: Known
    missing: Known | None
    average: Known | None
    variance: Known | None
    quantiles: tuple[KnownQuantile, ...]
    edges: Annotated[tuple[Finite, ...], Field(min_length=2)]
    bars: _Cells
    missing_label: ClassVar[str] = "missing"

    def at_bounds(self) -> list[tuple[str, float]]:
        """Return the first and the last bar, where a quarter of the values or more are in it.

        Each with its share. Values beyond the bounds are there.
        """
        if self.present.mean < 1.0:
            return []
        labels, found = bin_labels(self.edges), []
        for place in (0, -1):
            bar = self.bars[place]
            share = 0.0 if bar is None else min(bar.mean / self.present.mean, 1.0)
            if share >= _MANY:
                found.append((labels[place], share))
        return found


class CategoryCard(Part):
    """What is known of a category: counts of its levels, then of all other values."""

    kind: Literal["category"] = "category"
    name: str
    present: Known
    missing: Known | None
    levels: tuple[Finite, ...]
    labels: Labels = ()
    counts: _Cells

    @property
    def names(self) -> tuple[str, ...]:
        """What the counts are of."""
        return and_others(called(self.levels, self.labels))

    @property
    def missing_label(self) -> str:
        """What the count of missing values is called."""
        return own_label("missing", "value missing", self.names)


class CrossCard(Part):
    """Counts of all combinations of the `labels` of some variables, the last one's fastest."""

    variables: Annotated[tuple[str, ...], Field(min_length=2, max_length=3)]
    labels: tuple[tuple[str, ...], ...]
    counts: _Cells

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if len(self.counts) != math.prod(map(len, self.labels)):
            raise ValueError("there is one count for each combination of labels")
        return self

    def cells(self) -> Iterator[tuple[str, Known | None]]:
        """Yield the counts with what they are of."""
        shape = tuple(map(len, self.labels))
        for place, count in enumerate(self.counts):
            chosen = np.unravel_index(place, shape)
            parts = zip(self.variables, self.labels, chosen, strict=True)
            yield " × ".join(f"{name} {labels[at]}" for name, labels, at in parts), count


class CohortCardPosterior(NumbersPosterior):
    """Counts, means, spreads and quantiles of the records that there are, seen through noise.

    Intervals are of noise alone: what all of the cohort's records would show lies in them. A count
    is none where fewer than `smallest_cell` records may be behind it. Draws are of each number by
    itself. With Laplace `tails` intervals are as wide as a single Laplace variable's.
    """

    name: Literal["cohort_card"] = "cohort_card"
    columns: tuple[str, ...]
    smallest_cell: Count
    cards: Annotated[
        tuple[Annotated[NumberCard | CategoryCard, Field(discriminator="kind")], ...],
        Field(min_length=1),
    ]
    crosses: tuple[CrossCard, ...]

    @classmethod
    def of(
        cls,
        cards: Sequence[NumberCard | CategoryCard],
        crosses: Sequence[CrossCard],
        *,
        total: Known,
        tails: Tails,
        columns: tuple[str, ...],
        smallest_cell: int,
    ) -> Self:
        """Return the posterior with these parts."""
        numbers = _numbers_of(total, cards, crosses)
        return cls(
            names=tuple(each.label for each in numbers),
            records=max(1, round(total.mean)),
            columns=columns,
            smallest_cell=smallest_cell,
            tails=tails,
            total=total,
            cards=tuple(cards),
            crosses=tuple(crosses),
        )

    @cached_property
    def numbers(self) -> list[Number]:
        return _numbers_of(self.total, self.cards, self.crosses)

    @property
    def withheld(self) -> int:
        """How many counts are not shown."""
        return sum(count is None for count in self._counts())

    def _counts(self) -> Iterator[Known | None]:
        for card in self.cards:
            yield card.missing
            yield from card.bars if isinstance(card, NumberCard) else card.counts
        for cross in self.crosses:
            yield from cross.counts

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        hidden = f"{self.withheld:,} counts, which may be of fewer than {self.smallest_cell:,}"
        return (
            ("Intervals", "of what noise hides of the cohort's own records; no sampling in them"),
            *([("Not shown", hidden)] if self.withheld else []),
            *(
                ("At a bound or beyond", f"up to {share:.0%} of {name}: they are in {label}")
                for name, label, share in self._at_bounds()
            ),
        )

    @property
    def caution(self) -> str | None:
        found = [
            f"{name} ({label})" for name, label, share in self._at_bounds() if share >= _NEARLY_ALL
        ]
        if not found:
            return None
        said = ", ".join(found)
        return f"nearly all values are in the first or the last bin, {said}: is the unit right?"

    def _at_bounds(self) -> list[tuple[str, str, float]]:
        cards = [card for card in self.cards if isinstance(card, NumberCard)]
        return [(card.name, *end) for card in cards for end in card.at_bounds()]

    def summary(self, level: float = LEVEL) -> Summary:
        """Return the card as a table, with intervals of that level; histograms are in the picture.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        require_level(level)
        bars = {
            f"{card.name}: {label}"
            for card in self.cards
            if isinstance(card, NumberCard)
            for label in bin_labels(card.edges)
        }
        reach = reach_of(level, self.tails)
        rows = []
        for each in self.numbers:
            if each.label in bars:
                continue
            low, high = each.at(np.array([-reach, reach]))
            form = "{:,.4g}" if each.whole is None else "{:,.0f}"
            value = form.format(each.mean)
            if each.whole is not None and each.whole.mean >= 1.0:
                value += f" ({min(each.mean / each.whole.mean, 1.0):.1%})"
            rows.append((each.label, value, form.format(low), form.format(high)))
        ends = (f"{0.5 - level / 2.0:.4g}", f"{0.5 + level / 2.0:.4g}")
        headings = ("", "value", *(f"quantile {end}" for end in ends))
        caution = () if self.caution is None else (("Caution", self.caution),)
        return Summary(self.title, headings, tuple(rows), (*self.facts, *caution))

    def plot(
        self,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        names: Sequence[str] | None = None,
        caption: str | None = None,
    ) -> "Axes":
        """Draw the histogram of each variable of `names`, None: of all, with intervals of counts.

        On `axes` fits one variable; without them each gets its own of a new figure, and the first
        is returned.

        Raises:
            ValueError: `level` is not strictly between 0 and 1, a name is no variable's, or there
                are more than one for `axes`.
            ImportError: matplotlib is not installed.
        """
        require_level(level)
        chosen = [card for card in self.cards if names is None or card.name in names]
        if not chosen or (names is not None and len(chosen) != len(set(names))):
            raise ValueError("names to draw are of the card's variables")
        if axes is not None and len(chosen) > 1:
            raise ValueError("axes hold one variable: name it in `names`")
        below = self.caption_below(caption)
        drawn = [axes] if axes is not None else plots.new_panels(len(chosen), below)
        reach = reach_of(level, self.tails)
        for card, panel in zip(chosen, drawn, strict=True):
            counts = card.bars if isinstance(card, NumberCard) else card.counts
            counts = (*counts, card.missing)
            plots.histogram(
                panel,
                edges=card.edges if isinstance(card, NumberCard) else None,
                labels=(*(() if isinstance(card, NumberCard) else card.names), card.missing_label),
                counts=[None if each is None else max(each.mean, 0.0) for each in counts],
                reaches=[0.0 if each is None else reach * each.sd for each in counts],
                title=card.name,
                caption=below if axes is not None else None,
            )
        return drawn[0]


def _numbers_of(
    total: Known, cards: Sequence[NumberCard | CategoryCard], crosses: Sequence[CrossCard]
) -> list[Number]:
    counts = (0.0, math.inf)
    found = [Number("records", total, counts)]

    def add(label: str, known: Known | None, whole: Known | None = None) -> None:
        if known is not None:
            found.append(Number(label, known, counts, whole))

    for card in cards:
        if isinstance(card, NumberCard):
            bounds = (card.edges[0], card.edges[-1])
            if card.average is not None:
                found.append(Number(f"{card.name}: mean", card.average, bounds))
            if card.variance is not None:
                most = (0.0, (bounds[1] - bounds[0]) ** 2 / 4.0)
                found.append(Number(f"{card.name}: sd", card.variance, most, is_root=True))
            for each in card.quantiles:
                label, middle = f"{card.name}: quantile {each.level:g}", len(REACHES) // 2
                known = Known(mean=each.points[middle], sd=0.0)
                found.append(Number(label, known, bounds, points=each.points))
            cells = zip(bin_labels(card.edges), card.bars, strict=True)
        else:
            cells = zip(card.names, card.counts, strict=True)
        for label, count in cells:
            add(f"{card.name}: {label}", count, card.present)
        add(f"{card.name}: {card.missing_label}", card.missing, total)
    for cross in crosses:
        for label, count in cross.cells():
            add(label, count, total)
    return found


def bin_labels(edges: Sequence[float]) -> list[str]:
    """Return names of the bins between ascending edges."""
    return [f"[{low:.6g}, {high:.6g})" for low, high in pairwise(edges)]

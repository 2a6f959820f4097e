"""How every posterior shows itself: a summary, a picture, and what a notebook prints of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal_protocol.posteriors import plots
from shoal_protocol.posteriors.summaries import Described, Summary, summarised

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEVEL = 0.95
"""What an interval holds where nothing else is asked for."""


class Predicting(Protocol):
    """A posterior that predicts a target from rows."""

    @property
    def target(self) -> str:
        """Name of what is predicted."""
        ...

    def predict(self, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return means and standard deviations."""
        ...

    def predict_interval(self, rows: NDArray[np.float64], level: float) -> NDArray[np.float64]:
        """Return intervals, shape (n, 2), within what the target can be."""
        ...


class Shown:
    """What a posterior inherits to show itself."""

    def summary(self: Described, level: float = LEVEL) -> Summary:
        """Return a table of means, standard deviations and central intervals of that level.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        return summarised(self, level)

    def plot(
        self: Described,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        names: Sequence[str] | None = None,
        caption: str | None = None,
    ) -> "Axes":
        """Draw the posterior, on `axes` or on new ones, and return them.

        Of one number the density, of several a forest plot of `names`: all but the intercept if it
        is None. Intervals hold `level`. A report's own `plot` adds what the posterior cost.

        Raises:
            ValueError: `level` is not strictly between 0 and 1, or a name is none of `names`.
            ImportError: matplotlib is not installed.
        """
        below = below_picture(self, caption)
        if len(self.names) == 1:
            return plots.density(self, axes, level=level, caption=below)
        return plots.forest(self, axes, level=level, names=names, caption=below)

    def _repr_html_(self: Described) -> str:
        return summarised(self, LEVEL)._repr_html_()


def below_picture(posterior: object, caption: str | None) -> str | None:
    """Return what stands below a picture, which travels without the posterior's summary."""
    caution = "mind the caution in the summary" if getattr(posterior, "caution", None) else None
    return "; ".join(each for each in (caption, caution) if each is not None) or None


class ShownPredictions:
    """What the posterior of a regression inherits, beside that, to show its predictions."""

    def plot_predictions(
        self: Predicting,
        rows: NDArray[np.float64],
        targets: NDArray[np.float64] | None = None,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        caption: str | None = None,
    ) -> "Axes":
        """Draw the predictions for `rows`, shape (n, m), with intervals that hold `level`.

        `targets`, shape (n,), are drawn beside them.

        Raises:
            ValueError: shapes that do not fit, or a level that is not between 0 and 1.
            ImportError: matplotlib is not installed.
        """
        mean, _ = self.predict(rows)
        intervals = self.predict_interval(rows, level)
        if targets is not None and np.shape(targets) != mean.shape:
            raise ValueError("targets must have one number for each row")
        observed = None if targets is None else np.asarray(targets, dtype=np.float64)
        below = below_picture(self, caption)
        return plots.predictions(
            mean, intervals, observed, axes, level=level, target=self.target, caption=below
        )


class Showing(Protocol):
    """A posterior that shows itself."""

    def summary(self, level: float = LEVEL) -> Summary:
        """Return a table."""
        ...

    def plot(
        self,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        names: Sequence[str] | None = None,
        caption: str | None = None,
    ) -> "Axes":
        """Draw it."""
        ...


class Reporting(Protocol):
    """A report on a posterior, and what it says of the job."""

    @property
    def posterior(self) -> Showing:
        """The posterior."""
        ...

    @property
    def privacy(self) -> object:
        """What the job cost each client; as text, for a caption."""
        ...

    @property
    def purchases(self) -> Sequence[object]:
        """What parts of that were spent on what; each as text."""
        ...

    @property
    def cohort_sizes(self) -> tuple[int, ...]:
        """How many clients are in each round's sum."""
        ...

    @property
    def population_size(self) -> int:
        """How many clients joined."""
        ...


class ShownReport:
    """What a report inherits to show its posterior with what it cost."""

    def summary(self: Reporting, level: float = LEVEL) -> Summary:
        """Return the posterior's summary, with cohorts and price.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        sizes = sorted({min(self.cohort_sizes, default=0), max(self.cohort_sizes, default=0)})
        cohorts = " to ".join(f"{size:,}" for size in sizes)
        return self.posterior.summary(level).with_facts(
            ("Cohorts", f"{cohorts} of {self.population_size:,} clients"),
            ("Privacy spent", f"{self.privacy}, by replacement of one client"),
            ("Of it", "; ".join(map(str, self.purchases))),
        )

    def plot(
        self: Reporting,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        names: Sequence[str] | None = None,
    ) -> "Axes":
        """Draw the posterior as its own `plot` does, with what it cost below.

        Raises:
            ValueError, ImportError: as the posterior's `plot`.
        """
        return self.posterior.plot(axes, level=level, names=names, caption=f"{self.privacy}")

    def _repr_html_(self: Reporting) -> str:
        return ShownReport.summary(self)._repr_html_()

"""Base classes of all posteriors: intervals, tables, plots and export to ArviZ."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from shoal_protocol.posteriors import plots
from shoal_protocol.posteriors.intervals import require_level
from shoal_protocol.posteriors.priors import Prior
from shoal_protocol.posteriors.rows import rows_of
from shoal_protocol.posteriors.summaries import Summary
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Place

if TYPE_CHECKING:
    from arviz import InferenceData
    from matplotlib.axes import Axes


FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]

_PRIOR_HEADINGS: Final = ("prior", "its share")

LEVEL: Final = 0.95
"""Default probability of an interval."""


class BasePosterior(Model):
    """A posterior of the parameters `names`, from about `records` records: seen through noise.

    Sums of gradients do not tell how many: of these it is the most that clients may hold.

    `variable` is what ArviZ is to call the vector of all parameters, and `dimension` its axis.
    """

    variable: ClassVar[str] = "parameters"
    dimension: ClassVar[str] = "parameter"

    name: str
    names: Annotated[tuple[str, ...], Field(min_length=1)]
    records: Place

    if TYPE_CHECKING:  # a field of some posteriors, so pydantic must not find a property here

        @property
        def columns(self) -> tuple[str, ...]:
            """Names of the columns of a record."""

    @property
    @abstractmethod
    def mean(self) -> FloatVector:
        """Posterior mean of each parameter, shape (k,), in the order of `names`."""

    @property
    @abstractmethod
    def sd(self) -> FloatVector:
        """Posterior standard deviation of each parameter, shape (k,)."""

    def interval(self, level: float) -> FloatMatrix:
        """Return central credible intervals that hold `level` of each margin, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        require_level(level)
        return self._quantiles(0.5 - level / 2.0, 0.5 + level / 2.0)

    @abstractmethod
    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        """Return two quantiles of each margin, as far from 0 as from 1, shape (k, 2)."""

    @abstractmethod
    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` joint draws, shape (count, k): no privacy depends on them."""

    @property
    def title(self) -> str:
        """What it is a posterior of, in words."""
        return self.name.replace("_", " ").capitalize()

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What else a summary says, each with its name."""
        return ()

    @property
    def prior(self) -> Prior | None:
        """The prior of each parameter; None where it is not known, or not normal."""
        return None

    @property
    def caution(self) -> str | None:
        """A warning to read before the posterior is used; None if there is none."""
        return None

    @property
    def units_drawn(self) -> FloatVector:
        """What a forest plot multiplies each number by, shape (k,), so that they compare."""
        return np.ones(len(self.names))

    @property
    def unit_drawn(self) -> str | None:
        """What it then shows, in words, if that is not the number itself."""
        return None

    @property
    def draws_ratios(self) -> bool:
        """Whether a forest plot shows exponentials of the numbers, on a logarithmic axis."""
        return False

    @property
    def is_doubted(self) -> bool:
        """Whether a picture shall look as if intervals may not hold."""
        return False

    def summary(self, level: float = LEVEL) -> Summary:
        """Return a table of means, standard deviations and central intervals of that level.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        intervals = self.interval(level)
        priors = self._prior_cells()
        rows = tuple(
            (name, f"{mean:.5g}", f"{sd:.3g}", f"{low:.5g}", f"{high:.5g}", *prior)
            for name, mean, sd, (low, high), prior in zip(
                self.names, self.mean, self.sd, intervals, priors, strict=True
            )
        )
        facts = [("Records", f"about {self.records:,}"), *self.facts]
        if self.caution is not None:
            facts.append(("Caution", self.caution))
        ends = (f"{0.5 - level / 2.0:.4g}", f"{0.5 + level / 2.0:.4g}")
        return Summary(
            self.title,
            (
                "",
                "mean",
                "sd",
                *(f"quantile {end}" for end in ends),
                *_PRIOR_HEADINGS[: len(priors[0])],
            ),
            rows,
            tuple(facts),
        )

    def _prior_cells(self) -> list[tuple[str, ...]]:
        """Return of each number its prior and that one's share in its variance; empty if unknown.

        A cell for each of `_PRIOR_HEADINGS`.
        """
        prior = self.prior
        if prior is None:
            return [()] * len(self.names)
        rows = zip(prior.mean, prior.sd, prior.shares(self.sd), strict=True)
        return [(f"{mean:.3g} ± {sd:.3g}", f"{share:.0%}") for mean, sd, share in rows]

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def plot(
        self,
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
        below = self.caption_below(caption)
        if len(self.names) == 1:
            return plots.density(self, axes, level=level, caption=below)
        return plots.forest(self, axes, level=level, names=names, caption=below)

    def caption_below(self, caption: str | None) -> str | None:
        """Return what stands below a picture, which travels without the posterior's summary."""
        caution = "mind the caution in the summary" if self.caution else None
        return "; ".join(each for each in (caption, caution) if each is not None) or None

    def to_arviz(
        self,
        generator: np.random.Generator | None = None,  # noqa: TID251
        *,
        count: int = 4000,
        attributes: Mapping[str, str | int | float] | None = None,
    ) -> "InferenceData":
        """Return ArviZ's InferenceData: the group `posterior`, with names as coordinates.

        Of a posterior in closed form one chain of `count` draws is drawn by `generator`; one that
        consists of draws gives those and needs neither. `attributes` are added to the group's: a
        report's own `to_arviz` adds the job and its price.

        Raises:
            ValueError: it is in closed form and there is no generator.
            ImportError: ArviZ is not installed; the message names the extra.
        """
        return self._inference_data(self._chains(count, generator), attributes)

    def _inference_data(
        self,
        chains: FloatMatrix,
        attributes: Mapping[str, str | int | float] | None,
        **groups: Mapping[str, FloatMatrix],
    ) -> "InferenceData":
        data: InferenceData = _arviz().from_dict(
            posterior={self.variable: chains},
            dims={self.variable: [self.dimension]},
            coords={self.dimension: list(self.names)},
            posterior_attrs={**self._attributes(), **(attributes or {})},
            **groups,
        )
        return data

    def _chains(self, count: int, generator: np.random.Generator | None) -> FloatMatrix:  # noqa: TID251
        """Return draws of all parameters for ArviZ, shape (chains, draws, k)."""
        if generator is None:
            raise ValueError(
                "this posterior is in closed form and has to be drawn from: pass a generator, "
                "such as numpy.random.default_rng(1)"
            )
        return self.sample(count, generator)[None]

    def _attributes(self) -> Mapping[str, str | int | float]:
        """Return what else is known of the posterior, for ArviZ's attributes."""
        caution = {} if self.caution is None else {"caution": self.caution}
        return {"records": self.records, **caution}


class RegressionPosterior(BasePosterior):
    """A posterior of the coefficients that predict `target`: "intercept", then the features'.

    Rows, shape (n, m), have their columns by name as data frames and mappings do, others are left
    out; of an array without names they are by position.
    """

    variable = "coefficients"
    dimension = "coefficient"

    target: str

    @property
    def title(self) -> str:
        """What it is a posterior of, in words."""
        return f"{super().title} of {self.target}"

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that `predict` expects, in order."""
        return tuple(name for name in self.names if name != "intercept")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record: the features, then the target."""
        return (*self.features, self.target)

    @property
    @abstractmethod
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the coefficients, shape (k, k)."""

    @abstractmethod
    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of the target, shapes (n,), for `rows`, shape (n, m).

        Raises:
            ValueError: `rows` does not have one column per feature.
        """

    @abstractmethod
    def predict_interval(self, rows: FloatMatrix, level: float) -> FloatMatrix:
        """Return intervals that hold `level`, shape (n, 2), within what is predicted can be.

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """

    def to_arviz(
        self,
        generator: np.random.Generator | None = None,  # noqa: TID251
        *,
        count: int = 4000,
        attributes: Mapping[str, str | int | float] | None = None,
        rows: FloatMatrix | None = None,
        targets: FloatVector | None = None,
    ) -> "InferenceData":
        """Return ArviZ's InferenceData, with the group `log_likelihood` if there are `rows`.

        It is of `targets`, shape (n,), at `rows`, shape (n, m): records of the analyst's own, which
        were not learned from. `arviz.loo` and `arviz.waic` compare posteriors by it. Two classes
        are 1, the upper one, and 0.

        Raises:
            ValueError: as the base's; or rows and targets do not fit each other or the family.
            ImportError: ArviZ is not installed; the message names the extra.
        """
        chains = self._chains(count, generator)
        if rows is None and targets is None:
            return self._inference_data(chains, attributes)
        found = self._log_likelihoods(chains, rows, targets)
        return self._inference_data(chains, attributes, log_likelihood={self.target: found})

    def _log_likelihoods(
        self, chains: FloatMatrix, rows: FloatMatrix | None, targets: FloatVector | None
    ) -> FloatMatrix:
        """Return those of targets at rows given draws, shape (chains, draws, n)."""
        if rows is None or targets is None:
            raise ValueError("rows and targets go together")
        values = np.asarray(targets, dtype=np.float64)
        checked = self._checked_rows(rows)
        if values.shape != (len(checked),):
            raise ValueError("targets must have one number for each row")
        return self._log_densities(values, self._predictors(chains, checked))

    def _predictors(self, draws: FloatMatrix, rows: FloatMatrix) -> FloatMatrix:
        """Return predictors at checked rows, (..., n), by draws of coefficients, (..., k)."""
        found: FloatMatrix = draws @ self._design(rows).T
        return found

    def _design(self, rows: FloatMatrix) -> FloatMatrix:
        """Return checked rows as the coefficients take them, shape (n, k)."""
        if len(self.features) == len(self.names):
            return rows
        return np.column_stack([np.ones(len(rows)), rows])

    @abstractmethod
    def _log_densities(self, targets: FloatVector, predictors: FloatMatrix) -> FloatMatrix:
        """Return log densities of targets, (n,), given predictors, (chains, draws, n).

        Raises:
            ValueError: a target is none of the family's, or the family has no likelihood.
        """

    def _checked_rows(self, rows: FloatMatrix) -> FloatMatrix:
        return rows_of(rows, self.features)

    def plot_predictions(
        self,
        rows: FloatMatrix,
        targets: FloatVector | None = None,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        caption: str | None = None,
        target: str | None = None,
    ) -> "Axes":
        """Draw the predictions for `rows`, shape (n, m), with intervals that hold `level`.

        `targets`, shape (n,), are drawn beside them. `target` says what is predicted, if it is not
        the target itself.

        Raises:
            ValueError: shapes that do not fit, or a level that is not between 0 and 1.
            ImportError: matplotlib is not installed.
        """
        mean, _ = self.predict(rows)
        intervals = self.predict_interval(rows, level)
        if targets is not None and np.shape(targets) != mean.shape:
            raise ValueError("targets must have one number for each row")
        observed = None if targets is None else np.asarray(targets, dtype=np.float64)
        return plots.predictions(
            mean,
            intervals,
            observed,
            axes,
            level=level,
            target=target or self.target,
            caption=self.caption_below(caption),
        )


def _arviz() -> Any:
    try:
        import arviz
    except ModuleNotFoundError as error:
        raise ImportError("this export needs the extra: pip install 'shoal[analysis]'") from error
    return arviz

"""Posteriors of regressions in measured units: normal distributions, in the data's units."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self, get_args

import numpy as np
from pydantic import model_validator

from shoal_protocol.posteriors import plots
from shoal_protocol.posteriors.base import (
    LEVEL,
    BasePosterior,
    FloatMatrix,
    FloatVector,
    RegressionPosterior,
)
from shoal_protocol.posteriors.intervals import normal_intervals, normal_quantiles
from shoal_protocol.posteriors.likelihoods import (
    gamma_log_density,
    logistic_log_density,
    normal_log_density,
    poisson_log_density,
)
from shoal_protocol.posteriors.priors import Prior
from shoal_protocol.posteriors.summaries import Summary
from shoal_protocol.queries.models.regressions import probability, rate
from shoal_protocol.studies.regression.pooled import Effects, PooledFactor
from shoal_protocol.studies.regression.verdicts import Verdict
from shoal_protocol.wire.numbers import Finite, PositiveSize, Size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TargetFamily = Literal["normal", "logistic", "poisson", "negative_binomial", "gamma"]
"""What a target is: a number, one of two classes, a count, a scattered count, a positive number."""

_TITLES = {
    "normal": "Linear regression",
    "logistic": "Logistic regression",
    "poisson": "Poisson regression",
    "negative_binomial": "Negative binomial regression",
    "gamma": "Gamma regression",
}
_RATIOS = {
    "logistic": "odds ratio",
    "poisson": "rate ratio",
    "negative_binomial": "rate ratio",
    "gamma": "ratio of means",
}


class MeasuredCoefficients(BasePosterior):
    """Base of the Gaussian posteriors of a regression's coefficients, in the data's own units.

    The covariance accounts for the records' scatter, however uneven, and for the privacy noise
    alike. Each prior is normal, with `prior_mean` and `prior_sd`. `scatter` is the residual
    standard deviation of a number; of a count or a class it is how many times as much as the family
    says targets scatter, in variance, and of a positive number its variance over its mean's square.
    `spreads` are the features' standard deviations, as noise let them be measured.
    """

    variable = "coefficients"
    dimension = "coefficient"

    target: str
    coefficients: tuple[Finite, ...]
    covariance: tuple[tuple[Finite, ...], ...]
    prior_mean: tuple[Finite, ...]
    prior_sd: tuple[Size, ...]
    scatter: PositiveSize
    spreads: tuple[PositiveSize, ...]
    verdict: Verdict

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        size = len(self.names)
        columns = (self.coefficients, self.prior_mean, self.prior_sd, self.units_drawn)
        sizes = {len(each) for each in columns}
        if sizes != {size} or [len(row) for row in self.covariance] != [size] * size:
            raise ValueError("names, coefficients, priors, spreads and covariance must go together")
        return self

    @property
    def mean(self) -> FloatVector:
        return np.array(self.coefficients)

    @property
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the coefficients, shape (k, k)."""
        return np.array(self.covariance)

    @property
    def sd(self) -> FloatVector:
        return np.sqrt(np.diagonal(self.covariance_matrix))

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        return normal_quantiles(self.mean, self.sd, high)

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of the coefficients, shape (count, k): no privacy depends on them.

        The square root of the covariance is its symmetric one, so a singular matrix is fine.
        """
        values, vectors = np.linalg.eigh(self.covariance_matrix)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        standard: FloatMatrix = generator.standard_normal((count, len(self.names)))
        draws: FloatMatrix = self.mean + standard @ root.T
        return draws

    @property
    def prior(self) -> Prior:
        return Prior(np.array(self.prior_mean), np.array(self.prior_sd))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        return (
            ("Verdict", str(self.verdict)),
            (
                "One dishonest client",
                f"of about {self.records:,} could move any of these numbers as far as all others "
                "together, and no verdict would see it: a sum is checked for what is possible, and "
                "no answer is",
            ),
            (self._scatter_of, f"{self.scatter:.4g}"),
        )

    @property
    def _scatter_of(self) -> str:
        return "Scatter over the family's"

    @property
    def units_drawn(self) -> FloatVector:
        return np.array([1.0, *self.spreads])

    @property
    def unit_drawn(self) -> str:
        return "for a standard deviation"

    @property
    def is_doubted(self) -> bool:
        return self.verdict.kind == "doubtful"

    @property
    def slopes(self) -> list[int]:
        """Where in `names` the features' coefficients are."""
        return [place for place, name in enumerate(self.names) if not plots.is_intercept(name)]

    @property
    def ratio(self) -> str:
        """What the exponential of a slope is.

        Raises:
            ValueError: nothing in particular.
        """
        return "odds ratio"

    def ratios(self, level: float = LEVEL) -> FloatMatrix:
        """Return each slope's exponential, which is for one unit, and its interval: shape (m, 3).

        Raises:
            ValueError: `level` is not strictly between 0 and 1, or these are no ratios.
        """
        self.ratio  # noqa: B018 - is there any?
        logs = np.column_stack([self.mean, self.interval(level)])[self.slopes]
        return np.asarray(np.exp(np.clip(logs, -700.0, 700.0)))

    def plot(
        self,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        names: Sequence[str] | None = None,
        caption: str | None = None,
        scale: plots.Scale | None = None,
    ) -> "Axes":
        """Draw a forest plot on a `scale`, as the base's; None is for a standard deviation.

        Raises:
            ValueError: as the base's; or there are no ratios, or no such scale.
            ImportError: matplotlib is not installed.
        """
        if scale not in (None, *get_args(plots.Scale)):
            raise ValueError(f"scale is one of {', '.join(get_args(plots.Scale))}")
        if scale == "ratio":
            self.ratio  # noqa: B018 - is there any?
        below = self.caption_below(caption)
        return plots.forest(self, axes, level=level, names=names, caption=below, scale=scale)

    def caption_below(self, caption: str | None) -> str | None:
        """Return what stands below a picture: the verdict, where it is not that all is well."""
        kind = self.verdict.kind
        said = None if kind == "trustworthy" else f"verdict: {kind}, see the summary"
        return "; ".join(each for each in (caption, said) if each is not None) or None

    def _attributes(self) -> Mapping[str, str | int | float]:
        return {
            **super()._attributes(),
            "target": self.target,
            "scatter": self.scatter,
            "verdict": str(self.verdict),
        }


class MeasuredRegressionPosterior(MeasuredCoefficients, RegressionPosterior):
    """Gaussian posterior of "intercept", and then the features' slopes: `names`.

    `pooled` is the factor whose levels' effects share a prior, if there is one.
    """

    name: Literal["regression"] = "regression"
    family: TargetFamily
    offset: str | None = None
    weights: str | None = None
    pooled: PooledFactor | None = None

    @model_validator(mode="after")
    def _has_an_intercept(self) -> Self:
        if len(self.names) < 2 or self.names[0] != "intercept":
            raise ValueError("names must be the intercept and then the features")
        if self.pooled is not None and not set(self.pooled.columns) <= set(self.names[1:]):
            raise ValueError("what is pooled must be features")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that `predict` expects, in order: the offset is the last."""
        return self.names[1:] if self.offset is None else (*self.names[1:], self.offset)

    @property
    def columns(self) -> tuple[str, ...]:
        return super().columns if self.weights is None else (*super().columns, self.weights)

    @property
    def title(self) -> str:
        """What it is a posterior of, in words."""
        return f"{_TITLES[self.family]} of {self.target}"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        named = {"Offset": self.offset, "Weights": self.weights}
        return (*super().facts, *((what, name) for what, name in named.items() if name is not None))

    @property
    def ratio(self) -> str:
        if self.family not in _RATIOS:
            raise ValueError("a linear regression has no ratios: its slopes are differences")
        return _RATIOS[self.family]

    @property
    def _scatter_of(self) -> str:
        what = {"normal": "Residual sd", "gamma": "Dispersion"}
        return what.get(self.family, super()._scatter_of)

    @property
    def pooled_effects(self) -> Effects:
        """The pooled factor's effects, of all its levels, about their mean.

        Raises:
            ValueError: no factor was pooled.
        """
        if self.pooled is None:
            raise ValueError('no factor was pooled: name one, as pooled="site"')
        return self.pooled.effects(self.names, self.mean, self.covariance_matrix)

    def summary(self, level: float = LEVEL) -> Summary:
        """Return a table of the coefficients, then of what was pooled: its spread and effects.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        whole = super().summary(level)
        if self.pooled is None:
            return whole
        effects = self.pooled_effects
        shown = [
            (f"sd of {self.pooled.variable}", self.pooled.mean, self.pooled.sd),
            *zip(effects.names, effects.mean.tolist(), effects.sd.tolist(), strict=True),
        ]
        ends = [self.pooled.interval(level), *effects.interval(level).tolist()]
        rows = [
            (name, f"{mean:.5g}", f"{sd:.3g}", f"{low:.5g}", f"{high:.5g}", "", "")
            for (name, mean, sd), (low, high) in zip(shown, ends, strict=True)
        ]
        return Summary(whole.title, whole.headings, (*whole.rows, *rows), whole.facts)

    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of what is predicted, shapes (n,), for `rows`, (n, m).

        Of a number it is a new record's target, coefficients and residual together; of two classes
        the probability of the upper one, and of others their mean, over the posterior.

        Raises:
            ValueError: `rows` does not have one column per feature.
        """
        mean, sd = self._predictor(rows)
        if self.family == "normal":
            return mean, np.hypot(sd, self.scatter)
        if self.family == "logistic":
            nodes, weights = np.polynomial.hermite_e.hermegauss(40)
            values, weights = (
                probability(mean[:, None] + sd[:, None] * nodes),
                weights / sum(weights),
            )
            expected = values @ weights
            return expected, np.sqrt(np.maximum((values - expected[:, None]) ** 2 @ weights, 0.0))
        expected = rate(mean + 0.5 * sd**2)
        share = np.sqrt(np.expm1(np.minimum(sd**2, 100.0)))
        return expected, expected * np.minimum(share, 1e308 / np.maximum(expected, 1.0))

    def predict_interval(self, rows: FloatMatrix, level: float) -> FloatMatrix:
        """Return intervals that hold `level` of what `predict` is about, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        if self.family == "normal":
            return normal_intervals(*self.predict(rows), level)
        ends = normal_intervals(*self._predictor(rows), level)
        return probability(ends) if self.family == "logistic" else rate(ends)

    def _predictor(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of the linear predictor, shapes (n,)."""
        checked = self._checked_rows(rows)
        design = self._design(checked)
        variance = np.einsum("ni,ij,nj->n", design, self.covariance_matrix, design)
        return self._predictors(self.mean, checked), np.sqrt(np.maximum(variance, 0.0))

    def _design(self, rows: FloatMatrix) -> FloatMatrix:
        return np.column_stack([np.ones(len(rows)), rows[:, : len(self.names) - 1]])

    def _predictors(self, draws: FloatMatrix, rows: FloatMatrix) -> FloatMatrix:
        offsets: FloatVector = rows[:, len(self.names) - 1 :].sum(axis=1)
        return super()._predictors(draws, rows) + offsets

    def _log_densities(self, targets: FloatVector, predictors: FloatMatrix) -> FloatMatrix:
        match self.family:
            case "normal":
                return normal_log_density(targets, predictors, self.scatter)
            case "logistic":
                return logistic_log_density(targets, predictors)
            case "poisson":
                return poisson_log_density(targets, predictors)
            case "gamma":
                return gamma_log_density(targets, predictors, self.scatter)
            case _:
                raise ValueError("the posterior of scattered counts has no likelihood of a record")

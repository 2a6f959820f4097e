"""Generalised linear models in five rounds of everybody, in units that are measured."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.jobs.job_request import Range, RoundTerms
from shoal_protocol.queries import (
    Column,
    ColumnMoments,
    FirstMoments,
    NormCounts,
    Query,
    ScoreSum,
    SecondMoments,
    WeightedRowMatrix,
)
from shoal_protocol.queries.columns import ColumnBounds, ColumnName
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.models import probability, rate
from shoal_protocol.queries.moments import TARGET_PART
from shoal_protocol.queries.scores import LARGEST_COORDINATE
from shoal_protocol.queries.sums import largest_norms
from shoal_protocol.trust.dictionary import Coding, codings_of_target
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Finite, PositiveSize, Size
from shoal_studies.catalogue.study import FixedStudy, Study, require_features, round_terms
from shoal_studies.posteriors.base import (
    LEVEL,
    BasePosterior,
    NormalCoefficients,
    RegressionPosterior,
    expected_probabilities,
    mixture_quantiles,
    normal_intervals,
    require_level,
    semidefinite,
    square_root,
)
from shoal_studies.posteriors.summaries import Summary

_AT_AN_EDGE: Final = (0.0205, 0.05)  # half ranges: as near as is told; where noise hides a spread
_HIDDEN: Final = 1.5  # looseness
_NEAR: Final = (0.35, 0.12)  # half ranges: as near as piled up values are; the same
_PILED_UP: Final = 1.35  # spreads over the mean's distance: as if 4 of 9 values were at the bound

VerdictKind = Literal["trustworthy", "doubtful", "prior"]


class Verdict(Model):
    """`kind` is what to make of intervals, and `reasons` say why.

    - "trustworthy": nothing that was measured speaks against them.
    - "prior": they hold what is true, above all because the prior does: the data tell little.
    - "doubtful": something was measured under which intervals were seen to fail.
    """

    kind: VerdictKind
    reasons: tuple[Annotated[str, Field(min_length=1, max_length=500)], ...] = ()

    def __str__(self) -> str:
        """Return the verdict on one line."""
        return ": ".join([self.kind, *(["; ".join(self.reasons)] if self.reasons else [])])


def misplaced(
    name: str,
    bounds: tuple[float, float],
    *,
    centre: float,
    spread: float,
    looseness: float,
    is_binary: bool,
) -> str | None:
    """Return that a column's mean and spread look as if its bounds cut most values, or None.

    Half of its values or more are there. Many quantities pile up at 0, and a column from about 0 to
    1 may be rare or common; one that `is_binary` has all values at its bounds. `looseness` is how
    many times as small a spread may be. Noise that hides a spread hides, too, whether values are
    cut to a bound or lie near it, within bounds that are far too wide.
    """
    lower, upper = bounds
    is_unit = -1.0 < lower <= 0.0 < 1.0 <= upper < 2.0
    half = upper / 2.0 - lower / 2.0
    edge = upper if centre > lower + half else lower
    away, narrow = abs(edge - centre) / half, spread / half
    if edge == 0.0 or (is_unit and edge == lower):
        return None
    is_hidden = looseness >= _HIDDEN
    if away <= _AT_AN_EDGE[is_hidden]:
        nearly = f"{name}: nearly all values are at or beyond its bound {edge:g}"
        if is_unit:
            return f"{nearly}: it hardly varies, or is not coded from 0 to 1"
        return f"{nearly}: is the unit right?"
    is_natural = edge == lower <= 1.0 or is_unit  # counting begins at 0 or 1
    if is_natural or is_binary or away > _NEAR[is_hidden]:
        return None
    share = f"{name}: a large share of the values is at or beyond its bound {edge:g}"
    if is_hidden:
        return f"{share}, or its bounds are far too wide: is the unit right?"
    if narrow < _PILED_UP * away:
        return None
    return f"{share}, and was cut to it: is the unit right, or are wider bounds due?"


_Share = Annotated[float, Field(ge=0.0, le=1.0)]


@dataclass(frozen=True)
class Effects:
    """Effects of a factor's levels about their mean, normal: shapes (l,)."""

    names: tuple[str, ...]
    mean: Floats
    sd: Floats

    def interval(self, level: float) -> Floats:
        """Return central intervals that hold `level` of each effect, shape (l, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        return normal_intervals(self.mean, self.sd, level)


class PooledFactor(Model):
    """Effects of the levels of `variable` are normal with an unknown standard deviation.

    That is one of `spreads`, in the predictor's units, with the probabilities `shares`. `columns`
    are those of the levels but the reference.
    """

    variable: str
    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1)]
    spreads: Annotated[tuple[PositiveSize, ...], Field(min_length=2)]
    shares: tuple[_Share, ...]

    @model_validator(mode="after")
    def _is_distribution(self) -> Self:
        if len(self.shares) != len(self.spreads) or abs(sum(self.shares) - 1.0) > 1e-6:
            raise ValueError("each spread needs its probability, and all of them are 1")
        if np.any(np.diff(self.spreads) <= 0.0):
            raise ValueError("spreads must rise")
        return self

    @property
    def mean(self) -> float:
        """Posterior mean of the standard deviation."""
        return float(np.dot(self.shares, self.spreads))

    @property
    def sd(self) -> float:
        """Posterior standard deviation of the standard deviation."""
        return float(np.dot(self.shares, (np.array(self.spreads) - self.mean) ** 2) ** 0.5)

    def interval(self, level: float) -> tuple[float, float]:
        """Return the central interval that holds `level` of the standard deviation.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        require_level(level)
        spreads = np.array(self.spreads)
        between = np.sqrt(spreads[1:] * spreads[:-1])
        edges = np.concatenate([[0.0], between, spreads[-1:] ** 2 / between[-1:]])
        below = np.append(0.0, np.cumsum(self.shares))
        low, high = np.interp([0.5 - level / 2.0, 0.5 + level / 2.0], below, edges)
        return float(low), float(high)

    def effects(self, names: tuple[str, ...], mean: Floats, covariance: Floats) -> Effects:
        """Return all levels' effects from the coefficients `names`, shapes (k,) and (k, k)."""
        count = len(self.columns)
        effects = np.zeros((count + 1, len(names)))
        effects[np.arange(count), [names.index(each) for each in self.columns]] = 1.0
        effects -= effects.mean(axis=0)
        variances = np.einsum("ij,jk,ik->i", effects, covariance, effects)
        return Effects(
            names=(
                *(f"{each} about the mean" for each in self.columns),
                "reference about the mean",
            ),
            mean=effects @ mean,
            sd=np.sqrt(np.maximum(variances, 0.0)),
        )


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


def is_intercept(name: str) -> bool:
    """Tell whether a coefficient is a constant."""
    return name == "intercept" or name.endswith(": intercept")  # the latter of one class


class MeasuredCoefficients(NormalCoefficients):
    """Base of the posteriors of regressions that measure their columns first.

    They are mixtures of normals: `components` are their means, shape (m, k), with probabilities
    `shares`, and all have one covariance, such that `covariance` is the mixture's. Without
    components they are normal.

    The covariance accounts for the records' scatter, however uneven. `scatter` is the residual
    standard deviation of a number; of a count or a class it is how many times as much as the family
    says targets scatter, in variance, and of a positive number its variance over its mean's square.
    `scatter_sd` is its standard deviation, 0 where that is not known. `spreads` are the features'
    standard deviations, as noise let them be measured. If a client may have several records,
    `records_per_client`, the covariance allows them to depend on each other in any way.
    """

    target: str
    scatter: PositiveSize
    scatter_sd: Size = 0.0
    spreads: tuple[PositiveSize, ...]
    components: tuple[tuple[Finite, ...], ...] = ()
    shares: tuple[_Share, ...] = ()
    records_per_client: Annotated[int, Field(ge=1, le=1000)] = 1
    verdict: Verdict

    @model_validator(mode="after")
    def _is_mixture(self) -> Self:
        if len(self.components) != len(self.shares) or (
            self.shares and abs(sum(self.shares) - 1.0) > 1e-6
        ):
            raise ValueError("each component needs its share, and all of them are 1")
        if any(len(each) != len(self.names) for each in self.components):
            raise ValueError("a component has one number for each coefficient")
        return self

    @model_validator(mode="after")
    def _one_spread_for_each(self) -> Self:
        if len(self.units) != len(self.names):
            raise ValueError("there must be a spread for each feature")
        return self

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        clustered = (
            f"clustered by client: the up to {self.records_per_client} records of one client may "
            "depend on each other"
        )
        return (
            ("Verdict", str(self.verdict)),
            (
                "One dishonest client",
                f"any one of about {self.records:,} could move each of these numbers as far as all "
                "others together; no verdict would notice, because only sums are checked and "
                "nobody sees a single answer",
            ),
            (self._scatter_of, self._scatter_shown),
            *([("Intervals", clustered)] if self.records_per_client > 1 else []),
        )

    @property
    def _scatter_shown(self) -> str:
        if self.scatter_sd == 0.0:
            return f"{self.scatter:.4g}"
        low, high = self.scatter_interval(LEVEL)
        return f"{self.scatter:.4g} ({LEVEL:.0%} interval {low:.4g} to {high:.4g})"

    def scatter_interval(self, level: float) -> tuple[float, float]:
        """Return the ends of an interval that holds the scatter, which is about log-normal.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        require_level(level)
        log_variance, log_middle = self._log_scatter
        reach = NormalDist().inv_cdf(0.5 + level / 2.0) * math.sqrt(log_variance)
        middle = self.scatter * math.exp(log_middle)
        return middle * math.exp(-reach), middle * math.exp(reach)

    @property
    def _log_scatter(self) -> tuple[float, float]:
        """The variance of the scatter's logarithm, and its mean less `scatter`'s logarithm.

        `scatter` is the mean of a log-normal distribution.
        """
        log_variance = math.log1p((self.scatter_sd / self.scatter) ** 2)
        return log_variance, -0.5 * log_variance

    @property
    def _scatter_of(self) -> str:
        return "Records' scatter, where 1 is what the model expects"

    @property
    def units(self) -> Floats:
        """What makes each coefficient one for a standard deviation of its feature, shape (k,)."""
        return np.array([1.0, *self.spreads])

    @property
    def slopes(self) -> list[int]:
        """Where in `names` the features' coefficients are."""
        return [place for place, name in enumerate(self.names) if not is_intercept(name)]

    @property
    def ratio(self) -> str:
        """What the exponential of a slope is.

        Raises:
            ValueError: nothing in particular.
        """
        return "odds ratio"

    def ratios(self, level: float = LEVEL) -> Floats:
        """Return each slope's exponential, which is for one unit, and its interval: shape (m, 3).

        Raises:
            ValueError: `level` is not strictly between 0 and 1, or these are no ratios.
        """
        self.ratio  # noqa: B018 - is there any?
        logs = np.column_stack([self.mean, self.interval(level)])[self.slopes]
        return np.asarray(np.exp(np.clip(logs, -700.0, 700.0)))

    @cached_property
    def _within(self) -> Floats:
        """The covariance of each component, shape (k, k)."""
        if not self.components:
            return self.covariance_matrix
        away = np.array(self.components) - self.mean
        between = away.T @ (np.array(self.shares)[:, None] * away)
        return semidefinite(self.covariance_matrix - between)

    def _quantiles(self, low: float, high: float) -> Floats:
        return self._of_combinations(np.eye(len(self.names)), np.zeros(len(self.names)), low, high)

    def _of_combinations(self, design: Floats, offsets: Floats, low: float, high: float) -> Floats:
        """Return two quantiles of combinations of coefficients, `design`, (n, k): shape (n, 2)."""
        means = np.array(self.components or [self.coefficients]) @ design.T + offsets
        sds = np.sqrt(np.maximum(np.sum((design @ self._within) * design, axis=1), 0.0))
        shares = np.array(self.shares or [1.0])
        return np.column_stack(
            [mixture_quantiles(means, sds, shares, each) for each in (low, high)]
        )

    def sample(self, count: int, generator: np.random.Generator) -> Floats:
        """Return draws of the coefficients, shape (count, k): no privacy depends on them."""
        root = square_root(self._within)
        means = np.array(self.components or [self.coefficients])
        picked = generator.choice(len(means), size=count, p=self.shares or None)
        return np.asarray(means[picked] + generator.standard_normal((count, len(root))) @ root.T)


class MeasuredRegressionPosterior(MeasuredCoefficients, RegressionPosterior):
    """Posterior of "intercept", and then the features' slopes: `names`.

    `pooled` is the factor whose levels' effects share a prior, if there is one.
    """

    name: Literal["regression"] = "regression"
    family: TargetFamily
    offset: str | None = None
    weights: str | None = None
    pooled: PooledFactor | None = None

    @model_validator(mode="after")
    def _pools_features(self) -> Self:
        if self.pooled is not None and not set(self.pooled.columns) <= set(self.names[1:]):
            raise ValueError("what is pooled must be features")
        return self

    @property
    def _log_scatter(self) -> tuple[float, float]:
        if self.family != "normal":
            return super()._log_scatter
        # of a number it is the root of the mean square: (E s)^2 = scatter^2 exp(-v)
        log_variance = -math.log1p(-min((self.scatter_sd / self.scatter) ** 2, 0.99))
        return log_variance, -log_variance

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

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
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
            return expected_probabilities(mean, sd)
        expected = rate(mean + 0.5 * sd**2)
        share = np.sqrt(np.expm1(np.minimum(sd**2, 100.0)))
        return expected, expected * np.minimum(share, 1e308 / np.maximum(expected, 1.0))

    def predict_interval(self, rows: Floats, level: float) -> Floats:
        """Return intervals that hold `level` of what `predict` is about, shape (n, 2).

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """
        if self.family == "normal":
            return normal_intervals(*self.predict(rows), level)
        require_level(level)
        low, high = 0.5 - level / 2.0, 0.5 + level / 2.0
        ends = self._of_combinations(*self._combinations(rows), low, high)
        return probability(ends) if self.family == "logistic" else rate(ends)


SCORE_ROUNDS: Final = 3
"""Rounds of scores, each where those before lead to."""

REACH: Final = 16.0
"""Spreads that a feature reaches to each side before its values are cut."""
CONSTANT: Final = 1.0 / REACH
"""The constant coordinate: as large as one spread."""
SMALLEST_SPREAD: Final = 0.02
"""Of a column, over half its bounds' range."""
GRID_BITS: Final = 15
WIDEST_BALL: Final = 200.0
"""Rows of scores are in a ball whose squared radius is up to this many times the smallest, where
noise is cheap. No row of uncorrelated features that reach `REACH` spreads is longer."""
LONG: Final = 1.3
"""Squared norm of features, over their number, up to which rows keep their length."""

_LOGARITHMIC: Final = ("poisson", "negative_binomial", "gamma")
_MEANS: Final = (1e-10, 1e12)  # least and largest upper bound, whose means queries tell apart
_LARGEST_TARGET: Final = 1e20  # coefficients of it are far from the largest number of a query
_LARGEST_OFFSET: Final = 100.0

_SHORT: Final = 0.35  # squared norm of a row whose centre is measured, over the number of columns


def first_query(task: Study) -> ColumnMoments:
    """Return the query that measures all columns."""
    return ColumnMoments(**parts(task, (each.column() for each in task.columns)), radius=None)


def centre_query(task: "RegressionTask") -> FirstMoments:
    """Return the query for centres, to predict: rows within a ball about the bounds' middles."""
    radius = math.sqrt(_SHORT * len(task.columns))
    return FirstMoments(**parts(task, (each.column() for each in task.columns)), radius=radius)


def length_query(task: Study, columns: tuple[Column, ...]) -> NormCounts:
    """Return the query that counts rows by their norm in the units of `columns`."""
    return NormCounts(**parts(task, columns), radius=None)


def spread_query(
    task: "RegressionTask", columns: tuple[Column, ...], radius: float
) -> SecondMoments:
    """Return the query for spreads within a ball, to predict."""
    return SecondMoments(**parts(task, columns), radius=radius)


def parts(task: Study, columns: Iterable[Column], *, intercept: float = 0.0) -> dict[str, Any]:
    """Return the fields that the queries of regressions share: all but the radius."""
    return {
        "columns": tuple(columns),
        "intercept": intercept,
        "grid_bits": GRID_BITS,
        "records_per_client": task.records_per_client,
    }


def moments_query(
    task: "RegressionTask", columns: tuple[Column, ...], squared_radius: float
) -> WeightedRowMatrix:
    """Return the query for moments of rows; the radius is of constant and features, in spreads.

    `columns` are those that are regressed.
    """
    query = unweighted_moments_query(task, (*columns, *_weights(task)), squared_radius)
    return query.model_copy(update={"record_weights": task.weights is not None})


def unweighted_moments_query(
    task: Study, columns: tuple[Column, ...], squared_radius: float
) -> WeightedRowMatrix:
    """Return the same of records that count alike."""
    radius = math.sqrt(squared_radius) * math.hypot(1.0, TARGET_PART) / REACH  # of whole rows
    return WeightedRowMatrix(**parts(task, columns, intercept=CONSTANT), radius=radius)


def score_query(
    task: "RegressionTask",
    features: tuple[Column, ...],
    *,
    point: tuple[float, ...],
    basis: tuple[tuple[float, ...], ...],
    dispersion: float,
    residual_cut: float,
    squared_radius: float,
) -> ScoreSum:
    """Return the query for scores at `point`, in spreads, the constant first.

    They are of the constant and the features times `basis`, a lower triangle, in a ball whose
    `squared_radius` is in its units.
    """
    return ScoreSum(
        **parts(task, (*features, task.target.column(), *_weights(task)), intercept=CONSTANT),
        radius=math.sqrt(squared_radius) / REACH,
        family=task.family,
        basis=basis,
        point=tuple(REACH * each for each in point),
        dispersion=dispersion,
        residual_cut=residual_cut,
        record_weights=task.weights is not None,
    )


def within_reach(coefficients: Sequence[float]) -> tuple[float, ...]:
    """Return coefficients for one spread as those of a query's point, as far as it may be."""
    most = LARGEST_COORDINATE
    return tuple(min(max(REACH * each, -most), most) for each in coefficients)


def _weights(task: "RegressionTask") -> tuple[Column, ...]:
    return () if task.weights is None else (task.weights.column(),)


def default_squared_radius(task: "RegressionTask") -> float:
    """Return the squared radius of rows, in spreads; scores may have a larger one."""
    return 1.0 + LONG * len(task.predictors)


def squared_radius_of_predictions(task: "RegressionTask") -> float:
    """Return the squared radius of rows of a model that is to predict, in spreads."""
    return 1.0 + len(task.features)


def measured_terms(query: Query, *, rounds: int = 1, radius: Range | None = None) -> RoundTerms:
    """Return the terms of rounds whose columns are in units that the first round measures."""
    stretch = Range(least=SMALLEST_SPREAD, most=REACH)
    return round_terms(query, rounds=rounds, recentred=True, stretch=stretch, radius=radius)


Purpose = Literal["intervals", "prediction"]


class RegressionTask(FixedStudy):
    """Bayesian regression of `target` on `features` and a constant, by its `family`:

    - "normal": a number, linear in the features.
    - "logistic": one of two classes, the upper or the lower bound of the target.
    - "poisson", "negative_binomial": a count, whose mean's logarithm is linear.
    - "gamma": a positive number, whose mean's logarithm is linear, and to which it scatters in
      proportion.

    A first round measures centres and spreads of all columns, and later ones take rows in these
    units. So bounds that are too wide or lopsided cost precision, and change nothing else. Rows are
    weighted by their features alone, so that none is long. The second round releases moments of
    weighted rows. Three rounds of scores follow, each where those before lead to, and in a basis in
    which features are uncorrelated.

    `prior_sd` is the prior standard deviation of a coefficient, for a change of the feature by one
    of its standard deviations, in one of the target's if that is a number. `purpose` "prediction",
    of linear models alone, makes predictions err less where noise is strong: four rounds measure
    centres, lengths of rows, spreads and moments in small balls, which bounds far off the middle
    pull. Intervals may then fail, and the verdict says so.

    `offset` is a feature whose coefficient is known to be 1, as the logarithm of a time under
    observation. `weights` are what records count for, over their upper bound.

    `pooled` is a variable whose levels are features, such as the site. Their effects have a normal
    prior about their mean, whose standard deviation is learned, with a half-normal prior of one
    standard deviation of a number, or of 1 on the scale of the link.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (MeasuredRegressionPosterior,)
    example: ClassVar[str] = """\
[task]
name = "regression"
family = "normal"              # or logistic, poisson, negative_binomial, gamma

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]                       # of counts from 0; of classes the upper bound is one of them
systolic_pressure = [60, 220]

"""

    name: Literal["regression"] = "regression"
    family: TargetFamily
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=250)]
    target: ColumnBounds
    offset: ColumnBounds | None = None
    weights: ColumnBounds | None = None
    purpose: Purpose = "intervals"
    prior_sd: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 2.5
    pooled: ColumnName | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        require_features(self.predictors, self.target.name)
        names = [each.name for each in self.regressed]
        if self.weights is not None and self.weights.name in names:
            raise ValueError("weights must be neither a feature nor the target")
        if self.weights is not None and self.weights.lower < 0.0:
            raise ValueError("the lower bound of weights must be 0 or above")
        if self.family in ("poisson", "negative_binomial") and self.target.lower != 0.0:
            raise ValueError("a count's lower bound must be 0")
        if self.family == "gamma" and self.target.lower < 0.0:
            raise ValueError("the lower bound of a positive number must be 0 or above")
        if self.family in _LOGARITHMIC and not _MEANS[0] <= self.target.upper <= _MEANS[1]:
            least, most = (f"{each:g}" for each in _MEANS)
            raise ValueError(
                f"the upper bound of a count or a positive number must be from {least} to {most}: "
                "take another unit"
            )
        if max(abs(self.target.lower), abs(self.target.upper)) > _LARGEST_TARGET:
            raise ValueError(
                f"the target's bounds are beyond {_LARGEST_TARGET:g}: take another unit"
            )
        if self.family == "normal" and self.offset is not None:
            raise ValueError("a linear model has no offset: subtract it from the target")
        if self.offset is not None and not (
            -_LARGEST_OFFSET <= self.offset.lower <= self.offset.upper <= _LARGEST_OFFSET
        ):
            raise ValueError(
                f"the bounds of an offset must be within -{_LARGEST_OFFSET:g} and "
                f"{_LARGEST_OFFSET:g}: it is a logarithm"
            )
        if self.purpose == "prediction" and self.family != "normal":
            raise ValueError('purpose "prediction" is for linear models: leave it out')
        if self.purpose == "prediction" and self.weights is not None:
            raise ValueError('purpose "prediction" has no weights')
        if self.pooled is not None and not self.pooled_columns:
            raise ValueError(f"no feature is a level of {self.pooled!r}, which is to be pooled")
        if self.pooled is not None and self.purpose == "prediction":
            raise ValueError('purpose "prediction" pools nothing: leave `pooled` out')
        return self

    @property
    def codings(self) -> tuple[Coding, ...]:
        own = codings_of_target(self.family, self.target)
        if self.weights is not None and self.weights.term is None:
            own = (*own, Coding(self.weights.name, "weight"))
        return (*super().codings, *own)

    @property
    def predictors(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then the offset if there is one."""
        return self.features if self.offset is None else (*self.features, self.offset)

    @property
    def regressed(self) -> tuple[ColumnBounds, ...]:
        """The predictors, then the target."""
        return (*self.predictors, self.target)

    @property
    def pooled_columns(self) -> tuple[int, ...]:
        """Which features are levels of the pooled variable."""
        return tuple(
            place
            for place, each in enumerate(self.features)
            if each.term is not None
            and (factor := each.term.factors[0]).kind == "level"
            and len(each.term.factors) == 1
            and factor.variable == self.pooled
        )

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The columns of a client's records: those `regressed`, then weights if there are any."""
        return self.regressed if self.weights is None else (*self.regressed, self.weights)

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        if self.purpose == "prediction":
            return self._kinds_to_predict()
        as_stated = tuple(bounds.column() for bounds in self.regressed)
        moments = moments_query(self, as_stated, default_squared_radius(self))
        scores = score_query(
            self,
            as_stated[:-1],
            point=(0.0,) * len(as_stated),
            basis=(),
            dispersion=1.0,
            residual_cut=1.0,
            squared_radius=default_squared_radius(self),
        )
        assert scores.radius is not None  # noqa: S101 - so it was made
        around = Range(least=scores.radius, most=math.sqrt(WIDEST_BALL) * scores.radius)
        return (
            round_terms(first_query(self)),
            measured_terms(moments),
            measured_terms(scores, rounds=SCORE_ROUNDS, radius=around),
        )

    def _kinds_to_predict(self) -> tuple[RoundTerms, ...]:
        columns = tuple(bounds.column() for bounds in self.columns)
        lengths = length_query(self, columns)
        least, *_, most = largest_norms(lengths).tolist()
        around = Range(least=least, most=most)
        return (
            round_terms(centre_query(self)),
            round_terms(lengths, recentred=True),
            round_terms(spread_query(self, columns, most), recentred=True, radius=around),
            measured_terms(moments_query(self, columns, squared_radius_of_predictions(self))),
        )

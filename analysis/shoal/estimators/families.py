"""Estimators of distributions: probabilities, rates, means and spreads of records' columns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shoal.estimators.base import Estimator, PosteriorT
from shoal.estimators.columns import Bounds, FloatMatrix, FloatVector, matrix_of, names_of
from shoal_protocol.studies.bernoulli import BernoulliPosterior, BernoulliTask
from shoal_protocol.studies.categorical import CategoricalPosterior, CategoricalTask
from shoal_protocol.studies.multivariate_normal import (
    MultivariateNormalPosterior,
    MultivariateNormalTask,
)
from shoal_protocol.studies.normal import NormalPosterior, NormalTask
from shoal_protocol.studies.normal_mean import NormalMeanPosterior, NormalMeanTask
from shoal_protocol.studies.poisson import PoissonPosterior, PoissonTask


class Family(Estimator[PosteriorT]):
    """What all families do: `score` is the mean log likelihood of records, as density estimators'.

    Rows are arrays with one column for each of the task's, or have columns by name; of a family of
    one column a vector is rows, too.
    """

    _estimator_type: ClassVar[str] = "DensityEstimator"

    def score_samples(self, rows: Any) -> FloatVector:
        """Return the log likelihood of each row, shape (n,), at the posterior mean.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: a column is missing, or a record is none of the family's.
        """
        self._require_fit()
        columns = self.feature_names_in_.tolist()
        if len(columns) == 1 and names_of(rows) is None and np.ndim(rows) == 1:
            rows = np.reshape(rows, (-1, 1))
        return self._log_likelihoods(matrix_of(rows, columns))

    def score(self, rows: Any, targets: object = None) -> float:
        """Return the mean of `score_samples`; there are no targets.

        Raises:
            NotFittedError, ValueError: as `score_samples`.
        """
        return float(np.mean(self.score_samples(rows)))

    def _log_likelihoods(self, values: FloatMatrix) -> FloatVector:
        """Return those of `values`, shape (n, columns)."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        return tags


@dataclass(kw_only=True, eq=False, repr=False)
class Bernoulli(Family[BernoulliPosterior]):
    """The probability that a column is `success`. Parameters: see `BernoulliTask`."""

    task_type = BernoulliTask

    column: str
    success: float = 1.0
    failure: float = 0.0
    prior_successes: float = 1.0
    prior_failures: float = 1.0
    records_per_client: int = 1

    def _log_likelihoods(self, values: FloatMatrix) -> FloatVector:
        probability = float(self.posterior_.mean[0])
        logs = _log(np.array([1.0 - probability, probability]))
        return np.asarray(np.where(values[:, 0] == self.success, logs[1], logs[0]))


@dataclass(kw_only=True, eq=False, repr=False)
class Categorical(Family[CategoricalPosterior]):
    """The probabilities of a column's levels. Parameters: see `CategoricalTask`."""

    task_type = CategoricalTask

    column: str
    levels: Sequence[float]
    other: bool = True
    concentration: float = 1.0
    records_per_client: int = 1

    def _log_likelihoods(self, values: FloatMatrix) -> FloatVector:
        logs = _log(self.posterior_.mean)
        found = np.full(len(values), logs[-1] if self.other else -np.inf)
        for level, log in zip(self.levels, logs, strict=False):
            found[values[:, 0] == level] = log
        return found


@dataclass(kw_only=True, eq=False, repr=False)
class Poisson(Family[PoissonPosterior]):
    """The rate of counts up to `upper`. Parameters: see `PoissonTask`."""

    task_type = PoissonTask

    column: str
    upper: int
    prior_shape: float = 1.0
    prior_rate: float | None = None
    records_per_client: int = 1

    def _log_likelihoods(self, values: FloatMatrix) -> FloatVector:
        counts, rate = values[:, 0], float(self.posterior_.mean[0])
        if (counts < 0.0).any() or (counts != np.floor(counts)).any():
            raise ValueError("counts must be whole numbers, 0 or more")
        factorials = np.array([math.lgamma(count + 1.0) for count in counts.tolist()])
        return np.asarray(counts * math.log(rate) - rate - factorials)


@dataclass(kw_only=True, eq=False, repr=False)
class NormalMean(Family[NormalMeanPosterior]):
    """The mean of normal records of known `sd`. Parameters: see `NormalMeanTask`."""

    task_type = NormalMeanTask

    column: Bounds
    sd: float
    prior_mean: float | None = None
    prior_sd: float | None = None
    records_per_client: int = 1

    def _log_likelihoods(self, values: FloatMatrix) -> FloatVector:
        return _normal(values, self.posterior_.mean, np.array([[self.sd**2]]))


@dataclass(kw_only=True, eq=False, repr=False)
class Normal(Family[NormalPosterior]):
    """Mean and standard deviation of normal records. Parameters: see `NormalTask`."""

    task_type = NormalTask

    column: Bounds
    prior_mean: float | None = None
    prior_sd: float | None = None
    prior_freedom: float = 3.0
    prior_mean_records: float = 0.1
    intercept: float = 0.5
    grid_bits: int = 12
    records_per_client: int = 1

    def _log_likelihoods(self, values: FloatMatrix) -> FloatVector:
        mean, sd = self.posterior_.mean
        return _normal(values, np.array([mean]), np.array([[sd**2]]))


@dataclass(kw_only=True, eq=False, repr=False)
class MultivariateNormal(Family[MultivariateNormalPosterior]):
    """Means and covariance of normal records. Parameters: see `MultivariateNormalTask`."""

    task_type = MultivariateNormalTask

    variables: Bounds
    prior_means: Sequence[float] | None = None
    prior_sds: Sequence[float] | None = None
    prior_freedom: float | None = None
    prior_mean_records: float = 0.1
    intercept: float = 0.5
    grid_bits: int = 12
    records_per_client: int = 1

    def _log_likelihoods(self, values: FloatMatrix) -> FloatVector:
        means = self.posterior_.mean[: self.n_features_in_]
        return _normal(values, means, self.posterior_.covariances().mean(axis=0))


def _log(probabilities: FloatVector) -> FloatVector:
    with np.errstate(divide="ignore"):  # of 0 it is minus infinity
        return np.asarray(np.log(probabilities))


def _normal(values: FloatMatrix, mean: FloatVector, covariance: FloatMatrix) -> FloatVector:
    """Return log densities, shape (n,), of `values`, shape (n, d)."""
    root = np.linalg.cholesky(covariance)
    standard = np.linalg.solve(root, (values - mean).T)
    constant = len(mean) * math.log(2.0 * math.pi) / 2.0 + np.log(np.diagonal(root)).sum()
    return np.asarray(-constant - 0.5 * np.sum(standard**2, axis=0))

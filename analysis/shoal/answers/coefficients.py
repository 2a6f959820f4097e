"""Contrasts, differences and tests of a regression's coefficients, from its posterior alone.

from shoal.answers import contrast, wald

contrast(model, {"dose": 10.0, "age": -1.0}).interval(0.9)    # model: fitted, or its posterior
wald(model, ["age", "age2"]).p_value
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import numpy as np

from shoal.answers.estimates import Estimates, Floats, chi_square_tail
from shoal_learning.coding import near_to
from shoal_protocol.posteriors.base import RegressionPosterior


class Fitted(Protocol):
    """A fitted regression."""

    posterior_: Any


Coefficients = RegressionPosterior | Fitted

Weights = Mapping[str, float]
"""Of coefficients, by name: {"intercept": 1.0, "age": 50.0} is what is expected at an age of 50."""


@dataclass(frozen=True)
class WaldTest:
    """A Wald test: `statistic` has `degrees` degrees of freedom, and `p_value` is its tail."""

    statistic: float
    degrees: int
    p_value: float

    def __str__(self) -> str:
        return f"chi-square {self.statistic:.4g} on {self.degrees}: p = {self.p_value:.3g}"


def contrast(of: Coefficients, *weights: Weights) -> Estimates:
    """Return weighted sums of coefficients, one for each of `weights`.

    Raises:
        ValueError: there are no weights, or a name is none of the coefficients'.
    """
    posterior = _posterior(of)
    matrix = _matrix(posterior, weights)
    variance = np.einsum("ij,jk,ik->i", matrix, posterior.covariance_matrix, matrix)
    return Estimates(
        title=f"Contrasts in {posterior.title[:1].lower()}{posterior.title[1:]}",
        names=tuple(" ".join(f"{by:+g} {name}" for name, by in each.items()) for each in weights),
        mean=matrix @ posterior.mean,
        sd=np.sqrt(np.maximum(variance, 0.0)),
    )


def difference(one: Coefficients, other: Coefficients) -> Estimates:
    """Return how much larger coefficients are in `one` than in `other`.

    Within one regression take `contrast(of, {"a": 1.0, "b": -1.0})`. The posteriors are taken as
    independent: of different people, with noise of their own.

    Raises:
        ValueError: they are not of one kind of regression of one target on the same features.
    """
    one, other = _posterior(one), _posterior(other)
    names = one.names
    if one.title != other.title:
        raise ValueError(
            f"coefficients of different regressions have no difference: {one.title}, and "
            f"{other.title}"
        )
    if set(names) != set(other.names):
        apart = sorted(set(names) ^ set(other.names))
        raise ValueError(
            f"only one of the two has {', '.join(apart)}, for which its other coefficients are "
            "adjusted: fit both with the same features"
        )
    there = [other.names.index(name) for name in names]
    return Estimates(
        title=f"{one.title}: differences between two posteriors",
        names=names,
        mean=one.mean - other.mean[there],
        sd=np.hypot(one.sd, other.sd[there]),
    )


def wald(
    of: Coefficients,
    hypotheses: Sequence[str | Weights],
    values: Sequence[float] | None = None,
) -> WaldTest:
    """Test that coefficients, or weighted sums of them, all have these `values`: None, 0.

    The posterior takes the place of an estimate: a prior that decides makes the test cautious.

    Raises:
        ValueError: there is no hypothesis, a name is none of the coefficients', values are not one
            for each, or one hypothesis follows from others.
    """
    posterior = _posterior(of)
    weights = [{each: 1.0} if isinstance(each, str) else each for each in hypotheses]
    matrix = _matrix(posterior, weights)
    supposed = np.zeros(len(matrix)) if values is None else np.asarray(values, dtype=np.float64)
    if supposed.shape != (len(matrix),):
        raise ValueError("there must be one value for each hypothesis")
    away = matrix @ posterior.mean - supposed
    covariance = matrix @ posterior.covariance_matrix @ matrix.T
    scale = np.sqrt(np.maximum(np.diagonal(covariance), 1e-300))
    correlations = covariance / np.outer(scale, scale)
    if np.linalg.matrix_rank(correlations, tol=1e-10) < len(matrix):
        raise ValueError("one hypothesis follows from the others: leave it out")
    statistic = float(away / scale @ np.linalg.solve(correlations, away / scale))
    return WaldTest(statistic, len(matrix), chi_square_tail(statistic, len(matrix)))


def _posterior(of: Coefficients) -> RegressionPosterior:
    found: Any = of if isinstance(of, RegressionPosterior) else getattr(of, "posterior_", of)
    if not hasattr(found, "covariance_matrix"):
        raise ValueError("coefficients are of a fitted regression, or of its posterior")
    posterior: RegressionPosterior = found
    return posterior


def _matrix(posterior: RegressionPosterior, weights: Sequence[Any]) -> Floats:
    if not weights or not all(weights):
        raise ValueError("name one coefficient at least")
    matrix = np.zeros((len(weights), len(posterior.names)))
    for row, each in zip(matrix, weights, strict=True):
        if not isinstance(each, Mapping) or not all(isinstance(by, Real) for by in each.values()):
            raise ValueError(
                'a contrast is weights of coefficients by name, which are numbers: {"age": 10.0}'
            )
        for name, by in each.items():
            if name not in posterior.names:
                those = f"{', '.join(posterior.names)}{near_to(name, posterior.names)}"
                raise ValueError(f"there is no coefficient {name!r}: there are {those}")
            row[posterior.names.index(name)] = by
    return matrix

"""Posteriors of the probabilities of cells, as mixtures of Dirichlet distributions."""

import math
from typing import Annotated, Final, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.wire.numbers import Count, PositiveSize

_POINTS: Final = 601
_NEGLIGIBLE: Final = 1e-7


class DirichletMixture(BasePosterior):
    """An even mixture of Dirichlet distributions over the cells of `column`.

    Each row of `counts` holds true counts as they may have been, drawn given the noisy ones; a
    component's parameters are these plus `concentration`. `names` are those of the cells.
    """

    variable = "probabilities"
    dimension = "cell"

    column: str
    counts: Annotated[tuple[tuple[Count, ...], ...], Field(min_length=1)]
    concentration: PositiveSize

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        if {len(row) for row in self.counts} != {len(self.names)}:
            raise ValueError("each row of counts must have one number for each cell")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record."""
        return (self.column,)

    @property
    def mean(self) -> FloatVector:
        alphas = self._alphas
        return np.asarray(np.mean(alphas / alphas.sum(axis=1, keepdims=True), axis=0))

    @property
    def sd(self) -> FloatVector:
        alphas = self._alphas
        totals = alphas.sum(axis=1, keepdims=True)
        shares = alphas / totals
        within = np.mean(shares * (1.0 - shares) / (totals + 1.0), axis=0)
        return np.asarray(np.sqrt(within + np.var(shares, axis=0)))

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        alphas = self._alphas
        rest = alphas.sum(axis=1, keepdims=True) - alphas
        pairs = zip(alphas.T, rest.T, strict=True)
        return np.array([_beta_quantiles(*pair, [low, high]) for pair in pairs])

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of the probabilities, shape (count, k): no privacy depends on them.

        The mixture's components take turns.
        """
        alphas = self._alphas
        gammas: FloatMatrix = generator.standard_gamma(alphas[np.arange(count) % len(alphas)])
        # A cell of tiny concentration may underflow to zero, but never do all of them.
        draws: FloatMatrix = gammas / gammas.sum(axis=1, keepdims=True)
        return draws

    def predict(self) -> FloatVector:
        """Return the probability of each cell for a new record, shape (k,)."""
        return self.mean

    @property
    def _alphas(self) -> FloatMatrix:
        return np.array(self.counts, dtype=np.float64) + self.concentration


def _beta_quantiles(first: FloatVector, second: FloatVector, levels: list[float]) -> FloatVector:
    """Return quantiles of the even mixture of Beta(first, second), shapes (m,).

    By the trapezoidal rule in the logit, on a grid that is narrowed to where the mass is.
    """
    parameters, counts = np.unique(np.column_stack([first, second]), axis=0, return_counts=True)
    norms = np.log(counts) + [
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) for a, b in parameters.tolist()
    ]
    reach = 12.0 * np.sum(parameters**-0.5 + 1.0 / parameters, axis=1)
    centres = np.log(parameters[:, 0] / parameters[:, 1])
    low = max(float(np.min(centres - reach)), -700.0)
    high = min(float(np.max(centres + reach)), 700.0)
    logits, cumulative = np.zeros(0), np.zeros(0)
    for _ in range(3):
        logits = np.linspace(low, high, _POINTS)
        success, failure = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
        logs = norms + np.column_stack([success, failure]) @ parameters.T
        density = np.exp(logs - logs.max()).sum(axis=1)
        steps = (density[1:] + density[:-1]) / 2.0
        cumulative = np.concatenate([[0.0], np.cumsum(steps)]) / steps.sum()
        inside = np.flatnonzero((cumulative > _NEGLIGIBLE) & (cumulative < 1.0 - _NEGLIGIBLE))
        low = float(logits[max(inside[0] - 1, 0)]) if inside.size else low
        high = float(logits[min(inside[-1] + 1, _POINTS - 1)]) if inside.size else high
    rising = np.concatenate([[True], np.diff(cumulative) > 0.0])
    places = np.interp(levels, cumulative[rising], logits[rising])
    return np.asarray(np.exp(-np.logaddexp(0.0, -places)))

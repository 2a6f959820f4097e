"""Posteriors of a single parameter, by a table of its quantiles.

The quantiles are at the levels of normal scores from -5 to 5, so a normal posterior is a straight
line between any two of them, and others nearly are.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Annotated, Final

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.wire.numbers import Finite, Size

_STANDARD: Final = NormalDist()
_SCORES: Final = np.linspace(-5.0, 5.0, 161)

QUANTILE_LEVELS: Final = np.array([_STANDARD.cdf(score) for score in _SCORES.tolist()])
"""The levels that the quantiles of a tabulated posterior are at, shape (161,)."""


def scored_quantiles(quantiles: Sequence[float], high: float) -> FloatVector:
    """Return those at 1 - `high` and `high`, shape (2,), of a table at `QUANTILE_LEVELS`."""
    reach = _STANDARD.inv_cdf(high)
    return np.interp([-reach, reach], _SCORES, quantiles)


class TabulatedPosterior(BasePosterior):
    """Base of the posteriors of a single parameter of `column`'s records.

    `quantiles` are at `QUANTILE_LEVELS`. Records' scatter, the bounds' cut and the privacy noise
    are accounted for.
    """

    column: str
    quantiles: Annotated[tuple[Finite, ...], Field(min_length=161, max_length=161)]
    average: Finite
    deviation: Size

    @model_validator(mode="after")
    def _ordered(self) -> "TabulatedPosterior":
        if np.any(np.diff(self.quantiles) < 0.0):
            raise ValueError("quantiles must not fall")
        if len(self.names) != 1:
            raise ValueError("quantiles are those of a single parameter")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record."""
        return (self.column,)

    @property
    def mean(self) -> FloatVector:
        return np.array([self.average])

    @property
    def sd(self) -> FloatVector:
        return np.array([self.deviation])

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        return scored_quantiles(self.quantiles, high)[None]

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        scores = generator.standard_normal(count)
        return np.interp(scores, _SCORES, self.quantiles)[:, None]

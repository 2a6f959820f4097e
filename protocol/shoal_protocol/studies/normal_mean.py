"""A mean: of normal records whose standard deviation is known."""

import math
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.tabulated import TabulatedPosterior
from shoal_protocol.queries import FirstMoments
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.one_round import (
    SUM_BITS,
    DistributionStudy,
    normal_log_densities,
    require_near,
)
from shoal_protocol.wire.numbers import Positive, Real


class NormalMeanPosterior(TabulatedPosterior):
    """Of the mean of normal records of known standard deviation."""

    name: Literal["normal_mean"] = "normal_mean"
    names: tuple[str, ...] = ("mean",)
    known_sd: Positive

    def predict(self) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of a new record, not cut, shapes (1,)."""
        return self.mean, np.array([math.hypot(self.known_sd, self.deviation)])


class NormalMeanTask(DistributionStudy):
    """The mean of normal records of known standard deviation `sd`, cut to the column's bounds.

    Prior: normal; None makes its mean the middle of the bounds, its standard deviation half their
    range. The posterior knows of the cut.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (NormalMeanPosterior,)
    example: ClassVar[str] = """\
[task]
name = "normal_mean"
sd = 15                        # known, from general knowledge

[columns]                      # public bounds, from general knowledge, never from the data
systolic_pressure = [60, 220]
"""

    name: Literal["normal_mean"] = "normal_mean"
    column: ColumnBounds
    sd: Positive
    prior_mean: Real | None = None
    prior_sd: Positive | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "NormalMeanTask":
        require_near([self.column] * 2, [self.prior_mean] * 2, [self.sd, self.prior_sd])
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (self.column,)

    def query(self) -> FirstMoments:
        """Return the query of the only round."""
        return FirstMoments(
            columns=self._query_columns(),
            intercept=0.0,
            radius=None,
            grid_bits=SUM_BITS,
            records_per_client=self.records_per_client,
        )

    def log_likelihoods(self, posterior: Any, values: FloatMatrix) -> FloatVector:
        return normal_log_densities(values, posterior.mean, np.array([[self.sd**2]]))

"""A rate: the mean of counts that follow a Poisson distribution."""

import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.tabulated import TabulatedPosterior
from shoal_protocol.queries import FirstMoments
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.studies.one_round import SUM_BITS, DistributionStudy, Pseudocount
from shoal_protocol.trust.codings import Coding


class PoissonPosterior(TabulatedPosterior):
    """Of the rate of a Poisson distribution."""

    name: Literal["poisson"] = "poisson"
    names: tuple[str, ...] = ("rate",)

    def predict(self) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of a new record, not cut, shapes (1,)."""
        return self.mean, np.array([math.sqrt(self.average + self.deviation**2)])


class PoissonTask(DistributionStudy):
    """The rate of counts that are cut to `upper`, which the posterior knows.

    Prior: gamma with shape `prior_shape` and rate `prior_rate`, its mean their quotient; None
    makes that mean half the bound. Noise grows with the bound, and beyond it nothing is told
    apart: about the largest count that is likely is a good choice.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (PoissonPosterior,)
    example: ClassVar[str] = """\
[task]
name = "poisson"
column = "visits"
upper = 20                     # counts are cut to it, and noise grows with it
"""

    name: Literal["poisson"] = "poisson"
    column: ColumnName
    upper: Annotated[int, Field(ge=1, le=10_000, strict=True)]
    prior_shape: Pseudocount = 1.0
    prior_rate: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "PoissonTask":
        self.columns[0].column()
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (ColumnBounds(name=self.column, lower=0.0, upper=float(self.upper)),)

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (Coding(self.column, "count"),)

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
        counts, rate = values[:, 0], float(posterior.mean[0])
        factorials = np.array([math.lgamma(count + 1.0) for count in counts.tolist()])
        return np.asarray(counts * math.log(rate) - rate - factorials)

"""A mean and a standard deviation, of normal records in one column."""

from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.draws import NormalDrawsPosterior
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.one_round import (
    NormalStudy,
    normal_log_densities,
    require_near,
)
from shoal_protocol.wire.numbers import Positive, Real


class NormalPosterior(NormalDrawsPosterior):
    """Of mean and standard deviation of the records of `column`."""

    name: Literal["normal"] = "normal"
    column: str

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.names != ("mean", "sd"):
            raise ValueError("the parameters of a normal posterior are mean and sd")
        return self

    @classmethod
    def of(cls, column: str, draws: FloatMatrix, *, divergences: int, records: int) -> Self:
        """Return the posterior of `draws`, shape (chains, draws, 2), thinned as need be."""
        return cls._thinned(
            draws, names=("mean", "sd"), column=column, divergences=divergences, records=records
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record."""
        return (self.column,)


class NormalTask(NormalStudy):
    """Mean and standard deviation of normal records in one column.

    Prior: normal-inverse-Wishart, here normal-inverse-gamma, around `prior_mean` (None: the middle
    of the bounds) and `prior_sd` (None: a third of half their range). The bounds' cut is not
    modelled: choose bounds that records hardly ever pass.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (NormalPosterior,)
    example: ClassVar[str] = """\
[task]
name = "normal"

[columns]                      # public bounds that records hardly ever pass
systolic_pressure = [60, 220]
"""

    name: Literal["normal"] = "normal"
    column: ColumnBounds
    prior_mean: Real | None = None
    prior_sd: Positive | None = None
    prior_freedom: Annotated[float, Field(ge=1.0, le=1e6, allow_inf_nan=False)] = 3.0

    @model_validator(mode="after")
    def _consistent(self) -> "NormalTask":
        require_near([self.column], [self.prior_mean], [self.prior_sd])
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (self.column,)

    def log_likelihoods(self, posterior: Any, values: FloatMatrix) -> FloatVector:
        mean, sd = posterior.mean
        return normal_log_densities(values, np.array([mean]), np.array([[sd**2]]))

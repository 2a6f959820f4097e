"""Means, standard deviations and correlations of normal records, in one column or in several."""

import itertools
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from shoal_protocol.queries.columns import ColumnBounds, distinct
from shoal_protocol.queries.design import Floats
from shoal_protocol.wire.encoding import Positive, Real
from shoal_studies.catalogue.study import (
    NormalStudy,
    require_near,
)
from shoal_studies.posteriors.base import BasePosterior
from shoal_studies.posteriors.forms import NormalDrawsPosterior


class NormalPosterior(NormalDrawsPosterior):
    """Of mean and standard deviation of the records of `column`."""

    name: Literal["normal"] = "normal"

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.names != ("mean", "sd"):
            raise ValueError("the parameters of a normal posterior are mean and sd")
        return self


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

[column]                       # public bounds that records hardly ever pass
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


class MultivariateNormalPosterior(NormalDrawsPosterior):
    """Of means, standard deviations and correlations of the records of `columns`."""

    name: Literal["multivariate_normal"] = "multivariate_normal"
    columns: Annotated[tuple[str, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.names != parameter_names(self.columns):
            raise ValueError("the parameters are means, standard deviations and correlations")
        return self

    def covariances(self) -> Floats:
        """Return the draws of the covariance matrix, shape (draws, d, d)."""
        size = len(self.columns)
        correlations = np.zeros((len(self.draws), size, size))
        rows, columns = np.triu_indices(size, 1)
        correlations[:, rows, columns] = self.draws[:, 2 * size :]
        correlations += np.swapaxes(correlations, 1, 2) + np.eye(size)
        sds = self.draws[:, size : 2 * size]
        return np.asarray(correlations * sds[:, :, None] * sds[:, None, :])


class MultivariateNormalTask(NormalStudy):
    """Mean and covariance of normal records in several columns.

    Prior: normal-inverse-Wishart around `prior_means` (None: the middles of the bounds) and
    uncorrelated columns of `prior_sds` (None: thirds of half the ranges); `prior_freedom` None
    makes it the number of columns plus two. The bounds' cut is not modelled: choose bounds that
    records hardly ever pass.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (MultivariateNormalPosterior,)
    example: ClassVar[str] = """\
[task]
name = "multivariate_normal"

[variables]                    # public bounds that records hardly ever pass
age = [18, 100]
systolic_pressure = [60, 220]
"""

    name: Literal["multivariate_normal"] = "multivariate_normal"
    variables: Annotated[
        tuple[ColumnBounds, ...], Field(min_length=2, max_length=12), AfterValidator(distinct)
    ]
    prior_means: tuple[Real, ...] | None = None
    prior_sds: tuple[Positive, ...] | None = None
    prior_freedom: Annotated[float, Field(ge=1.0, le=1e6, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> "MultivariateNormalTask":
        size = len(self.variables)
        for prior in (self.prior_means, self.prior_sds):
            if prior is not None and len(prior) != size:
                raise ValueError("prior_means and prior_sds must have one number for each column")
        if self.prior_freedom is not None and self.prior_freedom <= size - 1:
            raise ValueError("prior_freedom must be above the number of columns less one")
        means, sds = (prior or [None] * size for prior in (self.prior_means, self.prior_sds))
        require_near(self.variables, means, sds)
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The columns of a client's records, in order."""
        return self.variables


def parameter_names(variables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a multivariate normal's parameters, in the order of the draws."""
    return (
        *(f"mean[{each}]" for each in variables),
        *(f"sd[{each}]" for each in variables),
        *(f"correlation[{one}, {other}]" for one, other in itertools.combinations(variables, 2)),
    )

"""Posteriors of normal means and covariances, by draws; they know neither sums nor noise."""

import itertools
from abc import abstractmethod
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import FloatMatrix, FloatVector
from shoal_protocol.posteriors.draws import DrawsPosterior


class _NormalDraws(DrawsPosterior):
    """What both normal families share: the parameters are means, then standard deviations.

    Records' scatter and the privacy noise are accounted for, the bounds' cut is not. Every draw is
    of a positive definite covariance.
    """

    def predict(self) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of a new record's columns, not cut, shapes (d,)."""
        size = len(self.columns)
        means, sds = self._flat[:, :size], self._flat[:, size : 2 * size]
        return means.mean(axis=0), np.sqrt(np.mean(sds**2, axis=0) + means.var(axis=0))

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record."""


class NormalPosterior(_NormalDraws):
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


class MultivariateNormalPosterior(_NormalDraws):
    """Of means, standard deviations and correlations of the records of `variables`."""

    name: Literal["multivariate_normal"] = "multivariate_normal"
    variables: Annotated[tuple[str, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.names != parameter_names(self.variables):
            raise ValueError("the parameters are means, standard deviations and correlations")
        return self

    @classmethod
    def of(
        cls, variables: tuple[str, ...], draws: FloatMatrix, *, divergences: int, records: int
    ) -> Self:
        """Return the posterior of `draws`, shape (chains, draws, k), thinned as need be."""
        return cls._thinned(
            draws,
            names=parameter_names(variables),
            variables=variables,
            divergences=divergences,
            records=records,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record."""
        return self.variables

    def covariances(self) -> FloatMatrix:
        """Return the draws of the covariance matrix, shape (draws, d, d)."""
        size = len(self.variables)
        correlations = np.zeros((len(self._flat), size, size))
        rows, columns = np.triu_indices(size, 1)
        correlations[:, rows, columns] = self._flat[:, 2 * size :]
        correlations += np.swapaxes(correlations, 1, 2) + np.eye(size)
        sds = self._flat[:, size : 2 * size]
        return np.asarray(correlations * sds[:, :, None] * sds[:, None, :])


def parameter_names(variables: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a multivariate normal's parameters, in the order of the draws."""
    return (
        *(f"mean[{each}]" for each in variables),
        *(f"sd[{each}]" for each in variables),
        *(f"correlation[{one}, {other}]" for one, other in itertools.combinations(variables, 2)),
    )

"""Proportions: how likely a record has each of some values of a column."""

from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.dirichlet_mixture import DirichletMixture
from shoal_protocol.queries import Counts
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.studies.cells import CellStudy
from shoal_protocol.studies.one_round import (
    COUNT_BITS,
    Labels,
    and_others,
    called,
    log_probabilities,
    spanning,
)
from shoal_protocol.trust.codings import Coding
from shoal_protocol.wire.numbers import Real


class CategoricalPosterior(DirichletMixture):
    """Of the probabilities of the levels in order, then of "other" if the task counted it."""

    name: Literal["categorical"] = "categorical"


class CategoricalTask(CellStudy):
    """The probabilities of the public `levels` of `column`, which `labels` may name.

    Values that are no level make up a cell of their own, "other". Without `other` the analyst
    states that there are none: should there be, they are counted nowhere, and the posterior takes
    what is missing for noise. Prior: Dirichlet, `concentration` for each cell.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (CategoricalPosterior,)
    example: ClassVar[str] = """\
[task]
name = "categorical"
column = "stage"
levels = [1, 2, 3, 4]          # of a text: places in the dictionary, from 0, and their `labels`.
                               # Values that are none of them are counted as "other"
"""

    name: Literal["categorical"] = "categorical"
    levels: Annotated[tuple[Real, ...], Field(min_length=2, max_length=255)]
    labels: Labels = ()
    other: bool = True

    @model_validator(mode="after")
    def _consistent(self) -> "CategoricalTask":
        if len(set(self.levels)) != len(self.levels):
            raise ValueError("two levels are the same")
        called(self.levels, self.labels)
        self.columns[0].column()
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (spanning(self.column, self.levels),)

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (Coding(self.column, "levels", self.levels),)

    @property
    def cells(self) -> tuple[str, ...]:
        names = called(self.levels, self.labels)
        return and_others(names) if self.other else names

    def query(self) -> Counts:
        """Return the query of the only round."""
        return Counts(
            columns=self._query_columns(),
            levels=self.levels,
            other=self.other,
            grid_bits=COUNT_BITS,
            records_per_client=self.records_per_client,
        )

    def posterior(self, counts: NDArray[np.int64]) -> CategoricalPosterior:
        return CategoricalPosterior(**self._mixture(counts))

    def log_likelihoods(self, posterior: Any, values: FloatMatrix) -> FloatVector:
        logs = log_probabilities(posterior.mean)
        found = np.full(len(values), logs[-1] if self.other else -np.inf)
        for level, log in zip(self.levels, logs, strict=False):
            found[values[:, 0] == level] = log
        return found

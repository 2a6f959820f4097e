"""A proportion: how likely a record has one value of a column."""

import math
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.tabulated import TabulatedPosterior
from shoal_protocol.queries import Counts
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.studies.one_round import (
    COUNT_BITS,
    DistributionStudy,
    Pseudocount,
    log_probabilities,
    spanning,
)
from shoal_protocol.trust.codings import Coding
from shoal_protocol.wire.numbers import Real


class BernoulliPosterior(TabulatedPosterior):
    """Of the probability that a record of `column` is a success."""

    name: Literal["bernoulli"] = "bernoulli"
    names: tuple[str, ...] = ("probability",)

    def predict(self) -> tuple[FloatVector, FloatVector]:
        """Return mean and standard deviation of whether a new record succeeds, shapes (1,)."""
        return self.mean, np.array([math.sqrt(max(self.average * (1.0 - self.average), 0.0))])


class BernoulliTask(DistributionStudy):
    """The probability that `column` is `success`; whatever is anything else is a failure.

    Prior: Beta(prior_successes, prior_failures). `failure` is what the column is otherwise, for
    those who read the task.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (BernoulliPosterior,)
    example: ClassVar[str] = """\
[task]
name = "bernoulli"
column = "smoker"
success = 1                    # whatever else the column holds is a failure
failure = 0
"""

    name: Literal["bernoulli"] = "bernoulli"
    column: ColumnName
    success: Real = 1.0
    failure: Real = 0.0
    prior_successes: Pseudocount = 1.0
    prior_failures: Pseudocount = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> "BernoulliTask":
        if self.success == self.failure:
            raise ValueError("success and failure must be two values")
        self.columns[0].column()
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The one column of a client's records."""
        return (spanning(self.column, (self.failure, self.success)),)

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (Coding(self.column, "outcome", (self.failure, self.success)),)

    def query(self) -> Counts:
        """Return the query of the only round."""
        return Counts(
            columns=self._query_columns(),
            levels=(self.success,),
            other=True,
            grid_bits=COUNT_BITS,
            records_per_client=self.records_per_client,
        )

    def log_likelihoods(self, posterior: Any, values: FloatMatrix) -> FloatVector:
        probability = float(posterior.mean[0])
        logs = log_probabilities(np.array([1.0 - probability, probability]))
        return np.asarray(np.where(values[:, 0] == self.success, logs[1], logs[0]))

"""Shared base of the posteriors of normal families, which consist of draws."""

from abc import abstractmethod

import numpy as np

from shoal_protocol.posteriors.base import FloatVector
from shoal_protocol.posteriors.draws import DrawsPosterior


class NormalDrawsPosterior(DrawsPosterior):
    """Draws of the means of some columns, then of their standard deviations, then of others.

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

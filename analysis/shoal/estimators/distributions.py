"""Estimators of distributions: probabilities, rates, means and spreads of records' columns."""

from typing import Any

import numpy as np

from shoal.answers import Answers
from shoal.estimators.base import Estimator, PosteriorT
from shoal.estimators.columns import FloatVector, matrix_of
from shoal_protocol.posteriors.base import names_of
from shoal_protocol.studies.moments import MomentsPosterior, MomentsTask
from shoal_protocol.studies.study import DistributionStudy


class Distribution(Estimator[PosteriorT]):
    """`score` is the mean log likelihood of records, as density estimators'.

    Rows are arrays with one column for each of the task's, or have columns by name; of a
    distribution of one column a vector is rows, too.
    """

    _kind = "density_estimator"

    def score_samples(self, rows: Any) -> FloatVector:
        """Return the log likelihood of each row, shape (n,), at the posterior mean.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: a column is missing, or a record is none of the distribution's.
        """
        self._require_fit()
        columns = self.feature_names_in_.tolist()
        if len(columns) == 1 and names_of(rows) is None and np.ndim(rows) == 1:
            rows = {columns[0]: rows}
        task = self.to_task(self._variables)
        assert isinstance(task, DistributionStudy)  # noqa: S101 - by `estimator_of`
        values = matrix_of(rows, columns, self._variables)
        for coding in task.codings:
            fault = coding.fault_of(values[:, columns.index(coding.variable)])
            if fault is not None and coding.kind != "levels":  # rows need not have all of them
                raise ValueError(fault)
        return task.log_likelihoods(self.posterior_, values)

    def score(self, rows: Any, targets: object = None) -> float:
        """Return the mean of `score_samples`; there are no targets.

        Raises:
            NotFittedError, ValueError: as `score_samples`.
        """
        return float(np.mean(self.score_samples(rows)))


class Moments(Estimator[MomentsPosterior]):
    """Second moments of many columns, bought once. Parameters: see `MomentsTask`.

    model = Moments(columns={"age": (18, 90), "dose": (0, 10), "pressure": (80, 180)})
    model.fit(federation).answers_.linear_model("pressure", ["age"])

    `answers_` gives regressions, correlations and components at no further price.
    """

    task_type = MomentsTask

    @property
    def answers_(self) -> Answers:
        """What the fitted moments tell.

        Raises:
            NotFittedError: nothing was learned yet.
        """
        self._require_fit()
        return Answers.of(self.posterior_)

"""Estimators that crowds learn by Draw and Discard: coefficients and predictions, no posterior.

They have neither intervals nor standard deviations: what error to expect, `shoal plan` says.
"""

from typing import TYPE_CHECKING, Any, Self

from numpy.typing import NDArray

from shoal import plots
from shoal.estimators.columns import FloatVector
from shoal.estimators.parameters import require_fits
from shoal.estimators.predicting import BinaryClassifier, Predictor
from shoal.jobs.analyst import CrowdJob
from shoal.jobs.federation import LearningCrowd
from shoal.jobs.job_failures import JobFailed
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_studies.crowds.simulation import CrowdModel, SimulatedCrowd
from shoal_studies.posteriors.summaries import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class CrowdRegression(Predictor):
    """A regression that a crowd learns. Parameters: see `CrowdTask`; `epsilon` is of one step.

    After `fit`: `model_`, `coef_`, shape (m,), and `intercept_`, both in the units of the data,
    `n_features_in_` and `feature_names_in_`.
    """

    task_type = CrowdTask
    _fixed = frozenset({"family"})
    _learned_attribute = "model_"

    def fit(self, crowd: LearningCrowd, targets: object = None) -> Self:
        """Learn the task by a crowd, real or simulated, and return the estimator.

        There are no `targets`: the crowd's records hold them.

        Raises:
            ValueError: a parameter is not usable, or `crowd` is none.
            JobFailed: nobody contributed.
            JobRefused, JobInterrupted, Unavailable: as `CrowdFederation.submit` and
                `CrowdJob.wait`.
        """
        require_fits(crowd, targets, crowd=True)
        there, task = self._task_for(crowd)
        if not isinstance(there, SimulatedCrowd):
            return self._take(there.submit(task).wait())
        self._take(there.learn(task))
        self._beyond = there.beyond(task)
        return self

    def fit_from(self, job: CrowdJob) -> Self:
        """Fit by a job that was opened earlier, `CrowdFederation.resume(id)`; waits for its end.

        Raises:
            ValueError: a parameter is not usable, or the job is of another task.
            JobFailed, JobInterrupted, Unavailable: as `fit`.
        """
        (_, task), model = self._task_for(job), job.wait()
        self._require_same(task, model.task)
        return self._take(model)

    def _take(self, model: CrowdModel) -> Self:
        if not model.contributions:
            raise JobFailed(
                "nobody contributed: agents' logs say whether they refused the job, or whether "
                "no client or record had enough epsilon left for it"
            )
        self._beyond = ()
        self.model_ = model
        self.intercept_, self.coef_ = model.coefficients[0], model.coefficients[1:]
        self._features, self._target = model.task.features, model.task.target
        self._take_names(model.task.features)
        return self

    def predict(self, rows: object) -> NDArray[Any]:
        """Return the expected target of each row, shape (n,); of two classes the more probable.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: a column is missing, or the rows cannot be used.
        """
        return self._decided(self._means(rows))

    def _means(self, rows: object) -> FloatVector:
        return self.model_.predict(self._table(rows))

    def summary(self) -> Summary:
        """Return the coefficients and what they cost, as `CrowdModel.summary`.

        After a simulation it says of which columns values lie beyond the bounds.

        Raises:
            NotFittedError: nothing was learned yet.
        """
        beyond = [("Beyond bounds", "; ".join(self._beyond))] if self._beyond else []
        return self.model_.summary().with_facts(*beyond)

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw the normalised weights of every instance, and their average.

        Raises:
            NotFittedError: nothing was learned yet.
            ImportError: matplotlib is not installed.
        """
        return plots.instances(self.model_, axes)


class CrowdLinearRegression(CrowdRegression):
    """Linear regression that a crowd learns; `score` is R^2."""

    family = "linear"
    _centres_target = True


class CrowdPoissonRegression(CrowdRegression):
    """Poisson regression of counts that a crowd learns; `score` is D^2, of the deviance."""

    family = "poisson"
    _from_zero = True


class CrowdLogisticRegression(BinaryClassifier, CrowdRegression):
    """Logistic regression that a crowd learns; `score` is the accuracy. A target is 0 or 1."""

    family = "logistic"

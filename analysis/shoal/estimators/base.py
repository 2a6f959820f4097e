"""Base class of all estimators: parameters, a fit on a federation, and fitted attributes.

It follows scikit-learn's conventions without importing it: parameters are stored as given and
checked by `fit`, fitted attributes end in an underscore, and `sklearn.base.clone` works.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import numpy as np

from shoal import plots
from shoal.estimators.parameters import Parameters, require_fits
from shoal.jobs.analyst import Job
from shoal.jobs.federation import Learning
from shoal.plots import Scale
from shoal_protocol.privacy.job_costs import PrivacySpent
from shoal_protocol.queries.columns import variables_of
from shoal_protocol.wire.errors import MalformedDocument
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.posteriors.base import LEVEL
from shoal_studies.posteriors.summaries import Summary
from shoal_studies.registry import Posterior, Task
from shoal_studies.simulation import SimulatedFederation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PosteriorT = TypeVar("PosteriorT", bound=Posterior)


class Estimator(Parameters, Generic[PosteriorT]):
    """A task's parameters, to be learned by `fit`.

    After `fit`: `posterior_`, `privacy_` (what it cost each client), `report_` (the trainer's,
    verified; None after a simulation), `n_features_in_` and `feature_names_in_`.
    """

    posterior_: PosteriorT
    privacy_: PrivacySpent
    report_: PosteriorReport | None
    _job: Job | None = None
    _beyond: tuple[str, ...] = ()

    def fit(self, federation: Learning, targets: object = None) -> Self:
        """Learn the task on a federation, real or simulated, and return the estimator.

        There are no `targets`: the federation's records hold them.

        Raises:
            ValueError: a parameter is not usable, or `federation` is no federation. Nothing was
                spent.
            JobRefused, OutOfBudget, JobFailed, JobInterrupted, Unavailable: as `Federation.submit`
                and `Job.wait`.
        """
        require_fits(federation, targets)
        there, task = self._task_for(federation)
        if not isinstance(there, SimulatedFederation):
            return self._take_job(task, there.submit(task))
        simulated = there.learn(task)
        self._beyond = simulated.beyond
        return self._take(task, simulated.posterior, simulated.privacy)

    def fit_from(self, job: Job) -> Self:
        """Fit by a job that was submitted earlier, `Federation.resume(id)`; waits for its end.

        Raises:
            ValueError: a parameter is not usable, or the job is of another task.
            JobFailed, JobInterrupted, Unavailable: as `Job.wait`.
        """
        (_, task), had = self._task_for(job), job.request().task
        if had.name != task.name:
            raise ValueError(f"the job's task is another one: {had.name}")
        self._require_same(task, had)
        return self._take_job(task, job)

    def _take_job(self, task: Task, job: Job) -> Self:
        report = job.wait()
        self._take(task, report.posterior, report.privacy, report)
        self._job, self._beyond = job, ()
        return self

    def _take(
        self,
        task: Task,
        posterior: Posterior,
        privacy: PrivacySpent,
        report: PosteriorReport | None = None,
    ) -> Self:
        if not task.ends_with(posterior):
            raise MalformedDocument("the posterior is none of those that the task may end with")
        self.posterior_ = cast(PosteriorT, posterior)
        self.privacy_ = privacy
        self.report_ = report
        self._job = None
        self._task = task
        names = variables_of(self._inputs)
        self.n_features_in_ = len(names)
        self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def certificate(self) -> bytes | None:
        """Return the job's release certificate, verified; None after a simulation.

        Raises:
            NotFittedError: there is no job yet.
            ValueError: the estimator is a copy, which has no connection.
            Unavailable, ProtocolError: as `Job.certificate`.
        """
        if self._job is not None:
            return self._job.certificate()
        if self.report_ is None:
            return None
        raise ValueError(
            "a copied or unpickled estimator has no connection: fetch the certificate by "
            "`shoal certificate fetch`, or by `fit_from(federation.resume(report_.job))`"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle keeps: all but the connection to the job."""
        return {name: value for name, value in vars(self).items() if name != "_job"}

    def plot(
        self,
        axes: "Axes | None" = None,
        *,
        level: float = LEVEL,
        names: Sequence[str] | None = None,
        scale: Scale | None = None,
    ) -> "Axes":
        """Draw the posterior with what it cost, as `shoal.plots.draw`, and return the axes.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError, ImportError: as `shoal.plots.draw`.
        """
        return plots.draw(
            self.posterior_, axes, level=level, names=names, caption=self._caption, scale=scale
        )

    def summary(self, level: float = LEVEL) -> Summary:
        """Return means, standard deviations and intervals, and what they cost.

        After a simulation "Beyond bounds" says of which columns more than one value in a hundred
        lies beyond the bounds, and is cut to them; no federation of others' records can tell.

        Raises:
            NotFittedError: nothing was learned yet.
            ValueError: `level` is not strictly between 0 and 1.
        """
        if self.report_ is not None:
            return self.report_.summary(level)
        price = f"{self.privacy_}, had this not been a simulation"
        beyond = [("Beyond bounds", "; ".join(self._beyond))] if self._beyond else []
        return self.posterior_.summary(level).with_facts(*beyond, ("Simulated", price))

    @property
    def _caption(self) -> str:
        return f"{self.privacy_}{'' if self.report_ is not None else '; simulated'}"

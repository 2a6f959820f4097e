"""The estimator of second moments, which answers many questions afterwards."""

from shoal.answers import Answers
from shoal.estimators.base import Estimator
from shoal_studies.catalogue.moments import MomentsPosterior, MomentsTask


class Moments(Estimator[MomentsPosterior]):
    """Second moments of many columns, bought once. Parameters: see `MomentsTask`.

    model = Moments(columns={"age": (18, 90), "dose": (0, 10), "pressure": (80, 180)})
    model.fit(federation).answers_.linear_model("pressure", ["age"])

    `answers_` gives regressions on any of the columns at no further price.
    """

    task_type = MomentsTask

    @property
    def answers_(self) -> Answers:
        """What the fitted moments tell.

        Raises:
            NotFittedError: nothing was learned yet.
        """
        return Answers.of(self.posterior_)

"""Many answers from one purchase: what a released matrix of moments tells, at no further price.

from shoal.answers import Answers

answers = Answers(report.posterior)    # of a job of the study "moments", or model.answers_
answers.linear_model("pressure", ["age", "dose"]).summary()
answers.compare("pressure", [["age"], ["age", "dose"]])

All is computed from the posterior in the job's certificate. Each answer is right by itself; who
asks hundreds finds some that chance made, so say how many were asked.
"""

from shoal.answers.components import Estimates, PrincipalComponents
from shoal.answers.moments import Answers, Comparison, WaldTest, contrast, difference, wald

__all__ = [
    "Answers",
    "Comparison",
    "Estimates",
    "PrincipalComponents",
    "WaldTest",
    "contrast",
    "difference",
    "wald",
]

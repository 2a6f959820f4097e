"""Judges whether the path of a variational inference arrived, and how much noise is in the result.

The learner measures the gradients; this module only interprets them.
"""

from statistics import NormalDist
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Finite, Place, Size

FALSE_ALARMS: Final = 0.001
"""At most: how often a path that has arrived is called "not_arrived". "cannot_tell" has no rate."""
MOST_CORRELATED: Final = 64
"""Numbers in a posterior with correlations: 2,080 of those, 22 kilobytes."""
_FAR: Final = 0.6  # posterior standard deviations: noise alone seldom leaves more at low noise
_MOSTLY_NOISE: Final = 0.5  # of a posterior variance
_SCATTERED: Final = 0.5  # by more, points pull values by about a third of a posterior sd
_SEEN: Final = 3.0  # standard errors of a curvature, which none of no records reaches by chance

Verdict = Literal["arrived", "cannot_tell", "not_arrived"]
_SAID: Final = {
    "arrived": "arrived",
    "cannot_tell": "CANNOT TELL whether it arrived",
    "not_arrived": "NOT ARRIVED",
}

_Numbers = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=10_000)]
_Sizes = tuple[Size, ...]
_NOT_ARRIVED: Final = (
    "THE PATH HAS NOT ARRIVED: neither values nor intervals are to be trusted; take more rounds, "
    "and simulate the job first"
)


class Convergence(Model):
    """Of each unconstrained number, over the path's second half; tuples of length d.

    `slopes` are the mean slopes of the log posterior there, in standard errors of the noise in
    them: noise about 0 if the path has arrived. `distances` say how far its mean was from the
    posterior's, in posterior standard deviations; `noise_shares` how much of the posterior
    variance is due to privacy noise and batches; `scatters` the mean square distance of the points
    from their mean, over the posterior standard deviation: what bends in the gradients pulls values
    by about three quarters of it, in posterior standard deviations. `signals` are the likelihood's
    curvatures along each number, in their standard errors: noise about 0 if nobody had a record,
    whatever the prior makes of the posterior. `may_clip` unless the task's
    bounds and clip rule out that a record's gradient was clipped. `rounds` went into the posterior.
    """

    rounds: Place
    slopes: _Numbers
    distances: _Sizes
    noise_shares: tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...]
    scatters: _Sizes
    signals: _Numbers
    may_clip: bool

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        others = (self.distances, self.noise_shares, self.scatters, self.signals)
        if any(len(each) != len(self.slopes) for each in others):
            raise ValueError("slopes, distances, shares, scatters and signals must be as many")
        return self

    @staticmethod
    def limit_for(size: int) -> float:
        """Return what none of `size` standard normals exceeds with probability 1 - FALSE_ALARMS.

        Or more: Bonferroni's bound.
        """
        return NormalDist().inv_cdf(1.0 - FALSE_ALARMS / (2.0 * size))

    @property
    def verdict(self) -> Verdict:
        """Whether the path had arrived where its gradients point, as far as the sums show.

        "not_arrived": it was more than .6 posterior standard deviations away, by slopes that are
        more than noise. "arrived": it was not, and there is none of the `doubts`.
        """
        if max(self.distances) > _FAR:
            steep = float(np.max(np.abs(self.slopes)))
            if steep > self.limit_for(len(self.slopes)):
                return "not_arrived"
        return "cannot_tell" if self.doubts else "arrived"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why it cannot be told that the path has arrived, and what to do; empty if it can."""
        found = {
            "noise alone could leave such slopes far from the posterior: take more rounds": (
                max(self.distances) > _FAR
            ),
            "noise is most of a variance, and hides both strong effects and a path still on its "
            "way: ask more clients, or at a larger epsilon": max(self.noise_shares) > _MOSTLY_NOISE,
            "records bend the posterior little more than noise does, as if few clients had any: "
            "ask more clients, or at a larger epsilon": min(self.signals) < _SEEN,
            "points lay so far apart that gradients bend between them: take a lower learning_rate "
            "and more rounds": max(self.scatters) > _SCATTERED,
            "gradients may have been clipped, which pulls values unseen: take a clip that no "
            "record's gradient exceeds, if noise allows": self.may_clip,
            "of so many numbers correlations are left out: take fewer": (
                len(self.slopes) > MOST_CORRELATED
            ),
        }
        return tuple(reason for reason, holds in found.items() if holds)

    @property
    def caution(self) -> str | None:
        """What the verdict means for the user and what to do, None if there is nothing to do."""
        if self.verdict == "arrived":
            return None
        if self.verdict == "not_arrived":
            return _NOT_ARRIVED
        return (
            "WHETHER THE PATH HAS ARRIVED CANNOT BE TOLD, and neither whether the intervals hold, "
            f"least of all those of strong effects: {'; '.join(self.doubts)}; simulate the job"
        )

    def __str__(self) -> str:
        least, most = min(self.noise_shares), max(self.noise_shares)
        return (
            f"{_SAID[self.verdict]}: slopes left up to "
            f"{np.max(np.abs(self.slopes)):.1f} standard errors, {max(self.distances):.1f} "
            f"posterior sds to go; noise and batches are {least:.0%} to {most:.0%} of variances"
        )

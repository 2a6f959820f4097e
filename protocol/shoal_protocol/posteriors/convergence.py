"""Did the path of a variational inference arrive, and what is noise in its posterior? It knows
no gradients: who made the posterior measured them.
"""

from statistics import NormalDist
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from shoal_protocol.posteriors.base import Finite

FALSE_ALARMS: Final = 0.001
"""At most: how often a path that has arrived is called "not_arrived". "cannot_tell" has no rate."""
_FAR: Final = 0.6  # posterior standard deviations: noise alone seldom leaves more at low noise

Verdict = Literal["arrived", "cannot_tell", "not_arrived"]
_SAID: Final = {
    "arrived": "arrived",
    "cannot_tell": "CANNOT TELL whether it arrived",
    "not_arrived": "NOT ARRIVED",
}

_Numbers = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=10_000)]
_CAUTIONS: Final = {
    "arrived": None,
    "cannot_tell": (
        "WHETHER THE PATH HAS ARRIVED CANNOT BE TOLD from the noise: values may be pulled to where "
        "it began; take as many rounds as end with `arrived` when you simulate the job, and if "
        "none do, the noise is too strong for this many clients"
    ),
    "not_arrived": (
        "THE PATH HAS NOT ARRIVED: neither values nor intervals are to be trusted; take more "
        "rounds, and simulate the job first"
    ),
}


class Convergence(BaseModel):
    """Of each unconstrained number, over the path's second half; tuples of length d.

    `slopes` are the mean slopes of the log posterior there, in standard errors of the noise in
    them: noise about 0 if the path has arrived. `distances` say how far its mean was from the
    posterior's, in posterior standard deviations; `noise_shares` how much of the posterior
    variance is due to privacy noise and batches. `rounds` went into the posterior.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: Annotated[int, Field(ge=1)]
    slopes: _Numbers
    distances: Annotated[tuple[Annotated[float, Field(ge=0.0, allow_inf_nan=False)], ...], Field()]
    noise_shares: Annotated[tuple[Annotated[float, Field(ge=0.0, le=1.0)], ...], Field()]

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        if not len(self.slopes) == len(self.distances) == len(self.noise_shares):
            raise ValueError("slopes, distances and shares must have the same length")
        return self

    @staticmethod
    def limit_for(size: int) -> float:
        """Return what none of `size` standard normals exceeds with probability 1 - FALSE_ALARMS.

        Or more: Bonferroni's bound.
        """
        return NormalDist().inv_cdf(1.0 - FALSE_ALARMS / (2.0 * size))

    @property
    def verdict(self) -> Verdict:
        """Whether the path was where its gradients point, as far as noise lets that be seen.

        "arrived": it was, to within .6 posterior standard deviations. If not, "not_arrived" where
        slopes are more than noise, and "cannot_tell" where noise alone could leave such slopes.
        """
        if max(self.distances) <= _FAR:
            return "arrived"
        steep = bool(np.max(np.abs(self.slopes)) > self.limit_for(len(self.slopes)))
        return "not_arrived" if steep else "cannot_tell"

    @property
    def caution(self) -> str | None:
        """What the verdict means for the user and what to do, None if there is nothing to do."""
        return _CAUTIONS[self.verdict]

    def __str__(self) -> str:
        least, most = min(self.noise_shares), max(self.noise_shares)
        return (
            f"{_SAID[self.verdict]}: slopes left up to "
            f"{np.max(np.abs(self.slopes)):.1f} standard errors, {max(self.distances):.1f} "
            f"posterior sds to go; noise and batches are {least:.0%} to {most:.0%} of variances"
        )

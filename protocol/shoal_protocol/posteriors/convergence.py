"""Did the path of a variational inference arrive, and what is noise in its posterior? It knows
no gradients: who made the posterior measured them.
"""

from statistics import NormalDist
from typing import Annotated, Final, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from shoal_protocol.posteriors.base import Finite

FALSE_ALARMS: Final = 0.001
"""At most: how often a path that has arrived looks as if it had not, by its slopes alone."""
_FAR: Final = 0.5  # posterior standard deviations

_Numbers = Annotated[tuple[Finite, ...], Field(min_length=1, max_length=10_000)]


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
    def arrived(self) -> bool:
        """Whether slopes are no more than noise, or what they ask for is less than counts."""
        steep = bool(np.max(np.abs(self.slopes)) > self.limit_for(len(self.slopes)))
        return not (steep and max(self.distances) > _FAR)

    def __str__(self) -> str:
        least, most = min(self.noise_shares), max(self.noise_shares)
        return (
            f"{'arrived' if self.arrived else 'NOT ARRIVED'}: slopes left up to "
            f"{np.max(np.abs(self.slopes)):.1f} standard errors, {max(self.distances):.1f} "
            f"posterior sds to go; noise and batches are {least:.0%} to {most:.0%} of variances"
        )

"""Priors of a posterior's numbers, and the caution that they decide where data tell little."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatVector = NDArray[np.float64]

PRIOR_DECIDES: Final = 0.25
"""Of a posterior variance, relative to the prior's: from here on it decides, or"""
PRIOR_PULLS: Final = 0.5
"""posterior standard deviations by which the prior pulls a mean."""


class Prior(NamedTuple):
    """Means and standard deviations of independent normal priors of a posterior's numbers, (k,)."""

    mean: FloatVector
    sd: FloatVector

    def shares(self, sd: FloatVector) -> FloatVector:
        """Return each posterior variance, of `sd`, over the prior's, at most 1, shape (k,).

        A number that the prior fixes is all prior.
        """
        ratios = np.divide(sd, self.sd, out=np.ones_like(self.sd), where=self.sd > 0.0)
        shares: FloatVector = np.minimum(ratios, 1.0) ** 2
        return shares

    def caution(self, names: Sequence[str], mean: FloatVector, sd: FloatVector) -> str | None:
        """Return which numbers, posterior `mean` and `sd`, the prior decides; None if none."""
        away = np.zeros_like(self.sd)
        np.divide(np.abs(mean - self.mean), self.sd, out=away, where=self.sd > 0.0)
        shares = self.shares(sd)
        decides = (shares >= PRIOR_DECIDES) | (away * np.sqrt(shares) >= PRIOR_PULLS)
        return prior_caution(
            [
                name
                for name, it_does, free in zip(names, decides, self.sd > 0.0, strict=True)
                if it_does and free
            ]
        )


def prior_caution(names: Sequence[str]) -> str | None:
    """Return the caution that the prior decides `names`, None of no names."""
    if not names:
        return None
    return (
        f"THE PRIOR DECIDES {', '.join(names)}, or pulls values by half a posterior sd or more: "
        "what was believed before, and not the data, above all of strong effects; take a larger "
        "prior_sd where effects may be stronger, or more clients, or a larger epsilon"
    )

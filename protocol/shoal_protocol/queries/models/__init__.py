"""Models whose log-likelihood clients differentiate: built in, or a data holder's installed ones.

An installed model's code is compared with the digest before it is imported
(`shoal_kit.installed_models`).
"""

from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field

from shoal_protocol.queries.design import Floats, with_constant
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Digest

LARGEST_LATENT_DIMENSION = 10_000


class InstalledModel(Model):
    """An entry point, the SHA-256 of the sources that hold it, and how many latents it has.

    `unconstrained` is d, the length of the vector of all latents in unconstrained space. With
    `normalised` the model is handed columns that are taken to [-1, 1] by their bounds, else in
    the data's units, cut to their bounds.
    """

    name: Literal["numpyro"] = "numpyro"
    entry_point: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    digest: Digest
    unconstrained: Annotated[int, Field(ge=1, le=LARGEST_LATENT_DIMENSION, strict=True)]
    normalised: bool

    def dimension(self, columns: int) -> int:
        """Return d, whatever the number of columns."""
        return self.unconstrained

    @property
    def reference(self) -> str:
        """Return name@digest, as a data holder's policy lists it."""
        return f"{self.entry_point}@{self.digest}"


Family = Literal["linear", "logistic", "poisson"]
"""Names of the generalised linear models with canonical link, as crowds learn them."""


_LARGEST_EXPONENT: Final = 700.0  # e^700 is a float, and far beyond what any clip lets through


class LogisticRegressionModel(Model):
    """P(y = 1) = 1 / (1 + exp(-x'theta)); the target's upper bound is 1, its lower bound 0.

    A value between the bounds counts as the nearer of them, the middle as the lower one.
    """

    name: Literal["logistic_regression"] = "logistic_regression"
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]

    def dimension(self, columns: int) -> int:
        """Return d for records of so many columns: one for each feature, and the constant's."""
        return columns - 1 + (self.intercept > 0.0)

    def gradients(self, point: Floats, boxed: Floats) -> Floats:
        """Return each record's gradient at theta = `point`, shape (r, d).

        `boxed`, shape (r, m + 1), has the features, then the target, each in [-1, 1].
        """
        rows = with_constant(boxed[:, :-1], self.intercept)
        ones = (boxed[:, -1] > 0.0).astype(np.float64)
        return (ones - probability(rows @ point))[:, None] * rows


def probability(logits: Floats) -> Floats:
    """Return 1 / (1 + exp(-logits)), which neither over- nor underflows."""
    return 0.5 * (1.0 + np.tanh(0.5 * logits))


def rate(log_rates: Floats) -> Floats:
    """Return exp(log_rates), at most e^700."""
    return np.exp(np.minimum(log_rates, _LARGEST_EXPONENT))


GradientModel = Annotated[
    LogisticRegressionModel | InstalledModel,
    Field(discriminator="name"),
]
"""Every model that a gradient may be asked of."""

"""Base of the posteriors of regressions in measured units: coefficients with a normal law."""

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, Finite, FloatMatrix, FloatVector
from shoal_protocol.posteriors.grounds import Prior
from shoal_protocol.posteriors.intervals import normal_quantiles
from shoal_protocol.studies.regression.verdicts import Verdict

_Size = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class MeasuredCoefficients(BasePosterior):
    """Gaussian posterior of coefficients, in the data's own units.

    The covariance accounts for the records' scatter, however uneven, and for the privacy noise
    alike. Each prior is normal, with `prior_mean` and `prior_sd`. `scatter` is how much records do,
    and `spreads` are the features' standard deviations, as noise let them be measured.
    """

    coefficients: tuple[Finite, ...]
    covariance: tuple[tuple[Finite, ...], ...]
    prior_mean: tuple[Finite, ...]
    prior_sd: tuple[_Size, ...]
    scatter: Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    spreads: tuple[Annotated[float, Field(gt=0.0, allow_inf_nan=False)], ...]
    verdict: Verdict

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        size = len(self.names)
        sizes = {len(each) for each in (self.coefficients, self.prior_mean, self.prior_sd)}
        if sizes != {size} or [len(row) for row in self.covariance] != [size] * size:
            raise ValueError("names, coefficients, priors and covariance must go together")
        if len(self.spreads) >= size:
            raise ValueError("there are more numbers than features")
        return self

    @property
    def mean(self) -> FloatVector:
        return np.array(self.coefficients)

    @property
    def covariance_matrix(self) -> FloatMatrix:
        """Posterior covariance of the coefficients, shape (k, k)."""
        return np.array(self.covariance)

    @property
    def sd(self) -> FloatVector:
        return np.sqrt(np.diagonal(self.covariance_matrix))

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        return normal_quantiles(self.mean, self.sd, high)

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        """Return `count` draws of the coefficients, shape (count, k): no privacy depends on them.

        The square root of the covariance is its symmetric one, so a singular matrix is fine.
        """
        values, vectors = np.linalg.eigh(self.covariance_matrix)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        standard: FloatMatrix = generator.standard_normal((count, len(self.names)))
        draws: FloatMatrix = self.mean + standard @ root.T
        return draws

    @property
    def prior(self) -> Prior:
        return Prior(np.array(self.prior_mean), np.array(self.prior_sd))

    @property
    def unit_drawn(self) -> str:
        return "for a standard deviation"

    @property
    def is_doubted(self) -> bool:
        return self.verdict.kind == "doubtful"

    def caption_below(self, caption: str | None) -> str | None:
        """Return what stands below a picture: the verdict, where it is not that all is well."""
        kind = self.verdict.kind
        said = None if kind == "trustworthy" else f"verdict: {kind}, see the summary"
        return "; ".join(each for each in (caption, said) if each is not None) or None

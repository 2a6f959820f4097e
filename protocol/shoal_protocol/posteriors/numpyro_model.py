"""The posterior of a NumPyro model's latents, read without NumPyro; knows no model's code."""

from collections.abc import Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import FloatMatrix, FloatVector
from shoal_protocol.posteriors.variational import VariationalPosterior
from shoal_protocol.queries.models.latents import Latent
from shoal_protocol.wire.encoding import Digest

_POINTS: Final = 4096
_MEASURED: Final = (
    "how often such intervals hold was measured on a line with an unknown scale, 86 % to 97 % of "
    "those at 90 %: simulate the job to see how your model does"
)


class NumpyroPosterior(VariationalPosterior):
    """Posterior of a NumPyro model's latents: see VariationalPosterior.

    `latents` say how unconstrained numbers become latents, in order; `names`, mean, sd, intervals
    and draws are of the latents themselves, with one entry for each of their numbers. They are
    computed on 4,096 points that fill the distribution evenly, good to about two digits.
    """

    variable = "latents"
    dimension = "latent"

    name: Literal["numpyro_model"] = "numpyro_model"
    entry_point: str
    digest: Digest
    columns: Annotated[tuple[str, ...], Field(min_length=1)]  # of a record
    latents: Annotated[tuple[Latent, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_for_each_number(self) -> Self:
        if len(self.location) != sum(latent.unconstrained for latent in self.latents):
            raise ValueError("location must have one number for each unconstrained number")
        if self.names != names_of(self.latents):
            raise ValueError("names must be those of the latents' numbers, in order")
        return self

    @property
    def caution(self) -> str:
        if self.convergence is None:
            return super().caution
        return f"{super().caution}; {_MEASURED}"

    @property
    def mean(self) -> FloatVector:
        mean: FloatVector = self._points.mean(axis=0)
        return mean

    @property
    def sd(self) -> FloatVector:
        sd: FloatVector = self._points.std(axis=0)
        return sd

    def _quantiles(self, low: float, high: float) -> FloatMatrix:
        ends: FloatMatrix = np.quantile(self._points, [low, high], axis=0)
        return ends.T

    def sample(self, count: int, generator: np.random.Generator) -> FloatMatrix:  # noqa: TID251
        return self._constrained(generator.standard_normal((count, len(self.location))))

    def predict(self, rows: FloatMatrix) -> tuple[FloatVector, FloatVector]:
        """Refuse: what a record would look like only the model says, which is not in here.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "predictions need the model: draw latents with sample() and hand them to it"
        )

    @cached_property
    def _points(self) -> FloatMatrix:
        """Latents at points of a lattice that fills the unit cube, taken to the normal."""
        size = len(self.location)
        root = 2.0
        for _ in range(60):  # of x^(size + 1) = x + 1: Roberts's generalised golden ratio
            root = (1.0 + root) ** (1.0 / (size + 1))
        steps = root ** -np.arange(1.0, size + 1.0)
        places = (0.5 + np.arange(1, _POINTS + 1)[:, None] * steps) % 1.0
        ranks = np.argsort(np.argsort(places, axis=0), axis=0)  # each margin exactly even
        quantiles = [NormalDist().inv_cdf((rank + 0.5) / _POINTS) for rank in range(_POINTS)]
        return self._constrained(np.array(quantiles)[ranks])

    def _constrained(self, standard: FloatMatrix) -> FloatMatrix:
        values = self.unconstrained_from(standard)
        parts, start = [], 0
        for latent in self.latents:
            end = start + latent.unconstrained
            parts.append(latent.constrain(values[:, start:end]))
            start = end
        return np.column_stack(parts)


def names_of(latents: Sequence[Latent]) -> tuple[str, ...]:
    """Return the names of the latents' numbers, in order."""
    return tuple(label for latent in latents for label in latent.labels())

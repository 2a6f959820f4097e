"""The latents of an analyst's own NumPyro model; task and posterior need no NumPyro."""

from collections.abc import Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors.base import BasePosterior, FloatMatrix, FloatVector
from shoal_protocol.posteriors.variational import VariationalPosterior
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.models import InstalledModel
from shoal_protocol.queries.models.latents import Latent
from shoal_protocol.studies.variational import Positive, VariationalStudy
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


class NumpyroTask(VariationalStudy):
    """Any NumPyro model of one record with global latents, installed at both ends.

    `entry_point` is its name in the group "shoal.models", `digest` that of the sources that hold
    it (`shoal model digest` shows it), `unconstrained` how many numbers its latents are in
    unconstrained space. The model gets the columns in the data's units, cut to their bounds, or
    with `normalised` taken to [-1, 1].
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (NumpyroPosterior,)
    example: ClassVar[str] = """\
[task]
name = "numpyro_model"
entry_point = "blood-pressure" # of a package that trainer and data holders have installed
digest = "%s"
unconstrained = 3              # numbers that the model's latents are
rounds = 100
batch = 400                    # clients asked in a round: more than dropouts + colluders + 1

[columns]                      # public bounds, from general knowledge, never from the data
age = [18, 100]
systolic_pressure = [60, 220]
""" % ("0" * 64)

    name: Literal["numpyro_model"] = "numpyro_model"
    entry_point: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    digest: Digest
    unconstrained: Annotated[int, Field(ge=1, le=10_000, strict=True)]
    columns: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=511)]
    normalised: bool = False
    clip: Positive = 1.0

    @model_validator(mode="after")
    def _distinct(self) -> "NumpyroTask":
        if len({bounds.name for bounds in self.columns}) != len(self.columns):
            raise ValueError("two columns have the same name")
        return self

    @property
    def model(self) -> InstalledModel:
        """The model whose gradients are asked for."""
        return InstalledModel(
            entry_point=self.entry_point,
            digest=self.digest,
            unconstrained=self.unconstrained,
            normalised=self.normalised,
        )


def names_of(latents: Sequence[Latent]) -> tuple[str, ...]:
    """Return the names of the latents' numbers, in order."""
    return tuple(label for latent in latents for label in latent.labels())

"""A model's latents: their names, and the maps from unconstrained numbers to their values.

The maps are those of NumPyro's `biject_to`, so that a posterior can be read without NumPyro.
"""

import itertools
import math
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Real

FloatMatrix = NDArray[np.float64]

Support = Literal["real", "positive", "interval", "simplex", "ordered"]


class Latent(Model):
    """One latent: its shape, and the map to its support from unconstrained numbers u.

    real: u. positive: `offset` + `factor` exp(u), so any half-line. interval: `offset` + `factor` /
    (1 + exp(-u)). simplex: a vector by stick breaking, of one u less than its length. ordered: an
    increasing vector, u_1, u_1 + exp(u_2), and so on.
    """

    name: Annotated[str, Field(min_length=1, max_length=64)]
    shape: Annotated[
        tuple[Annotated[int, Field(ge=1, le=10_000, strict=True)], ...], Field(max_length=4)
    ] = ()
    support: Support = "real"
    offset: Real = 0.0
    factor: Real = 1.0

    @model_validator(mode="after")
    def _consistent(self) -> "Latent":
        if self.support in ("simplex", "ordered") and len(self.shape) != 1:
            raise ValueError("a simplex or ordered latent must be a vector")
        if self.unconstrained < 1:
            raise ValueError("a simplex must have two parts or more")
        return self

    @property
    def size(self) -> int:
        """How many numbers the latent itself has."""
        return math.prod(self.shape)

    @property
    def unconstrained(self) -> int:
        """How many unconstrained numbers it takes."""
        return self.size - (self.support == "simplex")

    @property
    def is_elementwise(self) -> bool:
        """Whether each number depends on one unconstrained number, increasing or decreasing."""
        return self.support in ("real", "positive", "interval")

    def labels(self) -> list[str]:
        """Return a name for each of its numbers: "w[0]" for the first of a vector w."""
        if not self.shape:
            return [self.name]
        places = itertools.product(*(range(length) for length in self.shape))
        return [f"{self.name}[{','.join(map(str, place))}]" for place in places]

    def constrain(self, values: FloatMatrix) -> FloatMatrix:
        """Return the latent's numbers, shape (n, size), of `values`, shape (n, unconstrained)."""
        match self.support:
            case "positive":
                return self.offset + self.factor * np.exp(values)
            case "interval":
                return self.offset + self.factor * 0.5 * (1.0 + np.tanh(0.5 * values))
            case "simplex":
                left = np.arange(values.shape[1], 0, -1, dtype=np.float64)
                parts = 0.5 * (1.0 + np.tanh(0.5 * (values - np.log(left))))
                rest = np.cumprod(1.0 - parts, axis=1)
                before = np.column_stack([np.ones(len(values)), rest[:, :-1]])
                return np.column_stack([parts * before, rest[:, -1]])
            case "ordered":
                steps = np.column_stack([values[:, :1], np.exp(values[:, 1:])])
                return np.cumsum(steps, axis=1)
        return values

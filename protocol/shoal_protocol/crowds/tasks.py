"""The task of a crowd: a generalised linear model, its public bounds and the noise of one step.

All weights are integers on the lattice 2^-grid_bits. Features are taken to [-1, 1] by their
bounds, and so is a linear model's target; the intercept, the first weight, belongs to a constant 1.
"""

import math
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from shoal_protocol.privacy.accounting import PRICE_MARGIN
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import variables_of
from shoal_protocol.queries.models.regressions import Family
from shoal_protocol.wire.documents import Model

LARGEST_WEIGHT: Final = 1 << 52
"""Largest magnitude of a weight on the lattice: a float and JSON both hold it exactly."""

MOST_INSTANCES: Final = 10_000

MOST_WEIGHTS: Final = 1 << 16
"""Most weights of all instances together: they all stand in one signed document."""

_LARGEST_NOISE_SCALE: Final = 2.0**44  # so that a step is far from the end of the weights

Variant = Literal["one", "feature", "all"]
Clipping = Literal["coordinate", "residual"]

_Positive = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]
_Start = Annotated[float, Field(ge=-1e6, le=1e6, allow_inf_nan=False)]


class CrowdTask(Model):
    """A generalised linear model with its canonical link, learned by Draw and Discard.

    One contribution is a step u = `learning_rate` (y - mean(x'b)) x, clipped to `clip`: each
    coordinate of it, or the scalar before x (`clipping` "residual", which keeps the step a
    contraction for small learning rates). Then noise is added, by `variant`:

    one      a single coordinate, chosen at random, is sent, with noise of scale 2 clip / epsilon
    feature  every coordinate, with that noise: `epsilon` is the price of each, and p epsilon of all
    all      every coordinate, with p times that noise

    `l2` pulls weights to zero by the factor 1 - learning_rate l2, outside of the clip: it does not
    depend on data. `instances` is k. `start` are the weights, shape (p,), around which instances
    begin; None is zero.
    """

    family: Family
    features: tuple[ColumnBounds, ...] = Field(min_length=1, max_length=511)
    target: ColumnBounds
    intercept: bool = True
    variant: Variant = "one"
    clipping: Clipping = "coordinate"
    clip: _Positive
    epsilon: Annotated[float, Field(gt=0.0, le=100.0, allow_inf_nan=False)]
    learning_rate: _Positive
    l2: Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)] = 0.0
    instances: Annotated[int, Field(ge=1, le=MOST_INSTANCES, strict=True)]
    grid_bits: Annotated[int, Field(ge=4, le=40, strict=True)] = 20
    start: tuple[_Start, ...] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len({each.name for each in self.columns}) != len(self.columns):
            raise ValueError("two columns have the same name")
        if self.start is not None and len(self.start) != self.dimension:
            raise ValueError(f"start must have {self.dimension} weights, the intercept's first")
        if self.instances * self.dimension > MOST_WEIGHTS:
            raise ValueError(f"instances times weights may be at most {MOST_WEIGHTS}")
        if self.lattice_clip < 16:
            raise ValueError("clip times 2^grid_bits must be at least 16: raise grid_bits")
        if self.noise_scale > _LARGEST_NOISE_SCALE:
            raise ValueError("the noise would be too large: lower clip or grid_bits")
        if self.learning_rate * self.l2 > 1.0:
            raise ValueError("learning_rate times l2 may be at most 1")
        if self.family == "logistic" and (self.target.lower, self.target.upper) != (0.0, 1.0):
            raise ValueError("the bounds of a logistic model's target are 0 and 1")
        if self.family == "poisson" and (self.target.lower != 0.0 or self.target.upper < 1.0):
            raise ValueError("the bounds of a Poisson model's target are 0 and at least 1")
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then the target."""
        return (*self.features, self.target)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that a record needs: of the variables that are read."""
        return variables_of(self.columns)

    @property
    def weight_names(self) -> tuple[str, ...]:
        """Names of the p weights, in order."""
        features = tuple(bounds.name for bounds in self.features)
        return ("(intercept)", *features) if self.intercept else features

    @property
    def dimension(self) -> int:
        """The number of weights, p."""
        return len(self.features) + self.intercept

    @property
    def grid(self) -> float:
        """2^grid_bits: lattice units in one unit of a weight."""
        return 2.0**self.grid_bits

    @property
    def lattice_clip(self) -> int:
        """Largest magnitude of one coordinate of a clipped step, in lattice units."""
        return int(self.clip * self.grid)  # a product with a power of two is exact

    @property
    def touched(self) -> int:
        """How many coordinates one contribution changes."""
        return 1 if self.variant == "one" else self.dimension

    @property
    def noise_scale(self) -> float:
        """Scale of the discrete Laplace on a touched coordinate, in lattice units.

        2 lattice_clip / epsilon, and p times that for the variant "all"; raised by the margin that
        covers rounding. The sensitivity is 2 lattice_clip on each coordinate: any record may be
        exchanged for any other.
        """
        shared_by = self.dimension if self.variant == "all" else 1
        exact = 2.0 * self.lattice_clip * shared_by / self.epsilon
        return exact * (1.0 + PRICE_MARGIN)

    @property
    def contribution_epsilon(self) -> float:
        """Pure epsilon of one contribution: its price for the record, and for the client."""
        return self.epsilon * (self.dimension if self.variant == "feature" else 1)

    @property
    def noise_variance(self) -> float:
        """Variance of the noise on a touched coordinate, in squared units of a weight."""
        lattice = 1.0 / (2.0 * math.sinh(0.5 / self.noise_scale) ** 2)
        return lattice / self.grid**2

    @property
    def update_variance(self) -> float:
        """Variance of the noise that one contribution brings to a coordinate on average.

        The sigma^2 of Pihur et al., Theorem 1: `noise_variance`, of which the variant "one" brings
        one in p.
        """
        return self.noise_variance * self.touched / self.dimension

    @property
    def decay(self) -> float:
        """The factor by which l2 multiplies a weight that a contribution touches."""
        return 1.0 - self.learning_rate * self.l2

"""The query of a mini-batch round: the sum of clipped gradients of a model's log-likelihood.

Each record's gradient is taken at a public point and clipped by itself. The learner adds public
terms such as prior and entropy, neither clipped nor noised.
"""

import math
from collections.abc import Callable
from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.queries import quantisation
from shoal_protocol.queries.columns import Column, design_of, in_levels, variables_of
from shoal_protocol.queries.design import Mechanism, NoiseBlock, NoiseDesign, rounded_up
from shoal_protocol.queries.models import GradientModel, InstalledModel
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Positive

LARGEST_COORDINATE: Final = 1e6
"""Largest magnitude of a coordinate of the point: far beyond any sensible parameter."""

_LARGEST_CLIP: Final = 1 << 30  # in lattice units: its square and sums of squares fit 64 bits
_LARGEST_GRADIENT: Final = 2.0**400  # its square, and sums of many such, are still floats

_Coordinate = Annotated[float, Field(ge=-LARGEST_COORDINATE, le=LARGEST_COORDINATE)]

Gradients = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""A model's gradients, shape (r, d), at a point, shape (d,), of records, shape (r, m)."""


class GradientSum(Model):
    """Sum over a client's records of trunc(2^grid_bits clipped(gradient of log p(record | u))).

    u = `point` is in the model's unconstrained space, shape (d,). A record's gradient is shrunk
    into the l2 ball of radius `clip`, so that its direction stays; one that is not finite counts as
    zero. Columns are cut to [-1, 1] by their bounds first.
    """

    name: Literal["gradient_sum"] = "gradient_sum"
    model: GradientModel
    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=512)]
    point: Annotated[tuple[_Coordinate, ...], Field(min_length=1, max_length=10_000)]
    clip: Positive
    grid_bits: Annotated[int, Field(ge=4, le=30, strict=True)]
    records_per_client: Annotated[int, Field(ge=1, le=1000, strict=True)]

    @model_validator(mode="after")
    def _consistent(self) -> "GradientSum":
        if len({column.name for column in self.columns}) != len(self.columns):
            raise ValueError("two columns have the same name")
        if len(self.point) != self.model.dimension(len(self.columns)):
            raise ValueError("the point does not have one coordinate for each latent of the model")
        if not 1.0 <= self.clip * self.grid <= _LARGEST_CLIP:
            raise ValueError("clip times 2^grid_bits must lie between 1 and 2^30")
        return self

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of the records, in order: of the variables that are read."""
        return variables_of(self.columns)

    @property
    def grid(self) -> int:
        """2^grid_bits: lattice units in one unit of the gradient."""
        return 1 << self.grid_bits

    @property
    def dimension(self) -> int:
        """Length of the vector, d."""
        return len(self.point)

    @property
    def squared_norm_limit(self) -> int:
        """Largest squared norm of one record's vector, in lattice units."""
        return quantisation.squared_radius_limit(radius=self.clip, grid_bits=self.grid_bits)

    @property
    def largest_value(self) -> int:
        """Largest magnitude that a coordinate of `encode` can have."""
        return math.isqrt(self.squared_norm_limit) * self.records_per_client

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere: L2 2 r C 2^grid_bits, and sqrt(d) times that in L1."""
        norm = rounded_up(math.sqrt(self.squared_norm_limit))
        factor = 1.0 if mechanism == "discrete_gaussian" else math.sqrt(self.dimension)
        return NoiseDesign(
            sensitivity=rounded_up(2.0 * self.records_per_client * norm * factor),
            blocks=(NoiseBlock(coordinates=self.dimension, relative_scale=1.0),),
        )

    def encode(
        self, records: NDArray[np.float64], gradients: Gradients | None = None
    ) -> NDArray[np.int64]:
        """Return the client's contribution, shape (d,), from `records`, shape (r, variables).

        `gradients` are those of an installed model, which this package does not load.

        Raises:
            ValueError: wrong shape, too many records, a number that is not finite, or no
                `gradients` for a model that is not built in.
        """
        return self.summed(self.rows(records, gradients)[in_levels(self.columns, records)])

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of `rows`, shape (d,)."""
        total: NDArray[np.int64] = np.sum(rows, axis=0)
        return total

    def rows(
        self, records: NDArray[np.float64], gradients: Gradients | None = None
    ) -> NDArray[np.int64]:
        """Return each record's vector, shape (r, d): within the ball, in integers.

        Raises:
            ValueError: as `encode`.
        """
        records = np.asarray(records, dtype=np.float64)
        quantisation.refuse_unusable(records, self.column_names, self.records_per_client)
        found = self._gradients(design_of(self.columns, records), gradients)
        if found.shape != (len(records), self.dimension):
            raise ValueError("the model's gradients do not have the shape (records, latents)")
        return quantisation.to_lattice(
            _with_a_norm(found), radius=self.clip, grid_bits=self.grid_bits
        )

    def _gradients(
        self, records: NDArray[np.float64], gradients: Gradients | None
    ) -> NDArray[np.float64]:
        centres = np.array([column.centre for column in self.columns])
        scales = np.array([column.scale for column in self.columns])
        point = np.array(self.point)
        boxed = quantisation.to_box(records, centres, scales)
        if not isinstance(self.model, InstalledModel):
            return self.model.gradients(point, boxed)
        if gradients is None:
            raise ValueError("the model of this query is not at hand: its gradients are needed")
        values = boxed if self.model.normalised else _cut(records, centres, scales)
        # always as many rows, so that how long it takes does not tell how many there are
        middle = np.zeros_like(centres) if self.model.normalised else centres
        padded = np.tile(middle, (self.records_per_client, 1))
        padded[: len(values)] = values
        return np.asarray(gradients(point, padded), dtype=np.float64)[: len(values)]


def _cut(
    records: NDArray[np.float64], centres: NDArray[np.float64], scales: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the records cut to their columns' bounds, in the data's own units."""
    with np.errstate(over="ignore"):
        return np.clip(records, centres - scales, centres + scales)


def _with_a_norm(gradients: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows whose norms are floats: a huge one is scaled down, one not finite is zero."""
    finite = np.isfinite(gradients).all(axis=1, keepdims=True)
    rows = np.where(finite, gradients, 0.0)
    largest = np.max(np.abs(rows), axis=1, keepdims=True)
    scaled: NDArray[np.float64] = rows / np.maximum(largest / _LARGEST_GRADIENT, 1.0)
    return scaled

"""The task of a crowd, a generalised linear model, and one step of it, in integers.

All weights are integers on the lattice 2^-grid_bits. Features are taken to [-1, 1] by their
bounds, and so is a linear model's target; the intercept, the first weight, belongs to a constant 1.

A step is the mean over all records of a client, and within +-lattice_clip on every coordinate,
whatever the records, their number and the weights are; the noise is calibrated to that. Shapes may
have leading axes, so that a simulation of many crowds takes the same steps as clients.
"""

import math
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.privacy.accounting import PRICE_MARGIN
from shoal_protocol.queries import design
from shoal_protocol.queries.columns import ColumnBounds, design_of, variables_of
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.models import Family, probability
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Int64Vector

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

    One contribution is a step u, the mean of `learning_rate` (y - mean(x'b)) x over a client's
    records, clipped to `clip`: each coordinate of the mean, or each record's scalar before x
    (`clipping` "residual", which keeps the step a contraction for small learning rates). Of a
    client's records the first `records_per_client` count. Then noise is added, by `variant`:

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
    records_per_client: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1
    grid_bits: Annotated[int, Field(ge=4, le=40, strict=True)] = 20
    start: tuple[_Start, ...] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len({each.name for each in self.columns}) != len(self.columns):
            raise ValueError("two columns have the same name")
        if self.start is not None and len(self.start) != self.dimension:
            raise ValueError(f"start must have {self.dimension} weights, the intercept's first")
        if max(map(abs, self.start or (0.0,))) * self.grid > LARGEST_WEIGHT:
            raise ValueError("a weight of start is too large for its lattice: lower grid_bits")
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
        covers rounding. The sensitivity is 2 lattice_clip on each coordinate: all records of a
        client may be exchanged for any others, fewer or more.
        """
        shared_by = self.dimension if self.variant == "all" else 1
        exact = 2.0 * self.lattice_clip * shared_by / self.epsilon
        return exact * (1.0 + PRICE_MARGIN)

    @property
    def contribution_epsilon(self) -> float:
        """Pure epsilon of one contribution: its price for the client, with all its records."""
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


IntArray = NDArray[np.int64]


def first_weights(task: CrowdTask) -> IntArray:
    """Return `start`, or zero, rounded to the lattice, shape (p,): every instance begins with it.

    It is not random, so that later differences between instances come from noise and data alone.
    """
    start = np.zeros(task.dimension) if task.start is None else np.array(task.start)
    return np.rint(start * task.grid).astype(np.int64)  # the product is exact


def design_rows(task: CrowdTask, records: Floats) -> tuple[Floats, Floats]:
    """Return rows x, shape (r, p), and targets y, shape (r,), of `records`, shape (r, variables).

    Records' columns are `task.column_names`; each of the task's is cut to its bounds. Targets: a
    linear model's in [-1, 1]; a logistic model's 0 or 1, the nearer one; a Poisson model's in its
    own units.

    Raises:
        ValueError: another shape, no record, or a number that is not finite.
    """
    records = design.usable(records, task.column_names, max(1, len(records)))
    return normalised(task, design_of(task.columns, records))


def normalised(task: CrowdTask, columns: Floats) -> tuple[Floats, Floats]:
    """Return rows and targets, as `design_rows` does, of columns that are the task's own."""
    centres = np.array([each.centre for each in task.columns])
    scales = np.array([each.half_range for each in task.columns])
    boxed = design.to_box(columns, centres, scales)
    rows = boxed[:, :-1]
    if task.intercept:
        rows = np.column_stack([np.ones(len(rows)), rows])
    targets = boxed[:, -1]
    if task.family == "logistic":
        targets = (targets > 0.0).astype(np.float64)
    elif task.family == "poisson":
        targets = (targets + 1.0) * (task.target.upper / 2.0)
    return rows, targets


def means(task: CrowdTask, predictors: Floats) -> Floats:
    """Return the model's mean at linear predictors x'b, of any shape, on the scale of targets.

    A Poisson model's is at most the target's upper bound, so that no weight makes a step infinite.
    """
    if task.family == "linear":
        return predictors
    if task.family == "logistic":
        return probability(predictors)
    return np.exp(np.minimum(predictors, math.log(task.target.upper)))


def steps(task: CrowdTask, weights: IntArray, rows: Floats, targets: Floats) -> IntArray:
    """Return the clipped steps, shape (..., p), in lattice units, each within +-lattice_clip.

    `weights`, shape (..., p), are on the lattice; `rows`, shape (..., r, p), and `targets`, shape
    (..., r), are those of `design_rows`, of each client's r records. Rounding is towards zero.
    """
    predictors = np.sum(rows * (weights / task.grid)[..., None, :], axis=-1)
    scores = task.learning_rate * (targets - means(task, predictors))
    if task.clipping == "residual":
        scores = np.clip(scores, -task.clip, task.clip)
    exact: Floats = np.mean(scores[..., None] * rows, axis=-2) * task.grid
    limit = float(task.lattice_clip)
    # clipped as floats first: what is far outside has no int64
    taken: IntArray = np.trunc(np.clip(exact, -limit, limit)).astype(np.int64)
    return taken


def contribute(
    task: CrowdTask,
    weights: Int64Vector,
    step: Int64Vector,
    *,
    coordinate: int | None,
    noise: Int64Vector,
) -> Int64Vector:
    """Return what a client sends, shape (p,): the drawn weights with one noised step taken.

    `step` is one client's, shape (p,). `coordinate`, uniform on 0, ..., p - 1 and independent of
    all data, is the one that the variant "one" touches; None for the others. `noise` is exact
    discrete Laplace noise of `task.noise_scale`, shape (touched,).

    Raises:
        ValueError: a shape does not fit, or `coordinate` is missing or one too many.
    """
    if weights.shape != (task.dimension,) or step.shape != (task.dimension,):
        raise ValueError("weights and step must have one number for each weight")
    if noise.shape != (task.touched,):
        raise ValueError("noise must have one number for each coordinate that is touched")
    if (coordinate is None) == (task.variant == "one"):
        raise ValueError("the variant one, and no other, touches a single coordinate")
    touched = slice(None) if coordinate is None else slice(coordinate, coordinate + 1)
    sent = weights.copy()
    moved = decayed(task, weights[touched]) + step[touched]
    # noise is far below 2^62, and so is the sum
    sent[touched] = np.clip(moved + noise, -LARGEST_WEIGHT, LARGEST_WEIGHT)
    return sent


def decayed(task: CrowdTask, weights: IntArray) -> IntArray:
    """Return the weights that a step starts from: public, and for all the same to the last bit."""
    if task.l2 == 0.0:
        return weights
    kept: IntArray = np.trunc(weights * task.decay).astype(np.int64)
    return kept

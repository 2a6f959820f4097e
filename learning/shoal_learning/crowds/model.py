"""A crowd's result: k instances of a model, and their average in the units of the data.

The instances' spread is no posterior and no standard error. What error to expect of a task,
`shoal plan` says.
"""

from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.crowds import tasks
from shoal_protocol.crowds.draws import CrowdClosing, Weights
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.posteriors import plots
from shoal_protocol.posteriors.summaries import Summary
from shoal_protocol.wire.documents import Model

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]
IntArray = NDArray[np.int64]

CAUTION = (
    "the spread over instances is no standard error: most of what the noise does to them, it does "
    "to all of them alike"
)


NOBODY: Final = "none: nobody contributed, so all instances are as at the start"


class CrowdModel(Model):
    """k instances of a task's p weights after `contributions` updates, on the task's lattice.

    Weights are of normalised features, and of a normalised target if the model is linear:
    `averaged`, shape (p,). `coefficients`, shape (1 + m,), are in the units of the data, the
    intercept first.
    """

    task: CrowdTask
    contributions: int = Field(ge=0, lt=2**53)
    instances: tuple[Weights, ...] = Field(min_length=1, max_length=10_000)

    @model_validator(mode="after")
    def _fits_its_task(self) -> Self:
        if len(self.instances) != self.task.instances:
            raise ValueError(f"the task has {self.task.instances} instances")
        if {len(each) for each in self.instances} != {self.task.dimension}:
            raise ValueError(f"every instance must have {self.task.dimension} weights")
        return self

    @classmethod
    def of(cls, task: CrowdTask, weights: IntArray, contributions: int) -> Self:
        """Return the model of `weights` on the lattice, shape (k, p)."""
        instances = tuple(tuple(int(each) for each in row) for row in weights)
        return cls(task=task, contributions=contributions, instances=instances)

    @classmethod
    def closed(cls, task: CrowdTask, closing: CrowdClosing) -> Self:
        """Return the model that a job of this task ended with."""
        return cls(
            task=task,
            contributions=closing.contributions,
            instances=tuple(head.weights for head in closing.heads),
        )

    def __repr__(self) -> str:
        return (
            f"<CrowdModel: {self.task.family}, {len(self.instances)} instances,"
            f" {self.contributions:,} contributions>"
        )

    def __str__(self) -> str:
        return repr(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients: "(intercept)", then the features."""
        return ("(intercept)", *(bounds.name for bounds in self.task.features))

    @property
    def weights(self) -> FloatMatrix:
        """Every instance's weights, normalised, shape (k, p)."""
        return np.array(self.instances, dtype=np.float64) / self.task.grid

    @property
    def averaged(self) -> FloatVector:
        """The instances' mean, normalised, shape (p,)."""
        mean: FloatVector = self.weights.mean(axis=0)
        return mean

    @property
    def spread(self) -> FloatVector:
        """Variance over instances of each weight, divisor k - 1, shape (p,); NaN if k = 1."""
        if len(self.instances) < 2:
            return np.full(self.task.dimension, np.nan)
        variance: FloatVector = self.weights.var(axis=0, ddof=1)
        return variance

    @property
    def coefficients(self) -> FloatVector:
        """The averaged model's coefficients in the units of the data, shape (1 + m,)."""
        return _to_data_units(self.task, self.averaged)

    @property
    def instance_coefficients(self) -> FloatMatrix:
        """Every instance's coefficients in the units of the data, shape (k, 1 + m)."""
        return _to_data_units(self.task, self.weights)

    def predict(self, rows: FloatMatrix) -> FloatVector:
        """Return the averaged model's mean of the target, shape (n,), for `rows`, shape (n, m).

        In the target's units: a probability of its upper bound if it is logistic, an expected
        count if it is Poisson. Features are cut to their bounds, as they were when it was learned.

        Raises:
            ValueError: `rows` does not have one column per feature, or has what is no number.
        """
        predictors = tasks.feature_rows(self.task, rows) @ self.averaged
        means: FloatVector = tasks.means(self.task, predictors)
        if self.task.family != "linear":
            return means
        return self.task.target.centre + self.task.target.half_range * means

    def as_start(self, task: CrowdTask | None = None) -> tuple[float, ...]:
        """Return the averaged weights as the `start` of the same task, or of `task`.

        That may have other bounds: the coefficients in the units of the data stay the same.

        Raises:
            ValueError: `task` is of another family or other columns, or has no intercept where
                one is needed.
        """
        if task is None:
            return tuple(map(float, self.averaged))
        columns, own = (
            [(each.name, each.term) for each in one.columns] for one in (task, self.task)
        )
        if (task.family, columns) != (self.task.family, own):
            raise ValueError("a start needs a task of the same family and columns")
        return tuple(map(float, _to_normalised(task, self.coefficients)))

    @property
    def title(self) -> str:
        """What it is a model of."""
        family = self.task.family.capitalize()
        return f"{family} model of {self.task.target.name}, from a crowd"

    def summary(self) -> Summary:
        """Return a table of coefficients, averaged, with the least and largest over instances."""
        each = self.instance_coefficients
        return Summary(
            self.title,
            ("", "averaged", "lowest instance", "highest instance"),
            tuple(
                (name, f"{mean:.5g}", f"{low:.5g}", f"{high:.5g}")
                for name, mean, low, high in zip(
                    self.names, self.coefficients, each.min(axis=0), each.max(axis=0), strict=True
                )
            ),
            (
                ("Contributions", f"{self.contributions:,}" if self.contributions else NOBODY),
                ("Price of each", f"epsilon {self.task.contribution_epsilon:g}, local and pure"),
                ("Instances", f"{len(self.instances):,}"),
                ("Caution", CAUTION),
            ),
        )

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw every instance's normalised weights and their average, on `axes` or on new ones.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return plots.instances(
            self.task.weight_names,
            self.weights,
            self.averaged,
            axes,
            title=f"{self.title}, normalised",
            caption="the spread over instances is no standard error",
        )

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it, the coefficients in the data's units, and `start`."""
        coefficients = dict(zip(self.names, map(float, self.coefficients), strict=True))
        more = {"coefficients": coefficients, "start": list(self.as_start())}
        return {**self.model_dump(mode="json"), **more}


def _to_data_units(task: CrowdTask, weights: FloatMatrix) -> FloatMatrix:
    """Return coefficients, shape (..., 1 + m), of normalised weights, shape (..., p)."""
    centres, scales = _bounds(task)
    intercept = weights[..., 0] if task.intercept else np.zeros(weights.shape[:-1])
    slopes = weights[..., -len(scales) :] / scales
    constant = intercept - slopes @ centres
    if task.family == "linear":
        slopes = slopes * task.target.half_range
        constant = task.target.centre + constant * task.target.half_range
    return np.concatenate([constant[..., None], slopes], axis=-1)


def _to_normalised(task: CrowdTask, coefficients: FloatVector) -> FloatVector:
    """Return the normalised weights, shape (p,), of coefficients, shape (1 + m,), in data units.

    Raises:
        ValueError: the task has no intercept, but these coefficients need one.
    """
    centres, scales = _bounds(task)
    constant, slopes = coefficients[0] + coefficients[1:] @ centres, coefficients[1:] * scales
    if task.family == "linear":
        constant = (constant - task.target.centre) / task.target.half_range
        slopes = slopes / task.target.half_range
    if task.intercept:
        return np.concatenate([[constant], slopes])
    if abs(constant) > 1e-9:
        raise ValueError("the task has no intercept, and these weights need one at its bounds")
    return np.asarray(slopes)


def _bounds(task: CrowdTask) -> tuple[FloatVector, FloatVector]:
    centres = np.array([bounds.centre for bounds in task.features])
    return centres, np.array([bounds.half_range for bounds in task.features])

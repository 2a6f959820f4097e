"""A crowd's result: k instances of a model, and their average in the units of the data.

The instances' spread is no posterior and no standard error; `noise_error` is the error that noise
alone gives the average.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_learning.crowds import expectations, stationarity, units
from shoal_learning.crowds.stationarity import Stationarity
from shoal_learning.crowds.theory import Contraction
from shoal_protocol.crowds import updates
from shoal_protocol.crowds.documents import CrowdClosing, Weights
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
        return units.to_data_units(self.task, self.averaged)

    @property
    def instance_coefficients(self) -> FloatMatrix:
        """Every instance's coefficients in the units of the data, shape (k, 1 + m)."""
        return units.to_data_units(self.task, self.weights)

    def predict(self, rows: FloatMatrix) -> FloatVector:
        """Return the averaged model's mean of the target, shape (n,), for `rows`, shape (n, m).

        In the target's units: a probability of its upper bound if it is logistic, an expected
        count if it is Poisson. Features are cut to their bounds, as they were when it was learned.

        Raises:
            ValueError: `rows` does not have one column per feature, or has what is no number.
        """
        return units.predicted(self.task, updates.feature_rows(self.task, rows) @ self.averaged)

    def learning(
        self, *, mean_squares: float | Sequence[float] = expectations.UNIFORM
    ) -> tuple[Contraction, ...]:
        """Return the pull and noise expected of each weight, by guesses of the features.

        `mean_squares` of the normalised features, shape (m,) or one for all; the slope is taken at
        the averaged intercept.

        Raises:
            ValueError: as `expectations.contractions`.
        """
        intercept = float(self.averaged[0]) if self.task.intercept else 0.0
        slope = expectations.slope_at(self.task, intercept)
        return expectations.contractions(self.task, slope=slope, mean_squares=mean_squares)

    def noise_error(
        self, *, mean_squares: float | Sequence[float] = expectations.UNIFORM
    ) -> FloatVector:
        """Return the standard deviation that noise alone gives each averaged weight, shape (p,).

        Normalised, for a start that is forgotten, and in theory: from the task and guesses of the
        features, not from these weights. The records' scatter adds to the error, and so does the
        part `start_left` of the start's error, which dominates after few contributions. At high
        learning rates instances stray to where steps are clipped, and the error is larger.

        Raises:
            ValueError: as `expectations.contractions`.
        """
        learning = self.learning(mean_squares=mean_squares)
        return np.sqrt([each.averaged_variance for each in learning])

    def start_left(
        self,
        *,
        mean_squares: float | Sequence[float] = expectations.UNIFORM,
        open_sessions: float = 0.0,
    ) -> FloatVector:
        """Return which part of the start's error each averaged weight should still have, (p,).

        In theory, as `noise_error`; with so many draws under way at a time, on average.

        Raises:
            ValueError: as `expectations.contractions`, or `open_sessions` is below 0.
        """
        learning = self.learning(mean_squares=mean_squares)
        slowed = [replace(each, open_sessions=open_sessions) for each in learning]
        return np.array([each.pulled(self.contributions) for each in slowed])

    def stationarity(
        self,
        earlier: Sequence[Self],
        *,
        pulled: bool,
        mean_squares: float | Sequence[float] = expectations.UNIFORM,
        window: int | None = None,
    ) -> Stationarity:
        """Tell whether the spread of `earlier` snapshots, ascending, and this is as it should be.

        `pulled` compares with the spread under the gradient's pull, by guesses as in `learning`;
        otherwise with Theorem 1's k sigma^2 / 2, right where nothing is learned. `window`: how many
        of the last updates count; 50 k^2 if it is None. Of a single instance it cannot tell.

        Raises:
            ValueError: a snapshot is another task's, or there are fewer than 2.
        """
        if any(each.task != self.task for each in earlier):
            raise ValueError("every snapshot must be of the same task")
        snapshots = [*earlier, self]
        if pulled and self.task.instances > 1:
            formula = [each.spread for each in self.learning(mean_squares=mean_squares)]
        else:
            resting = self.task.instances * self.task.update_variance / 2.0
            formula = [resting] * self.task.dimension
        return stationarity.judge(
            np.array([each.contributions for each in snapshots], dtype=np.int64),
            np.array([each.spread for each in snapshots]),
            instances=self.task.instances,
            formula=np.array(formula),
            at_most=1.0 + self.task.clip**2 / self.task.noise_variance,
            touched=self.task.touched / self.task.dimension,
            window=window,
        )

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
        return tuple(map(float, units.to_normalised(task, self.coefficients)))

    @property
    def price(self) -> str:
        """What k instances cost in accuracy, in plain words."""
        return expectations.price_in_words(self.task.instances, self.contributions)

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
                ("Contributions", f"{self.contributions:,}"),
                ("Price of each", f"epsilon {self.task.contribution_epsilon:g}, local and pure"),
                ("Instances", self.price),
                *expectations.facts(self.learning, self.contributions),
                ("Caution", CAUTION),
            ),
        )

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw every instance's normalised weights and their average, on `axes` or on new ones.

        A bar is two standard deviations of `noise_error` to each side, and no interval; where the
        formulas end there is none.

        Raises:
            ImportError: matplotlib is not installed.
        """
        try:
            noise, bars = self.noise_error(), "; bars: the noise alone, by theory; no intervals"
        except ValueError:
            noise, bars = None, ""
        return plots.instances(
            self.task.weight_names,
            self.weights,
            self.averaged,
            noise,
            axes,
            title=f"{self.title}, normalised",
            caption=f"the spread over instances is no standard error{bars}",
        )

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as JSON has it, the coefficients in the data's units, and `start`."""
        coefficients = dict(zip(self.names, map(float, self.coefficients), strict=True))
        more = {"coefficients": coefficients, "start": list(self.as_start())}
        return {**self.model_dump(mode="json"), **more}

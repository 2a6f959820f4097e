"""Plans a crowd job (Draw and Discard): learning rate and expected error, from public sizes alone.

What to expect of a job in rounds, a `SimulatedFederation` of invented records says.

The records that a plan assumes are a fixed set of points with weights, so nothing is drawn:
features are evenly spread, and targets are integrated over. A contribution's effect is averaged
over them, and two plans of the same study agree.

Near the point where the mean step is zero a contribution contracts a coefficient's deviation by
learning rate times curvature, and adds noise and the scatter of the record's own score
(`shoal_studies.crowds.theory.Contraction`). At a high learning rate noise spreads the instances so
far that most steps are clipped; pull and scatter are then averaged over a normal law of the weights
(statistical linearisation), whose variance follows from them in turn.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.interpolate import make_interp_spline

from shoal_holder.crowds.schedule import LAST_MOMENTS
from shoal_protocol.crowds.tasks import MOST_INSTANCES, MOST_WEIGHTS, Clipping, CrowdTask, Variant
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.models import Family, probability
from shoal_protocol.wire.documents import Model
from shoal_studies.crowds.theory import Contraction

Positive = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]


class Study(Model):
    """The public sizes and the assumptions from which a crowd job is planned.

    It costs a client pure epsilon, which its contributions share. Each client holds one record.
    Features are assumed to be spread evenly over their bounds and not correlated, with coefficients
    of one size and alternating signs.
    """

    family: Family = Field(description="linear, logistic or poisson")
    clients: int = Field(ge=10, le=10**10, description="how many clients, with one record each")
    features: int = Field(ge=1, le=100, description="features of the regression")
    epsilon: float = Field(gt=0.0, le=100.0, description="what the job may cost one client")

    effect: Annotated[float, Field(gt=0.0, le=100.0)] = Field(
        default=0.3, description="assumed size of a coefficient, on the normalised scale"
    )
    residual_sd: Positive = Field(
        default=0.2, description="assumed scatter of a linear target, in half ranges"
    )
    largest_count: float = Field(
        default=10.0, ge=1.0, le=1000.0, description="a Poisson target's upper bound"
    )

    instances: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="instances of a crowd job, k; as its load or a horizon asks, or 20",
    )
    variant: Variant = Field(default="one", description="one, feature or all")
    clipping: Clipping = Field(default="coordinate", description="coordinate or residual")
    step: Positive | None = Field(
        default=None, description="learning rate of a crowd job; or the best one"
    )
    open_sessions: float = Field(
        default=0.0,
        ge=0.0,
        le=1e9,
        description="clients that have drawn and not yet answered: arrivals a second times seconds",
    )
    contributions_per_client: int = Field(
        default=1,
        ge=1,
        le=1_000_000,
        description="contributions of each client, which share epsilon",
    )
    horizon: int | None = Field(
        default=None,
        ge=1,
        le=10**12,
        description="contributions until the truth may have turned, by effect; or it never does",
    )

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.horizon is not None and self.horizon > self.contributions:
            raise ValueError(
                f"within {self.contributions:,} contributions such a truth does not turn: leave "
                "horizon out"
            )
        return self

    @property
    def coefficients(self) -> int:
        """The number of coefficients, p: the features' and the constant's."""
        return self.features + 1

    @property
    def contributions(self) -> int:
        """How many contributions a crowd job takes in."""
        return self.clients * self.contributions_per_client

    def columns(self) -> dict[str, Any]:
        """Return features and target, as tasks take them."""
        features = tuple(
            ColumnBounds(name=f"feature {place}", lower=-1.0, upper=1.0)
            for place in range(self.features)
        )
        lower = -1.0 if self.family == "linear" else 0.0
        upper = self.largest_count if self.family == "poisson" else 1.0
        return {
            "features": features,
            "target": ColumnBounds(name="target", lower=lower, upper=upper),
        }


ANSWER_SECONDS: Final = 0.5
"""From a draw to its answer, assumed: an agent's step and two requests, on a fair line."""

LITTLE: Final = 0.1
"""Open sessions for each instance that cost at most a tenth of the learning: k / (k + m)."""


_FEWEST: Final = 1e-6  # open sessions on average: one second of two weeks


def assumed_open_sessions(study: Study) -> float:
    """Return how many draws may be under way at a time before the plan is off.

    As many as the study says; if it says none, so few that they cost a tenth of the learning.
    """
    return max(study.open_sessions, _FEWEST) if study.open_sessions else LITTLE * study.instances


def sufficient_open_seconds(study: Study) -> float:
    """Return for how many seconds the job must be open for no more open sessions on average.

    Contributions come evenly over all but the last moments, each open for `ANSWER_SECONDS`.
    """
    return (
        study.contributions * ANSWER_SECONDS / assumed_open_sessions(study) / (1.0 - LAST_MOMENTS)
    )


@dataclass(frozen=True, kw_only=True)
class ErrorParts:
    """Root mean square errors of the p coefficients on the normalised scale, by cause.

    `bias` is what would stay with ever more clients: clipping and priors. `unfinished` is what the
    start is still to blame for, or the lag behind a truth that turned, as a root mean square over
    the horizon. `sampling` is there without privacy, `noise` is its price.
    """

    noise: float
    sampling: float
    bias: float
    unfinished: float

    @property
    def total(self) -> float:
        """The expected error: the root of the sum of squares."""
        return math.hypot(self.noise, self.sampling, self.bias, self.unfinished)

    @classmethod
    def of(cls, **parts: NDArray[np.float64]) -> "ErrorParts":
        """Return the parts, given each coefficient's, shapes (p,)."""
        return cls(**{name: float(np.sqrt(np.mean(part**2))) for name, part in parts.items()})


@dataclass(frozen=True, kw_only=True)
class Prospect:
    """A crowd job's expected error; `settings` are what it was computed for."""

    error: ErrorParts
    settings: Mapping[str, float | int | str]


POINTS: Final = 4096
_NODES: Final = 15  # of Gauss and Hermite's rule for a linear model's residuals
_STEPS: Final = 500
_DIFFERENCE: Final = 1e-5  # of a coefficient, for derivatives
_DIFFERENT: Final = 9  # coefficients whose slopes are computed one by one


_STEEPNESS: Final[dict[Family, Callable[[Floats], Floats]]] = {
    "linear": np.ones_like,
    "logistic": lambda means: means * (1.0 - means),
    "poisson": lambda means: means,
}
"""How a mean rises with its linear predictor, by the mean."""


@dataclass(frozen=True)
class Assumed:
    """The assumed records of a study, as weighted points.

    `features`, shape (n, d), in [-1, 1]; `targets`, shape (n, m), with `weights`, shape (n, m),
    that sum to 1; `truth`, shape (p,), has the constant's coefficient first. A linear model's
    targets are in [-1, 1].
    """

    study: Study
    features: Floats
    targets: Floats
    weights: Floats
    truth: Floats

    @property
    def rows(self) -> Floats:
        """The design, shape (n, p), the constant first."""
        return np.column_stack([np.ones(len(self.features)), self.features])

    def residuals(self, predictors: Floats, every: int = 1) -> Floats:
        """Return target less mean, shape (n, m), at linear predictors, shape (n,).

        They are those of each point, or of every so manieth one.
        """
        return self.targets[::every] - mean_of(self.study, predictors)[:, None]

    def slopes(self) -> Floats:
        """Return how steeply the mean score falls at the truth, shape (p,).

        It is the mean of w x_j^2, with w the derivative of the model's mean.
        """
        rows = self.rows
        steepness = _STEEPNESS[self.study.family](mean_of(self.study, rows @ self.truth))
        return np.asarray(steepness @ rows**2 / len(rows))


def assume(study: Study) -> Assumed:
    """Return the records that are assumed of a study."""
    features = 2.0 * evenly_spread(POINTS, study.features) - 1.0
    truth = study.effect * np.where(np.arange(study.coefficients) % 2 == 0, 1.0, -1.0)
    predictors = truth[0] + features @ truth[1:]
    targets, weights = _outcomes(study, predictors)
    return Assumed(study, features, targets, weights / POINTS, truth)


def mean_of(study: Study, predictors: Floats) -> Floats:
    """Return the model's mean at linear predictors, of any shape."""
    if study.family == "linear":
        return predictors
    if study.family == "logistic":
        return probability(predictors)
    return np.exp(np.minimum(predictors, math.log(study.largest_count)))


def settled(
    mean_step: Callable[[Floats], Floats], start: Floats, *, slopes: Floats
) -> tuple[Floats, Floats]:
    """Return where the mean step is zero, shape (p,), and how steeply it falls there, shape (p,).

    `slopes`, shape (p,), are about how steeply it falls at `start`. What is returned of them is the
    diagonal of the derivative, as a positive number: features are hardly correlated, and those
    beyond the first few are as these.

    Raises:
        ValueError: there is no such point near `start`.
    """
    point = start.copy()
    for _ in range(_STEPS):
        move = mean_step(point) / slopes
        point = point + np.clip(move, -0.5, 0.5)
        if np.abs(move).max() < 1e-9:
            return point, _falls(mean_step, point)
    raise ValueError("the assumed records have no estimate: assume smaller effects or a wider clip")


def evenly_spread(count: int, dimension: int) -> Floats:
    """Return points in the unit cube, shape (count, dimension): multiples of primes' square roots.

    Richtmyer's sequence; up to 100 columns correlate by .16 at most.
    """
    primes = [n for n in range(2, 600) if all(n % divisor for divisor in range(2, n))][:dimension]
    steps = np.sqrt(np.array(primes, dtype=np.float64))
    return (0.5 + np.outer(np.arange(1, count + 1), steps)) % 1.0


def _falls(mean_step: Callable[[Floats], Floats], point: Floats) -> Floats:
    falls = np.empty(len(point))
    few = min(len(point), _DIFFERENT)
    for place in range(few):
        move = np.zeros(len(point))
        move[place] = _DIFFERENCE
        rise = mean_step(point + move) - mean_step(point - move)
        falls[place] = -rise[place] / (2.0 * _DIFFERENCE)
    falls[few:] = falls[1:few].mean()
    return falls


def _outcomes(study: Study, predictors: Floats) -> tuple[Floats, Floats]:
    """Return targets and their weights, shapes (n, m), by linear predictors, shape (n,).

    Of a linear model targets are normal around their means and cut. Of a logistic one they are both
    classes. Of a Poisson model they are counts, the last of which stands for all from there on.
    """
    if study.family == "linear":
        nodes, masses = np.polynomial.hermite_e.hermegauss(_NODES)
        targets = np.clip(predictors[:, None] + study.residual_sd * nodes, -1.0, 1.0)
        return targets, np.broadcast_to(masses / masses.sum(), targets.shape)
    if study.family == "logistic":
        chances = probability(predictors)
        weights = np.column_stack([1.0 - chances, chances])
        return np.broadcast_to(np.array([0.0, 1.0]), weights.shape), weights
    log_rates, top = np.clip(predictors, -700.0, 700.0)[:, None], math.ceil(study.largest_count)
    counts = np.arange(top + 1.0)
    logs = np.array([math.lgamma(count + 1.0) for count in counts])
    weights = np.exp(counts * log_rates - np.exp(log_rates) - logs)
    weights[:, -1] = np.maximum(0.0, 1.0 - weights[:, :-1].sum(axis=1))
    return np.broadcast_to(np.minimum(counts, study.largest_count), weights.shape), weights


CLIP_RATIO: Final[dict[Family, float]] = {"linear": 1.0, "logistic": 1.0, "poisson": 2.0}
"""clip / learning_rate: the largest residual times feature that a step keeps whole."""

_STRAYING: Final = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 33)])
"""Sizes of the instances' variances that are tabled: the mean of variance times fall."""

_EVERY: Final = 16  # of the assumed points, where it is averaged over instances besides
_INSTANCE_NODES: Final = 9  # of Gauss and Hermite's rule, for the predictors of instances
_ITERATIONS: Final = 60
_MOMENTS: Final = 32  # of a horizon, over which the lag is averaged


class Steps:
    """Clipped steps on the assumed records; in units of the learning rate."""

    def __init__(self, assumed: Assumed) -> None:
        """Find where the mean step is zero, and what steps are like around that.

        Raises:
            ValueError: the assumed records have no estimate.
        """
        self._study = assumed.study
        self._assumed = assumed
        self._rows = assumed.rows
        self._settled, self._falls = settled(
            self._mean_step, assumed.truth, slopes=assumed.slopes()
        )
        self._squares = self._mean_step(self._settled, power=2)
        self.fastest = 1.0 / float(self._falls.max())
        """The learning rate above which a touched coefficient would overshoot."""
        table = np.array([self._averaged(size) for size in _STRAYING])
        self._at = make_interp_spline(_STRAYING, table, k=1)
        """Returns mean step, fall and mean square at a size of the variances, shape (3, p)."""

    def error(self, task: CrowdTask, count: int) -> ErrorParts:
        """Return the averaged model's error after `count` contributions; all begins at zero."""
        touched, rate = task.touched / task.dimension, task.learning_rate
        means, falls, drawn = self._around(task, count)
        scattered, left = np.empty(len(falls)), np.empty(len(falls))
        for fall in np.unique(falls):
            brings = Contraction(
                instances=task.instances,
                update_variance=1.0,
                pull=touched * rate * float(fall),
                touched=touched,
                open_sessions=self._study.open_sessions,
            )
            keeps = replace(brings, update_variance=0.0)
            same = falls == fall
            scattered[same] = brings.squared_error_after(count, start_error=0.0)
            left[same] = self._left(keeps, count)
        scattered, left = np.maximum(0.0, scattered), np.maximum(0.0, left)  # but for rounding
        still = np.sqrt(left)
        # records that are used again do not scatter anew: what they have in common stays
        again = 1.0 - 1.0 / self._study.contributions_per_client
        known = (1.0 - still) ** 2
        common = again * known * self._squares / self._falls**2 / self._study.clients
        own = touched * rate**2 * np.minimum(self._squares, drawn)
        return ErrorParts.of(
            # what instances stray by, and so what their steps scatter more, is the noise's doing
            noise=np.sqrt(scattered * (task.update_variance + touched * rate**2 * drawn - own)),
            sampling=np.sqrt(scattered * own + common),
            bias=self._settled + (1.0 - still) * means / falls - self._assumed.truth,
            unfinished=still * self._settled,
        )

    def _left(self, keeps: Contraction, count: int) -> float:
        """Return the part of a square that is left of the start, or of a turn over the horizon."""
        horizon = self._study.horizon
        if horizon is None:
            return keeps.squared_error_after(count, start_error=1.0)
        moments = horizon * (np.arange(_MOMENTS) + 0.5) / _MOMENTS
        return float(np.mean([keeps.squared_error_after(n, start_error=1.0) for n in moments]))

    def time_constant(self, task: CrowdTask) -> float:
        """Return over how many contributions a turn is forgotten but for 1/e, on average."""
        pull = task.touched / task.dimension * task.learning_rate * float(self._falls.mean())
        return (task.instances + self._study.open_sessions) / pull

    def _around(self, task: CrowdTask, count: int) -> tuple[Floats, Floats, Floats]:
        """Return the steps around instances as they stray: their means, falls, and scatter.

        Shapes (p,). Of a step's mean square, what follows from the fall is left out of the scatter.
        """
        rate, noise = task.learning_rate, task.noise_variance
        touches = count * task.touched / task.dimension
        touches /= task.instances + self._study.open_sessions  # of one weight of one instance
        size, variance = 0.0, np.zeros(len(self._falls))
        means, falls, squares = self._at(0.0)
        for _ in range(_ITERATIONS):
            resting = (rate * squares + noise / rate) / (2.0 * falls)
            variance = -np.expm1(-2.0 * rate * falls * touches) * resting
            previous, size = size, min(float(np.mean(variance * self._falls)), _STRAYING[-1])
            means, falls, squares = self._at(size)
            if abs(size - previous) <= 1e-6 * size:
                break
        return means, falls, np.maximum(0.0, squares - falls**2 * variance)

    def _averaged(self, size: float) -> Floats:
        """Return steps averaged over instances that stray, by a variance of `size` over fall.

        Shape (3, p). From fewer points than the exact ones, and so in ratio to what these give
        without straying. Predictors of one row are normal then; by Stein's lemma the mean of step
        times deviation is the variance times the mean slope.
        """
        if size == 0.0:
            return np.array([np.zeros(len(self._falls)), self._falls, self._squares])
        nodes, masses = np.polynomial.hermite_e.hermegauss(_INSTANCE_NODES)
        masses = masses / masses.sum()
        rows = self._rows[::_EVERY]
        weights = self._assumed.weights[::_EVERY]
        strays = np.sqrt(rows**2 @ (size / self._falls))
        near, far = np.zeros((2, 3, len(self._falls)))
        for averages, deviations in ((near, 1e-6 * strays), (far, strays)):
            for node, mass in zip(nodes, masses, strict=True):
                moved = rows @ self._settled + node * deviations
                for place, steps in enumerate(self._steps(moved, _EVERY)):
                    averaged = np.sum(weights * steps, axis=1)
                    slope = -node * np.sum(averaged * rows[:, place] / deviations)
                    square = np.sum(weights * steps**2)
                    averages[:, place] += mass * np.array([averaged.sum(), slope, square])
        falls, squares = self._falls * far[1] / near[1], self._squares * far[2] / near[2]
        return np.array([(far[0] - near[0]) * _EVERY, falls, squares])

    def _mean_step(self, weights: Floats, power: int = 1) -> Floats:
        """Return the mean of each coordinate's clipped step to a power, shape (p,)."""
        steps = self._steps(self._rows @ weights, 1)
        return np.array([np.sum(self._assumed.weights * each**power) for each in steps])

    def _steps(self, predictors: Floats, every: int) -> Iterator[Floats]:
        """Yield each coordinate's clipped steps on every so manieth point, shapes (n, m)."""
        ratio = CLIP_RATIO[self._study.family]
        residuals = self._assumed.residuals(predictors, every)
        if self._study.clipping == "residual":
            residuals = np.clip(residuals, -ratio, ratio)
        for column in self._rows[::every].T:
            yield np.clip(residuals * column[:, None], -ratio, ratio)


_RATES: Final = np.geomspace(1e-9, 1.0, 109)  # learning rates that are tried
_GRID_BITS: Final = 24  # at least; so many that a clip is 2^10 lattice units or more


def crowd_task(study: Study, step: float) -> CrowdTask:
    """Return the task of a crowd job with that learning rate.

    Raises:
        ValueError: so many instances of so many coefficients, or so much noise, are not possible.
    """
    ratio = CLIP_RATIO[study.family]
    each = study.epsilon / study.contributions_per_client
    return CrowdTask(
        family=study.family,
        **study.columns(),
        variant=study.variant,
        clipping=study.clipping,
        clip=ratio * step,
        epsilon=each / (study.coefficients if study.variant == "feature" else 1),
        learning_rate=step,
        instances=study.instances,
        grid_bits=max(_GRID_BITS, 10 + math.ceil(-math.log2(ratio * step))),
    )


def draw_and_discard(study: Study) -> Prospect:
    """Return the expected error of a crowd job's averaged model, at the best learning rate.

    Raises:
        ValueError: the task is not possible, or the assumed records have no estimate.
    """
    assumed = assume(study)
    steps = Steps(assumed)
    rates: Iterable[float] = _RATES.tolist() if study.step is None else [study.step]
    tried = {
        rate: steps.error(crowd_task(study, rate), study.contributions)
        for rate in rates
        if rate < steps.fastest
    }
    if not tried:
        raise ValueError("the step is too long: with it a model would not settle")
    rate = min(tried, key=lambda each: tried[each].total)
    task = crowd_task(study, rate)
    return Prospect(
        error=tried[rate],
        settings={
            "instances": study.instances,
            "open sessions": study.open_sessions,
            "variant": study.variant,
            "epsilon of a contribution": task.contribution_epsilon,
            "contributions": study.contributions,
            "learning rate": rate,
            "time constant in contributions": steps.time_constant(task),
            "clip": task.clip,
            "noise sd on a weight": math.sqrt(task.noise_variance),
        },
    )


def instances_for_load(open_sessions: float, coefficients: int) -> int:
    """Return as many instances as there are open sessions, as far as a crowd job may have them.

    One instance with m open sessions learns from 1 in m + 1 updates, k instances from 1 in k + m:
    up to k = m of them cost at most half of the learning, while each is written k times less often,
    and one stale or bad submission moves the average by 1/k of its change.
    """
    most = min(MOST_INSTANCES, MOST_WEIGHTS // coefficients)
    return int(min(max(1, math.ceil(open_sessions)), most))

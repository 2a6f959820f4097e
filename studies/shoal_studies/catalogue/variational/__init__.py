"""Studies by variational inference: logistic regression, and an analyst's own NumPyro model.

Each round asks `batch` clients for the sum of their clipped gradients (Heikkilä et al. 2017,
section 3.2). The approximation is u ~ N(m, diag(exp(2 r))) in the model's unconstrained space. A
round asks for the gradient of the log-likelihood at u = m + exp(r) xi, with xi standard normal and
public. All else follows from that sum: d/dm is the gradient itself, d/dr the gradient times
exp(r) xi, and prior and entropy are added here, never clipped and never noised. This module steers
the path; `noise_aware` infers the posterior from all its sums. Formulas: docs/mathematics.md,
section 8. Tasks and posteriors need no NumPyro.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from shoal_protocol.jobs.job_request import RoundTerms
from shoal_protocol.queries import Column, GradientSum
from shoal_protocol.queries.columns import ColumnBounds, distinct
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.models import GradientModel, InstalledModel, LogisticRegressionModel
from shoal_protocol.queries.models.numpyro_models import CompiledModel, Latent
from shoal_protocol.queries.sums import in_units
from shoal_protocol.rounds.batches import participations
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.trust.dictionary import Coding, codings_of_target
from shoal_protocol.trust.policy import LARGEST_POPULATION
from shoal_protocol.wire.encoding import Digest
from shoal_studies.catalogue.study import Study, require_features, round_terms
from shoal_studies.catalogue.variational.noise_aware import (
    Inferred,
    Path,
    inferred,
    prior_deviations,
)
from shoal_studies.catalogue.variational.posterior import VariationalPosterior, names_of, packed
from shoal_studies.contract import Learner, RequestedRound
from shoal_studies.posteriors.base import BasePosterior

Positive = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
LearningRate = Annotated[float, Field(ge=1e-6, le=10.0, allow_inf_nan=False)]


class VariationalStudy(Study):
    """How many rounds a study has, of how many clients, and how gradients are bounded.

    `batch` is how many clients a round asks, None all that joined. `clip` bounds the l2 norm of one
    record's gradient: noise grows with it, and what is beyond it is shrunk. `learning_rate` is
    about how far a coordinate moves in a round.
    """

    rounds: Annotated[int, Field(ge=1, le=100_000, strict=True)]
    batch: Annotated[int, Field(ge=2, le=LARGEST_POPULATION, strict=True)] | None
    clip: Positive
    learning_rate: LearningRate = 0.1
    grid_bits: Annotated[int, Field(ge=10, le=30, strict=True)] = 20

    @model_validator(mode="after")
    def _fits_the_grid(self) -> "VariationalStudy":
        if not 1.0 <= self.clip * 2.0**self.grid_bits <= 2.0**30:
            raise ValueError("clip times 2^grid_bits must lie between 1 and 2^30: change grid_bits")
        return self

    @property
    @abstractmethod
    def model(self) -> GradientModel:
        """The model whose gradients are asked for."""

    @property
    def model_columns(self) -> tuple[Column, ...]:
        """The columns of the records that gradients are of."""
        return tuple(bounds.column() for bounds in self.columns)

    def gradient_query(self, point: Sequence[float]) -> GradientSum:
        """Return the query of a round that takes gradients at `point`.

        The point is the trainer's to choose: whatever it is, each gradient is clipped, so a client
        loses no more than the round costs, and a bad point only makes a bad posterior.

        Raises:
            ValueError: the point does not have one coordinate for each latent, or is too far out.
        """
        return GradientSum(
            model=self.model,
            columns=self.model_columns,
            point=tuple(point),
            clip=self.clip,
            grid_bits=self.grid_bits,
            records_per_client=self.records_per_client,
        )

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        """Return the terms of all rounds, which differ in the point alone."""
        dimension = self.model.dimension(len(self.columns))
        return (round_terms(self.gradient_query([0.0] * dimension), rounds=self.rounds),)


class LogisticRegressionTask(VariationalStudy):
    """Bayesian logistic regression: the target is at its upper bound (1) or its lower one (0).

    It shows the algorithm of section 3.2 of Heikkilä et al. 2017 without NumPyro; a `regression`
    tells more. Columns are normalised: centred at the middle of their bounds, divided by half the
    range, and so are the coefficients: the latents are "intercept" and the features' names.
    `intercept` is the constant coordinate in a row (0: no constant term). Coefficients are normal
    with mean 0 and standard deviation `prior_sd`, in these units; what the constant term adds to
    the linear predictor has twice that.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (VariationalPosterior,)
    example: ClassVar[str] = """\
[task]
name = "logistic_regression"
rounds = 100
batch = 400                    # clients asked in a round: more than dropouts + colluders + 1

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]

[target]                       # yes is whatever lies above the middle
smoker = [0, 1]
"""

    name: Literal["logistic_regression"] = "logistic_regression"
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=510)]
    target: ColumnBounds
    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)] = 0.3
    clip: Positive = 1.0
    learning_rate: LearningRate = 0.2
    prior_sd: Positive = 3.0

    @model_validator(mode="after")
    def _consistent(self) -> "LogisticRegressionTask":
        require_features(self.features, self.target.name)
        if 0.0 < self.intercept < 0.01:
            raise ValueError("the intercept must be 0.01 or more, or 0 for no constant term")
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then the target: the columns of a client's records."""
        return (*self.features, self.target)

    @property
    def codings(self) -> tuple[Coding, ...]:
        return (*super().codings, *codings_of_target("logistic", self.target))

    @property
    def model(self) -> LogisticRegressionModel:
        """The model whose gradients are asked for."""
        return LogisticRegressionModel(intercept=self.intercept)

    def learner(self) -> Learner:
        latents = [Latent(name=bounds.name) for bounds in self.features]
        prior_sd = np.full(len(latents), self.prior_sd)
        if self.intercept > 0.0:
            latents.insert(0, Latent(name="intercept"))
            prior_sd = np.append(2.0 * self.prior_sd / self.intercept, prior_sd)
        return Variational(
            self,
            tuple(latents),
            lambda point: -point / prior_sd**2,
            longest=math.hypot(self.intercept, math.sqrt(len(self.features))),
        )


class NumpyroTask(VariationalStudy):
    """Any NumPyro model of one record with global latents, installed at both ends.

    `entry_point` is its name in the group "shoal.models", `digest` that of the sources that hold
    it (`shoal model digest` shows it), `unconstrained` how many numbers its latents are in
    unconstrained space. The model gets the columns in the data's units, cut to their bounds, or
    with `normalised` taken to [-1, 1].
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (VariationalPosterior,)
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
    columns: Annotated[
        tuple[ColumnBounds, ...], Field(min_length=1, max_length=511), AfterValidator(distinct)
    ]
    normalised: bool = False
    clip: Positive = 1.0

    @property
    def model(self) -> InstalledModel:
        """The model whose gradients are asked for."""
        return InstalledModel(
            entry_point=self.entry_point,
            digest=self.digest,
            unconstrained=self.unconstrained,
            normalised=self.normalised,
        )

    def learner(self, model: CompiledModel | None = None) -> Learner:
        """Return what carries out the study.

        Raises:
            ValueError: there is no `model`, or it does not fit the task.
        """
        if model is None:
            raise ValueError(
                "the model that the task names is not at hand: hand over a way to find it"
            )
        if model.dimension != self.unconstrained:
            raise ValueError(
                f"the model's latents are {model.dimension} unconstrained numbers, not the task's "
                f"{self.unconstrained}: correct `unconstrained` in the task"
            )
        return Variational(self, model.latents, model.prior_gradient, bend=_BEND)


INITIAL_LOG_SD: Final = -3.0
"""Log standard deviation of every unconstrained number before the first round."""

_BEND: Final = 1.0  # a scale's logarithm has it; regressions on a canonical link bend less
_SEED: Final = 1703_01106
_FIRST_MOMENT, _SECOND_MOMENT = 0.9, 0.999  # what Adam keeps of them in a round
_FARTHEST: Final = 1e5  # of the mean from 0, and
_LOG_SDS: Final = (-15.0, 3.0)  # bounds of log standard deviations under noise
_TRAVEL: Final = 0.25  # of the rounds, before points are taken from farther away
_REACH: Final = 3.0  # how far then, in standard deviations that the noise gives the answer, and
_HARDLY: Final = 1.05  # times the clip: a twentieth off the longest gradients is not seen
_LARGEST_REACH: Final = 0.5  # at most, where it is not the approximation's own


@dataclass(frozen=True)
class _Step:
    """The approximation of u after round `number`, and Adam's moments, shapes (2 d,).

    `mean` and `log_sd` are its means and log standard deviations, shapes (d,). `reach`, shape (d,),
    is the standard deviation about the mean of the point of the next round.
    """

    mean: Floats
    log_sd: Floats
    first: Floats
    second: Floats
    number: int
    reach: Floats


@dataclass
class _Trail:
    """The sums of the last call, and the steps before, between and after them."""

    population: int = 0
    sums: list[ReleasedSum] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)

    def is_beginning_of(self, sums: Sequence[ReleasedSum]) -> bool:
        """Tell whether `sums` go on from here: the same objects, and perhaps more."""
        if len(self.sums) > len(sums):
            return False
        return all(one is other for one, other in zip(self.sums, sums, strict=False))


@dataclass(frozen=True)
class Variational:
    """The learner of one variational task: of ten rounds or more, a tenth of which may be lost.

    `next` asks for as many rounds as the task has, in each call for one more than there are sums:
    after a round that was lost it is called with the same ones again.

    `latents` are what u, shape (d,), is of, and `prior_gradient` is the gradient of u's log prior
    density. `bend` is how strongly gradients may bend (`noise_aware.Path`), `longest` the length
    that no record's gradient exceeds, at any point.
    """

    task: VariationalStudy
    latents: tuple[Latent, ...]
    prior_gradient: Callable[[Floats], Floats] = field(repr=False)
    bend: float = 0.0
    longest: float = math.inf
    _trail: _Trail = field(default_factory=_Trail, init=False, repr=False, compare=False)

    @property
    def dimension(self) -> int:
        """Length of u, d."""
        return sum(latent.unconstrained for latent in self.latents)

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | VariationalPosterior:
        """Return the next round, or the posterior when `sums` suffice.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        if len(sums) >= self.task.rounds:
            return self.conclude(population, sums)
        now = self._replayed(population, sums)
        point = now.mean + now.reach * self._standard(len(sums))
        query = self.task.gradient_query(point.tolist())
        batch = self.task.batch
        return RequestedRound(
            query=query,
            share=1.0 / participations(self.task.rounds, self.task.batch, population),
            batch=None if batch is None else min(batch, population),
        )

    def conclude(self, population: int, sums: Sequence[ReleasedSum]) -> VariationalPosterior:
        """Return the posterior from the sums that there are, which knows of their noise.

        Of too few of them it is the mean-field approximation: the mean of the path's second half.

        Raises:
            ValueError: as `next`.
        """
        self._replayed(population, sums)
        known = inferred(self._path(population, sums)) if sums else None
        if known is None or not np.all(np.isfinite([known.location, known.scale])):
            known = self.mean_field()
        return VariationalPosterior(
            names=names_of(self.latents),
            columns=tuple(bounds.name for bounds in self.task.columns),
            latents=self.latents,
            records=population * self.task.records_per_client,
            location=tuple(known.location.tolist()),
            scale=tuple(known.scale.tolist()),
            correlation=None if known.factor is None else packed(known.factor),
            convergence=known.convergence,
            prior_sd=tuple(prior_deviations(self.prior_gradient, known.location).tolist()),
        )

    def mean_field(self) -> Inferred:
        """Return the mean of the second half of the path that the last call led along."""
        path = self._trail.steps
        later = path[len(path) // 2 :]
        mean = np.mean([each.mean for each in later], axis=0)
        log_sd = np.mean([each.log_sd for each in later], axis=0)
        return Inferred(mean, np.exp(log_sd))

    def _path(self, population: int, sums: Sequence[ReleasedSum]) -> Path:
        """Return what the sums measured: gradients of the likelihood of all who would answer."""
        asked = population if self.task.batch is None else min(self.task.batch, population)
        counted = np.array([each.cohort_size for each in sums])
        answering = population * float(np.mean([each.cohort_size for each in sums])) / asked
        grid = float(self._own(sums[0]).grid)
        values = np.array([each.values / grid for each in sums])
        noise = np.array([each.noise_sd[0] / grid for each in sums])
        drawn = float(np.mean(counted))
        largest = answering * (self.task.clip * self.task.records_per_client) ** 2
        return Path(
            points=np.array([self._own(each).point for each in sums]),
            gradients=values * (answering / counted)[:, None],
            noise=(noise * answering / counted) ** 2,
            sampling=max(answering / drawn - 1.0, 0.0),
            largest=largest,
            prior=self.prior_gradient,
            bend=self.bend,
            may_clip=self.longest > _HARDLY * self.task.clip,
        )

    def _standard(self, number: int) -> Floats:
        """Return xi of round `number`: public, and of no consequence to privacy."""
        return np.random.default_rng([_SEED, number]).standard_normal(self.dimension)

    def _replayed(self, population: int, sums: Sequence[ReleasedSum]) -> _Step:
        """Return the step after the last of `sums`, and record all approximations in the trail.

        Rounds that the last call computed are not computed again, which only saves time.
        """
        if population < 1 or len(sums) > self.task.rounds:
            raise ValueError("the population must be positive, and no round more than the task's")
        known = self._trail
        if known.population != population or not known.is_beginning_of(sums):
            known.population, known.sums, known.steps = population, [], [self._begin()]
        for released in sums[len(known.sums) :]:
            known.steps.append(self._climb(known.steps[-1], population, released))
            known.sums.append(released)
        return known.steps[-1]

    def _begin(self) -> _Step:
        size = self.dimension
        log_sd, moment = np.full(size, INITIAL_LOG_SD), np.zeros(2 * size)
        return _Step(np.zeros(size), log_sd, moment, moment, 0, np.exp(log_sd))

    def _climb(self, step: _Step, population: int, released: ReleasedSum) -> _Step:
        """Take one step of Adam (Kingma and Ba 2015, arXiv:1412.6980) on the lower bound.

        Where the round looked is read from its query, so that a replay needs no random numbers.
        """
        query = self._own(released)
        point = np.array(query.point)
        gradient = in_units(query, released.values) * (population / released.cohort_size)
        gradient = gradient + self.prior_gradient(point)
        # what exp(r) xi would have been, had the point been no farther from the mean than that;
        # the entropy's gradient in r is 1
        away = (point - step.mean) * np.exp(2.0 * step.log_sd) / step.reach**2
        climb = np.concatenate([gradient, gradient * away + 1.0])
        first = _FIRST_MOMENT * step.first + (1.0 - _FIRST_MOMENT) * climb
        second = _SECOND_MOMENT * step.second + (1.0 - _SECOND_MOMENT) * climb**2
        number = step.number + 1
        mean_climb = first / (1.0 - _FIRST_MOMENT**number)
        size_of_climb = np.sqrt(second / (1.0 - _SECOND_MOMENT**number))
        # where a round's noise is above the largest sum that its gradients could have, move less
        largest = released.cohort_size * query.squared_norm_limit**0.5
        rate = self.task.learning_rate * min(1.0, largest / float(released.noise_sd[0]))
        moved = rate * mean_climb / (size_of_climb + 1e-12)
        mean = np.clip(step.mean + moved[: self.dimension], -_FARTHEST, _FARTHEST)
        log_sd = np.clip(step.log_sd + moved[self.dimension :], *_LOG_SDS)
        noise = float(released.noise_sd[0]) / query.grid * population / released.cohort_size
        return _Step(mean, log_sd, first, second, number, self._reach(log_sd, number, noise))

    def _reach(self, log_sd: Floats, number: int, noise: float) -> Floats:
        """Return how far from the mean to look: far enough to see the curvature through the noise.

        `noise` is that of one gradient. With curvature exp(-2 r) it gives the answer a standard
        deviation of noise exp(2 r) / sqrt(T).
        """
        own: Floats = np.exp(log_sd)
        if number < _TRAVEL * self.task.rounds:
            return own
        far = _REACH * noise * own**2 / np.sqrt(self.task.rounds)
        return np.asarray(np.maximum(own, np.minimum(far, _LARGEST_REACH)))

    def _own(self, released: ReleasedSum) -> GradientSum:
        query = released.query
        if not isinstance(query, GradientSum) or query != self.task.gradient_query(query.point):
            raise ValueError("a sum answers another task's query")
        return query

"""Variational inference from noisy gradient sums (Heikkilä et al. 2017, section 3.2).

The approximation is u ~ N(m, diag(exp(2 r))) in the model's unconstrained space. A round asks for
the gradient of the log-likelihood at u = m + exp(r) xi, with xi standard normal and public. All
else follows from that sum: d/dm is the gradient itself, d/dr the gradient times exp(r) xi, and
prior and entropy are added here, never clipped and never noised. This module steers the path;
`noise_aware` infers the posterior from all its sums. Formulas: docs/mathematics.md, section 8.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shoal_protocol.queries import GradientSum
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.models.numpyro_models import Latent
from shoal_protocol.queries.sums import in_units
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.variational import VariationalStudy
from shoal_studies.contract import RequestedRound
from shoal_studies.noise_aware import Inferred, Path, inferred, prior_deviations
from shoal_studies.posteriors.variational import VariationalPosterior, names_of, packed

INITIAL_LOG_SD: Final = -3.0
"""Log standard deviation of every unconstrained number before the first round."""

_SEED: Final = 1703_01106
_FIRST_MOMENT, _SECOND_MOMENT = 0.9, 0.999  # what Adam keeps of them in a round
_FARTHEST: Final = 1e5  # of the mean from 0, and
_LOG_SDS: Final = (-15.0, 3.0)  # bounds of log standard deviations under noise
_TRAVEL: Final = 0.25  # of the rounds, before points are taken from farther away
_REACH: Final = 3.0  # how far then, in standard deviations that the noise gives the answer, and
_HARDLY: Final = 1.05  # times the clip: a twentieth off the longest gradients is not seen
_LARGEST_REACH: Final = 0.5  # at most, where it is not the approximation's own


@dataclass(frozen=True)
class Approximation:
    """The approximation of u: means and log standard deviations, shapes (d,)."""

    mean: Floats
    log_sd: Floats


@dataclass(frozen=True)
class _Step:
    """The approximation after round `number`, and Adam's moments, shapes (2 d,).

    `reach`, shape (d,), is the standard deviation about the mean of the point of the next round.
    """

    belief: Approximation
    first: Floats
    second: Floats
    number: int
    reach: Floats


@dataclass
class _Trail:
    """The sums of the last call, the approximation before each, and the last step."""

    population: int = 0
    sums: list[ReleasedSum] = field(default_factory=list)
    beliefs: list[Approximation] = field(default_factory=list)
    last: _Step | None = None

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
        point = now.belief.mean + now.reach * self._standard(len(sums))
        query = self.task.gradient_query(point.tolist())
        batch = self.task.batch
        return RequestedRound(
            query=query,
            share=1.0 / self.task.participations(population),
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
        last = self._trail.last or self._begin()
        path = [*self._trail.beliefs, last.belief]
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
        last = known.last
        if last is None or known.population != population or not known.is_beginning_of(sums):
            known.population, known.sums, known.beliefs = population, [], []
            last = known.last = self._begin()
        for released in sums[len(known.sums) :]:
            known.beliefs.append(last.belief)
            last = known.last = self._climb(last, population, released)
            known.sums.append(released)
        return last

    def _begin(self) -> _Step:
        size = self.dimension
        belief = Approximation(np.zeros(size), np.full(size, INITIAL_LOG_SD))
        return _Step(belief, np.zeros(2 * size), np.zeros(2 * size), 0, np.exp(belief.log_sd))

    def _climb(self, step: _Step, population: int, released: ReleasedSum) -> _Step:
        """Take one step of Adam (Kingma and Ba 2015, arXiv:1412.6980) on the lower bound.

        Where the round looked is read from its query, so that a replay needs no random numbers.
        """
        query, believed = self._own(released), step.belief
        point = np.array(query.point)
        gradient = in_units(query, released.values) * (population / released.cohort_size)
        gradient = gradient + self.prior_gradient(point)
        # what exp(r) xi would have been, had the point been no farther from the mean than that;
        # the entropy's gradient in r is 1
        away = (point - believed.mean) * np.exp(2.0 * believed.log_sd) / step.reach**2
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
        mean = np.clip(believed.mean + moved[: self.dimension], -_FARTHEST, _FARTHEST)
        log_sd = np.clip(believed.log_sd + moved[self.dimension :], *_LOG_SDS)
        belief = Approximation(mean, log_sd)
        noise = float(released.noise_sd[0]) / query.grid * population / released.cohort_size
        return _Step(belief, first, second, number, self._reach(belief, number, noise))

    def _reach(self, belief: Approximation, number: int, noise: float) -> Floats:
        """Return how far from the mean to look: far enough to see the curvature through the noise.

        `noise` is that of one gradient. With curvature exp(-2 r) it gives the answer a standard
        deviation of noise exp(2 r) / sqrt(T).
        """
        own: Floats = np.exp(belief.log_sd)
        if number < _TRAVEL * self.task.rounds:
            return own
        far = _REACH * noise * own**2 / np.sqrt(self.task.rounds)
        return np.asarray(np.maximum(own, np.minimum(far, _LARGEST_REACH)))

    def _own(self, released: ReleasedSum) -> GradientSum:
        query = released.query
        if not isinstance(query, GradientSum) or query != self.task.gradient_query(query.point):
            raise ValueError("a sum answers another task's query")
        return query

"""Variational inference from noisy gradient sums (Heikkilä et al. 2017, section 3.2); does no I/O.

The approximation is u ~ N(m, diag(exp(2 r))) in the model's unconstrained space. A round asks for
the gradient of the log-likelihood at u = m + exp(r) xi, with xi standard normal and public. All
else follows from that sum: d/dm is the gradient itself, d/dr the gradient times exp(r) xi, and
prior and entropy are added here, never clipped and never noised. Formulas: docs/mathematics.md.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.contract import RequestedRound
from shoal_protocol.errors import RefusedSpec
from shoal_protocol.hidden_participation import HiddenParticipation
from shoal_protocol.posteriors import Posterior
from shoal_protocol.queries import GradientSum
from shoal_protocol.questions import ReleasedSum
from shoal_protocol.questions.variational import check_query, gradient_query
from shoal_protocol.tasks.variational import VariationalTask

FloatVector = NDArray[np.float64]

INITIAL_LOG_SD: Final = -3.0
"""Log standard deviation of every unconstrained number before the first round."""

_SEED: Final = 1703_01106
_FIRST_MOMENT, _SECOND_MOMENT = 0.9, 0.999  # what Adam keeps of them in a round
_FARTHEST: Final = 1e5  # of the mean from 0, and
_LOG_SDS: Final = (-15.0, 3.0)  # where log standard deviations may go: noise carries nothing off


@dataclass(frozen=True)
class Approximation:
    """What is believed of u: means and log standard deviations, shapes (d,)."""

    mean: FloatVector
    log_sd: FloatVector


@dataclass(frozen=True)
class _Step:
    """What was believed after round `number`, and Adam's moments of the climb, shapes (2 d,)."""

    belief: Approximation
    first: FloatVector
    second: FloatVector
    number: int


@dataclass
class _Trail:
    """The sums that the last call was given, and the steps that they led to."""

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
    """The learner of one variational task.

    `dimension` is d, `prior_gradient` the gradient of u's log prior density, and `posterior` makes
    the task's posterior of an approximation and the number of records.
    """

    task: VariationalTask
    dimension: int
    prior_gradient: Callable[[FloatVector], FloatVector] = field(repr=False)
    posterior: Callable[[Approximation, int], Posterior] = field(repr=False)
    _trail: _Trail = field(default_factory=_Trail, init=False, repr=False, compare=False)

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | Posterior:
        """Return the next round, or the posterior when `sums` suffice.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        if len(sums) >= self.task.rounds:
            return self.conclude(population, sums)
        now = self._replayed(population, sums)[-1]
        point = now.mean + np.exp(now.log_sd) * self._standard(len(sums))
        query = gradient_query(self.task, point.tolist())
        if self.task.participation is not None:
            hidden = HiddenParticipation(
                rate=self.task.participation, rounds=self.task.rounds, prepaid_by=None
            )
            return RequestedRound(query=query, share=1.0, hidden=hidden)
        batch = self.task.batch
        return RequestedRound(
            query=query,
            share=1.0 / self.task.participations(population),
            batch=None if batch is None else min(batch, population),
        )

    def conclude(self, population: int, sums: Sequence[ReleasedSum]) -> Posterior:
        """Return the posterior from the sums that there are: the mean of the path's second half.

        Raises:
            ValueError: as `next`.
        """
        path = self._replayed(population, sums)
        later = path[len(path) // 2 :]
        average = Approximation(
            np.mean([each.mean for each in later], axis=0),
            np.mean([each.log_sd for each in later], axis=0),
        )
        return self.posterior(average, population * self.task.records_per_client)

    def _standard(self, number: int) -> FloatVector:
        """Return xi of round `number`: public, and of no consequence to privacy."""
        return np.random.default_rng([_SEED, number]).standard_normal(self.dimension)

    def _replayed(self, population: int, sums: Sequence[ReleasedSum]) -> list[Approximation]:
        """Return what was believed before the first round and after each.

        Rounds that the last call has seen too are not computed again: that saves time and changes
        nothing.
        """
        if population < 1 or len(sums) > self.task.rounds:
            raise ValueError("the population must be positive, and no round more than the task's")
        known = self._trail
        if known.population != population or not known.is_beginning_of(sums):
            known.population, known.sums, known.steps = population, [], [self._begin()]
        for released in sums[len(known.sums) :]:
            known.steps.append(self._climb(known.steps[-1], population, released))
            known.sums.append(released)
        return [step.belief for step in known.steps]

    def _begin(self) -> _Step:
        size = self.dimension
        belief = Approximation(np.zeros(size), np.full(size, INITIAL_LOG_SD))
        return _Step(belief, np.zeros(2 * size), np.zeros(2 * size), 0)

    def _climb(self, step: _Step, population: int, released: ReleasedSum) -> _Step:
        """Take one step of Adam (Kingma and Ba 2015, arXiv:1412.6980) on the lower bound.

        Where the round looked is read from its query, so that a replay needs no random numbers.
        """
        query, believed = self._own(released), step.belief
        point = np.array(query.point)
        counted = released.cohort_size * (self.task.participation or 1.0)
        gradient = query.gradient_from(released.values) * (population / counted)
        gradient = gradient + self.prior_gradient(point)
        # exp(r) xi is how far the point was from the mean; the entropy's gradient in r is 1
        climb = np.concatenate([gradient, gradient * (point - believed.mean) + 1.0])
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
        return _Step(Approximation(mean, log_sd), first, second, number)

    def _own(self, released: ReleasedSum) -> GradientSum:
        query = released.query
        try:
            check_query(query, self.task)
        except RefusedSpec:
            raise ValueError("a sum answers another task's query") from None
        assert isinstance(query, GradientSum)  # noqa: S101
        return query

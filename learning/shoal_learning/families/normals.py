"""Normal means and covariances from noisy second moments: the learners of both normal families.

The moments are those of normalised records with a constant k: k times a column's sum is off the
diagonal of the matrix. The number of records is seen through noise: chains of several numbers are
mixed, by what the noisy count says of each. What the moments themselves say of it is not used.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np

from shoal_learning.contract import NoReliablePosterior, RequestedRound
from shoal_learning.families.one_round import (
    Floats,
    OneRound,
    PosteriorT,
    SummedNoise,
    generator_for,
    noise_of,
    record_counts,
)
from shoal_protocol.posteriors.forms import thinned
from shoal_protocol.queries import SecondMomentMatrix
from shoal_protocol.queries.sums import matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.studies.measurements import record_count
from shoal_protocol.studies.normals import (
    MultivariateNormalPosterior,
    MultivariateNormalTask,
    NormalPosterior,
    NormalTask,
)


@dataclass(frozen=True, kw_only=True)
class NormalInverseWishart:
    """Sigma ~ IW(freedom, scatter), mean | Sigma ~ N(location, Sigma / mean_records).

    Shapes (d,) and (d, d), in normalised units; freedom > d - 1.
    """

    location: Floats
    mean_records: float
    freedom: float
    scatter: Floats


@dataclass(frozen=True)
class NormalDraws:
    """Draws of the mean, shape (..., d), and of the covariance, shape (..., d, d).

    `divergences` of all the sampler's trajectories behind them.
    """

    means: Floats
    covariances: Floats
    divergences: int


def prior_draws(
    shape: tuple[int, ...], prior: NormalInverseWishart, generator: np.random.Generator
) -> NormalDraws:
    """Return draws of the prior, leading shape `shape`."""
    size = len(prior.location)
    means = np.broadcast_to(prior.location, (*shape, size))
    nothing = np.zeros((*shape, size, size))
    return NormalDraws(*conjugate(means, nothing, np.zeros(shape), prior, generator), 0)


def conjugate(
    means: Floats,
    factors: Floats,
    records: Floats,
    prior: NormalInverseWishart,
    generator: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Draw mean and covariance given true moments: one draw of each posterior.

    The covariance is R W^-1 R' with Psi_n = R R' and W Wishart by Bartlett's decomposition.
    """
    size = means.shape[-1]
    weight = prior.mean_records + records
    away = means - prior.location
    shrink = (prior.mean_records * records / weight)[..., None, None]
    psi = prior.scatter + records[..., None, None] * (factors @ np.swapaxes(factors, -1, -2))
    psi = psi + shrink * away[..., :, None] * away[..., None, :]
    freedom = np.broadcast_to((prior.freedom + records)[..., None], means.shape) - np.arange(size)
    bartlett = np.tril(generator.standard_normal((*means.shape, size)), -1)
    index = np.arange(size)
    bartlett[..., index, index] = np.sqrt(generator.chisquare(freedom))
    root = np.linalg.solve(bartlett, np.swapaxes(np.linalg.cholesky(psi), -1, -2))
    covariances = np.swapaxes(root, -1, -2) @ root
    centre = prior.location + (records / weight)[..., None] * away
    standard = generator.standard_normal(means.shape)
    scattered = np.einsum("...ji,...j->...i", root, standard)
    return centre + scattered / np.sqrt(weight)[..., None], covariances


LogDensity = Callable[[Floats], tuple[Floats, Floats]]
"""Positions, shape (groups, chains, d), to log densities, shape (groups, chains), and gradients."""

Kernel = Callable[[Floats, np.random.Generator], Floats]
"""Positions to positions, leaving the density invariant."""

LARGEST_R_HAT: Final = 1.05
_LARGEST_ERROR: Final = 1000.0  # of a trajectory's energy; beyond it diverges (Stan's bound)
_ATTEMPTS: Final = 4  # each with twice the draws of the one before
_TARGET: Final = 0.8  # of proposals accepted
_PATH: Final = 1.6  # length of a trajectory in standard deviations, on average


class NoConvergence(NoReliablePosterior):
    """The chains disagree: there is no posterior to be reported."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How many rounds of adaptation there are, their length, and how many draws are kept at least.

    A trajectory has at most `longest` leapfrog steps.
    """

    adaptations: int
    adaptation_length: int
    kept: int
    longest: int


@dataclass(frozen=True)
class Draws:
    """Draws, shape (kept, groups, chains, d); `divergences` of the trajectories after the warm-up.

    One diverges if its energy is wrong by more than 1000, or no number (Betancourt 2017,
    arXiv:1701.02434): where many do, the density bends more sharply than the steps can follow.
    """

    values: Floats
    divergences: int


@dataclass
class _State:
    position: Floats
    log_density: Floats
    gradient: Floats
    divergences: int = 0


def sample(
    log_density: LogDensity,
    start: Floats,
    schedule: Schedule,
    generator: np.random.Generator,
    kernel: Kernel | None = None,
    *,
    strata: int = 1,
) -> Draws:
    """Return draws of each group's density.

    `start`, shape (groups, chains, d), should be spread at least as wide as the density. `kernel`,
    if there is one, moves the chains between trajectories. A group's chains are of as many `strata`
    as its density has variants, each of equally many chains in a row, which must agree.

    Raises:
        NoConvergence: R-hat (Gelman et al. 2013, section 11.4, split chains) is above 1.05.
    """
    state = _State(start, *log_density(start))
    size = np.full(len(start), 0.5 * start.shape[-1] ** -0.25)

    def move() -> Floats:
        if kernel is not None:
            position = kernel(state.position, generator)
            state.position = position
            state.log_density, state.gradient = log_density(position)
        return _step(log_density, state, roots, size, schedule.longest, generator)

    roots = _roots(start)
    for round_ in range(schedule.adaptations):
        positions = []
        for _ in range(schedule.adaptation_length):
            accepted = move()
            size = np.clip(size * np.exp(0.4 * (accepted.mean(axis=1) - _TARGET)), 1e-4, 2.0)
            positions.append(state.position)
        late = np.concatenate(positions[len(positions) // 2 :], axis=1)
        if round_ < schedule.adaptations - 1:
            roots = _roots(late)
    worst = math.inf
    state.divergences = 0
    for attempt in range(_ATTEMPTS):
        draws = np.empty((schedule.kept << attempt, *start.shape))
        for index in range(len(draws)):
            move()
            draws[index] = state.position
        worst = float(
            r_hat(draws.reshape(len(draws), len(start) * strata, -1, start.shape[-1])).max()
        )
        if worst <= LARGEST_R_HAT:
            return Draws(draws, state.divergences)
    raise NoConvergence(
        f"the sampler's chains disagree (R-hat {worst:.2f}): no posterior is reported; ask for "
        "fewer columns or allow a larger epsilon"
    )


def r_hat(draws: Floats) -> Floats:
    """Return the split R-hat of each coordinate, shape (groups, d), of draws (s, groups, c, d)."""
    half = len(draws) // 2
    halves = np.concatenate([draws[:half], draws[half : 2 * half]], axis=2)
    within = halves.var(axis=0, ddof=1).mean(axis=1)
    between = half * halves.mean(axis=0).var(axis=1, ddof=1)
    return np.asarray(np.sqrt((half - 1) / half + between / (half * np.maximum(within, 1e-300))))


def _roots(positions: Floats) -> Floats:
    """Return Cholesky factors of the groups' covariances, slightly shrunk to their diagonal."""
    count = positions.shape[1]
    centred = positions - positions.mean(axis=1, keepdims=True)
    covariance = np.einsum("gci,gcj->gij", centred, centred) / count
    weight = count / (count + 5.0)
    diagonal = np.einsum("gii->gi", covariance)
    shrunk = weight * covariance
    index = np.arange(positions.shape[2])
    shrunk[:, index, index] = np.maximum(diagonal, 1e-20) * (1.0 + 1e-9)
    return np.asarray(np.linalg.cholesky(shrunk))


def _step(
    log_density: LogDensity,
    state: _State,
    roots: Floats,
    size: Floats,
    most_steps: int,
    generator: np.random.Generator,
) -> Floats:
    """Move the state by one trajectory; return the probabilities of acceptance, (groups, chains).

    Momenta are of unit mass in coordinates that the roots whiten. The number of steps is drawn
    anew each time, so that no trajectory resonates.
    """
    groups, chains, _ = state.position.shape
    momentum = generator.standard_normal(state.position.shape)
    longest = int(np.clip(np.ceil(2.0 * _PATH / size.min()), 2, most_steps))
    steps = int(generator.integers(1, longest + 1))
    step = (size[:, None, None]) * generator.uniform(0.8, 1.2)
    energy = state.log_density - 0.5 * np.sum(momentum**2, axis=2)
    position, gradient, log_value = state.position, state.gradient, state.log_density
    with np.errstate(all="ignore"):  # a trajectory that leaves the numbers is refused below
        for _ in range(steps):
            momentum = momentum + 0.5 * step * _whitened(gradient, roots)
            position = position + step * np.einsum("gij,gcj->gci", roots, momentum)
            log_value, gradient = log_density(position)
            momentum = momentum + 0.5 * step * _whitened(gradient, roots)
        change = log_value - 0.5 * np.sum(momentum**2, axis=2) - energy
        change = np.where(np.isfinite(change), change, -np.inf)
        accepted = np.exp(np.minimum(change, 0.0))
    state.divergences += int(np.sum(change < -_LARGEST_ERROR))
    taken = generator.random((groups, chains)) < accepted
    state.position = np.where(taken[..., None], position, state.position)
    state.gradient = np.where(taken[..., None], gradient, state.gradient)
    state.log_density = np.where(taken, log_value, state.log_density)
    return np.asarray(accepted)


def _whitened(gradient: Floats, roots: Floats) -> Floats:
    return np.asarray(np.einsum("gji,gcj->gci", roots, gradient))


SCHEDULE: Final = Schedule(adaptations=6, adaptation_length=50, kept=100, longest=48)
ROUGH_SCHEDULE: Final = Schedule(adaptations=5, adaptation_length=40, kept=100, longest=8)
"""For Laplace noise, whose density has kinks: shorter trajectories, and refreshed coordinates."""
CHAINS: Final = 64
STRATA: Final = 4
"""Numbers of records that the chains of a group stand for, equally many chains each."""

_REFRESHES: Final = 6  # between two trajectories
_SMALLEST_VARIANCE: Final = 1e-20
_LARGEST_POSITION: Final = 1e6
_LARGEST_LOG: Final = 30.0  # of the factor's diagonal, in normalised units


@dataclass(frozen=True, kw_only=True)
class NoisyScatter:
    """Noisy sums of x, shape (..., d), and of x x', shape (..., d, d), of so many records.

    `square_noise` is on the diagonal of x x', `cross_noise` off it. `records` has shape
    (..., chains), and is the same number in every chain of a stratum.
    """

    sums: Floats
    squares: Floats
    sum_noise: SummedNoise
    square_noise: SummedNoise
    cross_noise: SummedNoise
    records: Floats


def draw_normals(
    noisy: NoisyScatter,
    prior: NormalInverseWishart,
    generator: np.random.Generator,
    schedule: Schedule | None = None,
) -> NormalDraws:
    """Return draws of mean and covariance, leading shape (kept, groups, chains).

    `schedule` None is long enough for what was tried. `noisy` holds one group of moments or more,
    each sampled by chains of its own. Chains of fewer records than can tell a covariance give draws
    of the prior: behind noise that hides any one record, so few say next to nothing.

    Raises:
        NoConvergence: the sampler's chains disagree.
    """
    few = noisy.records < fewest_records(noisy.sums.shape[-1])
    if few.all():
        shape = ((schedule or SCHEDULE).kept, *noisy.records.shape)
        return prior_draws(shape, prior, generator)
    usable = np.min(noisy.records, axis=-1, where=~few, initial=float(noisy.records.max()))
    target = _Target(replace(noisy, records=np.where(few, usable[..., None], noisy.records)), prior)
    start = target.start(generator)
    if noisy.sum_noise.mechanism == "discrete_gaussian":
        draws = sample(target, start, schedule or SCHEDULE, generator, strata=STRATA)
    else:
        draws = sample(
            target, start, schedule or ROUGH_SCHEDULE, generator, target.refresh, strata=STRATA
        )
    true_means, factors = target.moments(draws.values)
    true_means = np.where(few[..., None], prior.location, true_means)
    factors = np.where(few[..., None, None], 0.0, factors)
    records = np.where(few, 0.0, noisy.records)
    means, covariances = conjugate(true_means, factors, records, prior, generator)
    return NormalDraws(means, covariances, draws.divergences)


def fewest_records(columns: int) -> int:
    """Return how many records can tell a covariance of so many columns."""
    return 2 * columns + 4


class _Target:
    """The log density of s/n and the Cholesky factor of S/n, by coordinates without a funnel.

    These are the factor's diagonal, in logarithms, and its rows divided by their diagonal.
    """

    def __init__(self, noisy: NoisyScatter, prior: NormalInverseWishart) -> None:
        self._noisy, self._prior = noisy, prior
        self._size = noisy.sums.shape[-1]
        self._lower = np.tril_indices(self._size)
        self._diagonal = np.flatnonzero(self._lower[0] == self._lower[1])
        # With fewer records than columns S is singular: then no power of its determinant counts.
        self._power = np.maximum(noisy.records - self._size - 2.0, -1.0)
        self._jacobian = (
            self._size + 1.0
        )  # d - j for Q by the factor, j for its rows, 1 for the log

    def moments(self, position: Floats) -> tuple[Floats, Floats]:
        """Return s/n, shape (..., d), and the Cholesky factor of S/n, shape (..., d, d)."""
        size = self._size
        factors = np.zeros((*position.shape[:-1], size, size))
        factors[..., self._lower[0], self._lower[1]] = position[..., size:]
        index = np.arange(size)
        scales = np.exp(factors[..., index, index])
        factors[..., index, index] = 1.0
        return position[..., :size], factors * scales[..., None]

    def start(self, generator: np.random.Generator) -> Floats:
        """Return positions around the nearest positive definite moments, spread as the noise."""
        noisy, size = self._noisy, self._size
        records = noisy.records[..., None]
        shape = (*noisy.records.shape, size)
        sums = noisy.sums[..., None, :] + noisy.sum_noise.sd * generator.standard_normal(shape)
        means = np.clip(sums / records, -1.5, 1.5)
        noise = self._noise(generator)
        squares = (noisy.squares[..., None, :, :] + noise) / records[..., None]
        squares = squares - means[..., :, None] * means[..., None, :]
        values, vectors = np.linalg.eigh(squares)
        floor = np.minimum(0.5 * noisy.square_noise.sd * math.sqrt(size) / records, 0.1)
        values = np.maximum(values, floor * np.exp(0.5 * generator.standard_normal(values.shape)))
        values = np.minimum(values, float(size))  # of few records noise alone may tell of more
        raised = np.einsum("...ij,...j,...kj->...ik", vectors, values, vectors)
        return self._position(means, np.linalg.cholesky(raised))

    def __call__(self, position: Floats) -> tuple[Floats, Floats]:
        """Return log densities, shape (...), and gradients, shape (..., d + d (d + 1) / 2)."""
        noisy, prior, size = self._noisy, self._prior, self._size
        n = noisy.records
        # A trajectory that has left what can be computed stands still, and is refused.
        lost = ~np.all(np.abs(position) < _LARGEST_POSITION, axis=-1)
        lost |= np.any(np.abs(position[..., size + self._diagonal]) > _LARGEST_LOG, axis=-1)
        position = np.where(lost[..., None], 0.0, position)
        wide, wider = n[..., None], n[..., None, None]
        index, (rows, columns) = np.arange(size), np.triu_indices(size, 1)
        means, factors = self.moments(position)
        logs = position[..., size + self._diagonal]
        away = means - prior.location
        pooled = factors @ np.swapaxes(factors, -1, -2)
        psi, log_determinant, shrink = self._scatter(means, pooled)
        inverse = np.linalg.inv(psi)
        freedom = prior.freedom + n
        square_gaps = noisy.squares[..., None, :, :] - wider * (
            pooled + means[..., :, None] * means[..., None, :]
        )
        sum_gaps = noisy.sums[..., None, :] - wide * means
        value = (
            self._power * logs.sum(axis=-1)
            + self._jacobian * logs.sum(axis=-1)
            - 0.5 * freedom * log_determinant
            + noisy.square_noise.log_density(square_gaps[..., index, index]).sum(axis=-1)
            + noisy.cross_noise.log_density(square_gaps[..., rows, columns]).sum(axis=-1)
            + noisy.sum_noise.log_density(sum_gaps).sum(axis=-1)
        )
        # Derivatives by the symmetric Q: each off-diagonal entry stands for two.
        by_squares = np.zeros_like(square_gaps)
        by_squares[..., rows, columns] = -0.5 * noisy.cross_noise.slope(
            square_gaps[..., rows, columns]
        )
        by_squares += np.swapaxes(by_squares, -1, -2)
        by_squares[..., index, index] = -noisy.square_noise.slope(square_gaps[..., index, index])
        by_factor = 2.0 * wider * (by_squares @ factors)
        by_factor -= freedom[..., None, None] * wider * (inverse @ factors)
        by_mean = 2.0 * wide * np.einsum("...ij,...j->...i", by_squares, means)
        by_mean -= wide * noisy.sum_noise.slope(sum_gaps)
        by_mean -= (freedom * shrink)[..., None] * np.einsum("...ij,...j->...i", inverse, away)
        scales = np.exp(logs)
        flat = (by_factor * scales[..., None])[..., self._lower[0], self._lower[1]]
        flat[..., self._diagonal] = (by_factor * factors).sum(
            axis=-1
        )  # a row's scale is in all of it
        flat[..., self._diagonal] += self._power[..., None] + self._jacobian
        gradient = np.concatenate([by_mean, flat], axis=-1)
        return np.where(lost, -np.inf, value), np.where(lost[..., None], 0.0, gradient)

    def refresh(self, position: Floats, generator: np.random.Generator) -> Floats:
        """Exchange the noise of some coordinates for fresh noise, where the prior accepts that.

        An independence sampler on random blocks: proposals are noisy moments less fresh noise, so
        the noise's density cancels in Metropolis' ratio, kinks and all.
        """
        noisy, size = self._noisy, self._size
        n = noisy.records
        lower = self._lower
        means, factors = self.moments(position)
        sums = n[..., None] * means
        squares = factors @ np.swapaxes(factors, -1, -2) + means[..., :, None] * means[..., None, :]
        squares = n[..., None, None] * squares
        logs, _ = self._log_prior(sums, squares)
        for _ in range(_REFRESHES):
            share = 0.5 ** generator.integers(0, 1 + int(math.log2(position.shape[-1])), n.shape)
            fresh = generator.random(position.shape) < share[..., None]
            new_sums = noisy.sums[..., None, :] - noisy.sum_noise.draw(sums.shape, generator)
            noise = self._noise(generator)
            chosen = np.zeros(squares.shape, dtype=np.bool_)
            chosen[..., lower[0], lower[1]] = fresh[..., size:]
            chosen |= np.swapaxes(chosen, -1, -2)
            new_sums = np.where(fresh[..., :size], new_sums, sums)
            new_squares = np.where(chosen, noisy.squares[..., None, :, :] - noise, squares)
            new_logs, _ = self._log_prior(new_sums, new_squares)
            taken = np.log(generator.random(n.shape)) < new_logs - logs
            sums = np.where(taken[..., None], new_sums, sums)
            squares = np.where(taken[..., None, None], new_squares, squares)
            logs = np.where(taken, new_logs, logs)
        _, factors = self._log_prior(sums, squares)
        return self._position(sums / n[..., None], factors)

    def _noise(self, generator: np.random.Generator) -> Floats:
        """Return symmetric matrices of fresh noise, one for each chain."""
        noisy, size = self._noisy, self._size
        index, (rows, columns) = np.arange(size), np.triu_indices(size, 1)
        shape = noisy.records.shape
        noise = np.zeros((*shape, size, size))
        noise[..., rows, columns] = noisy.cross_noise.draw((*shape, len(rows)), generator)
        noise += np.swapaxes(noise, -1, -2)
        noise[..., index, index] = noisy.square_noise.draw((*shape, size), generator)
        return noise

    def _position(self, means: Floats, factors: Floats) -> Floats:
        scales = np.diagonal(factors, axis1=-2, axis2=-1)
        flat = factors / scales[..., None]
        flat = flat + np.eye(self._size) * (np.log(scales) - 1.0)[..., None]
        return np.concatenate([means, flat[..., self._lower[0], self._lower[1]]], axis=-1)

    def _log_prior(self, sums: Floats, squares: Floats) -> tuple[Floats, Floats]:
        """Return ln p(s, Q) up to a constant, and the Cholesky factor of S/n.

        Minus infinity, and a factor that means nothing, where S is not positive definite.
        """
        n, size = self._noisy.records, self._size
        means = sums / n[..., None]
        pooled = squares / n[..., None, None] - means[..., :, None] * means[..., None, :]
        definite = np.linalg.eigvalsh(pooled)[..., 0] > _SMALLEST_VARIANCE
        pooled = np.where(definite[..., None, None], pooled, np.eye(size))
        factors = np.linalg.cholesky(pooled)
        logs = np.log(np.diagonal(factors, axis1=-2, axis2=-1)).sum(axis=-1)
        _, log_determinant, _ = self._scatter(means, pooled)
        value = self._power * logs - 0.5 * (self._prior.freedom + n) * log_determinant
        return np.where(definite, value, -np.inf), np.asarray(factors, dtype=np.float64)

    def _scatter(self, means: Floats, pooled: Floats) -> tuple[Floats, Floats, Floats]:
        """Return Psi_n, its log determinant, and the weight of (s/n - location) squared in it."""
        n, prior = self._noisy.records, self._prior
        away = means - prior.location
        shrink = prior.mean_records * n / (prior.mean_records + n)
        psi = prior.scatter + n[..., None, None] * pooled
        psi = psi + shrink[..., None, None] * away[..., :, None] * away[..., None, :]
        return psi, np.linalg.slogdet(psi)[1], shrink


NormalT = TypeVar("NormalT", bound=NormalTask | MultivariateNormalTask)

_REPORTED_CHAINS: Final = 8
_MOST_KINKED: Final = 3  # columns


class _Normals(OneRound[NormalT, PosteriorT]):
    """Base of both learners."""

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | PosteriorT:
        """As `OneRound`.

        Raises:
            ValueError: `population` is too small, or `sums` do not answer this task's round.
            NoConvergence: the sampler's chains disagree; no posterior is reported.
        """
        refuse_few(self.task, population)
        return super().next(population, sums)


class Normal(_Normals[NormalTask, NormalPosterior]):
    """The learner of one `NormalTask`."""

    def posterior(self, released: ReleasedSum) -> NormalPosterior:
        task = self.task
        draws, divergences = _draws(
            task, released, [task.prior_mean], [task.prior_sd], task.prior_freedom
        )
        return NormalPosterior.of(
            task.column.name, draws, divergences=divergences, records=record_count(released)
        )


class MultivariateNormal(_Normals[MultivariateNormalTask, MultivariateNormalPosterior]):
    """The learner of one `MultivariateNormalTask`."""

    def posterior(self, released: ReleasedSum) -> MultivariateNormalPosterior:
        task = self.task
        none = [None] * len(task.variables)
        freedom = len(none) + 2.0 if task.prior_freedom is None else task.prior_freedom
        draws, divergences = _draws(
            task, released, task.prior_means or none, task.prior_sds or none, freedom
        )
        names = tuple(column.name for column in task.variables)
        return MultivariateNormalPosterior.of(
            names, draws, divergences=divergences, records=record_count(released)
        )


def refuse_few(task: NormalTask | MultivariateNormalTask, population: int) -> None:
    """Refuse a job, before it costs anything, whose records cannot tell a covariance.

    Raises:
        ValueError: there are fewer than twice the number of columns and four more.
    """
    fewest = fewest_records(len(task.columns))
    if population < fewest:
        raise ValueError(f"a covariance of this size needs {fewest} clients or more")


def normalised_prior(
    task: NormalTask | MultivariateNormalTask,
    means: Sequence[float | None],
    sds: Sequence[float | None],
    freedom: float,
) -> NormalInverseWishart:
    """Return the prior for columns that their bounds have taken to [-1, 1].

    `sds` are those of a covariance that is the prior's scatter over its degrees of freedom.
    """
    centres = [
        0.0 if mean is None else (mean - column.centre) / column.half_range
        for mean, column in zip(means, task.columns, strict=True)
    ]
    scales = [
        1.0 / 3.0 if sd is None else sd / column.half_range
        for sd, column in zip(sds, task.columns, strict=True)
    ]
    return NormalInverseWishart(
        location=np.array(centres),
        mean_records=task.prior_mean_records,
        freedom=freedom,
        scatter=freedom * np.diag(np.square(scales)),
    )


def noisy_scatter(released: ReleasedSum) -> NoisyScatter:
    """Return the noisy moments of one group of chains, each stratum with its number of records.

    With more than three columns Laplace noise enters by its variance alone, as if it were normal:
    the sampler cannot follow so many kinks.

    Raises:
        ValueError: `released` does not answer the query of that name with a constant.
    """
    query = released.query
    if not isinstance(query, SecondMomentMatrix) or not query.constant:
        raise ValueError("a normal family needs the matrix of second moments with a constant")
    matrix = matrix_from(query, released.values)
    laws = [noise_of(released, place, query.grid**2) for place in (0, -2)]
    if len(query.columns) > _MOST_KINKED:
        laws = [replace(law, mechanism="discrete_gaussian") for law in laws]
    square_noise, cross_noise = laws
    constant = query.constant / query.grid
    return NoisyScatter(
        sums=matrix[None, 0, 1:] / constant,
        squares=matrix[None, 1:, 1:],
        sum_noise=replace(cross_noise, sd=cross_noise.sd / constant),
        square_noise=square_noise,
        cross_noise=cross_noise,
        records=np.repeat(_numbers_of_records(released), CHAINS // STRATA)[None],
    )


def _numbers_of_records(released: ReleasedSum) -> Floats:
    """Return how many records there may be, as many equally likely numbers as there are strata.

    Their prior is 1 / (n + 1): of none, a few that noise leaves possible would narrow a wide prior.
    """
    numbers, log_weights = record_counts(released, log_uniform=True)
    weights = np.exp(log_weights)
    places = (np.arange(STRATA) + 0.5) / STRATA
    middles = np.cumsum(weights) - 0.5 * weights
    return np.asarray(np.expm1(np.interp(places, middles, np.log1p(numbers))))


def _draws(
    task: NormalTask | MultivariateNormalTask,
    released: ReleasedSum,
    means: Sequence[float | None],
    sds: Sequence[float | None],
    freedom: float,
) -> tuple[Floats, int]:
    """Return draws of the parameters, shape (chains, draws, k), and the sampler's divergences.

    The sampler's many chains are strung together to eight, in each of which all strata take turns.
    """
    generator = generator_for(released)
    drawn = draw_normals(
        noisy_scatter(released), normalised_prior(task, means, sds, freedom), generator
    )
    parameters = _in_data_units(task, drawn)
    kept = np.moveaxis(thinned(np.moveaxis(parameters, 1, 0)), 1, 0)
    strata = kept.reshape(len(kept), STRATA, -1, _REPORTED_CHAINS, kept.shape[-1])
    chains = np.moveaxis(strata, 3, 0)
    return chains.reshape(_REPORTED_CHAINS, -1, kept.shape[-1]), drawn.divergences


def _in_data_units(task: NormalTask | MultivariateNormalTask, drawn: NormalDraws) -> Floats:
    """Return means, standard deviations and correlations, shape (kept, chains, k)."""
    units = np.array([column.half_range for column in task.columns])
    centres = np.array([column.centre for column in task.columns])
    size = len(units)
    covariances = drawn.covariances[:, 0]
    sds = np.sqrt(np.diagonal(covariances, axis1=-2, axis2=-1))
    rows, columns = np.triu_indices(size, 1)
    correlations = covariances[..., rows, columns] / (sds[..., rows] * sds[..., columns])
    means = centres + units * drawn.means[:, 0]
    return np.concatenate([means, units * sds, correlations], axis=-1)

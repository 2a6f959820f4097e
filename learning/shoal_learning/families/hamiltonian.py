"""Hamiltonian Monte Carlo over many chains at once, in numpy.

Neal 2011 (arXiv:1206.1901): leapfrog steps with a dense mass matrix, accepted by Metropolis. Step
size and mass come from a warm-up over all chains of a group, and are fixed afterwards. Then R-hat
is checked, and draws of chains that disagree are refused.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal_learning.contract import NoReliablePosterior
from shoal_learning.families.special import Floats

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

"""The bare chains behind Theorem 1 and Lemma 1, many replicates at once.

numpy draws: for experiments only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatVector = NDArray[np.float64]
FloatMatrix = NDArray[np.float64]
Noise = Callable[[int], NDArray[np.generic]]
"""Draws so many updates' noise, independent of each other."""

_DRAWS = 1 << 18  # made in one call of numpy


@dataclass(frozen=True)
class Moments:
    """After each of `updates`, over the instances of each replicate; spread and mean, (n, R)."""

    updates: tuple[int, ...]
    spread: FloatMatrix
    mean: FloatMatrix
    square: FloatMatrix


def noisy_instances(
    *,
    instances: int,
    replicates: int,
    updates: Sequence[int],
    noise: Noise,
    generator: np.random.Generator,
    pull: float = 0.0,
    touched: float = 1.0,
    start: float = 0.0,
    start_sd: float = 0.0,
    open_sessions: int = 0,
    turn: tuple[int, float] = (0, 0.0),
) -> Moments:
    """Return moments of one coordinate of k instances after each of `updates`, ascending.

    A drawn b becomes, with probability `touched`, b - (pull / touched) b + noise, and replaces an
    independently drawn one. Instances start independent, N(start, start_sd^2). With m
    `open_sessions` a submission is of an instance as it was m submissions ago. A `turn` (n, d):
    after n updates the truth turns, so that all instances are d further off.
    """
    state = start + start_sd * generator.standard_normal((replicates, instances))
    everyone = np.arange(replicates)
    memory = np.zeros((open_sessions + 1, replicates))
    for age in range(open_sessions):
        memory[age] = state[everyone, generator.integers(0, instances, replicates)]
    kept = 1.0 - pull / touched
    found: list[tuple[FloatVector, FloatVector, FloatVector]] = []
    block = max(1, _DRAWS // replicates)
    wanted, last = set(updates), max(updates, default=0)
    for first in range(0, last + 1, block):
        drawn = generator.integers(0, instances, (block, replicates))
        replaced = generator.integers(0, instances, (block, replicates))
        added = np.asarray(noise(block * replicates), dtype=np.float64).reshape(block, -1)
        touches = generator.random((block, replicates)) < touched
        for place in range(min(block, last + 1 - first)):
            number = first + place
            if number == turn[0]:
                state = state + turn[1]
            if number in wanted:
                found.append(_moments(state))
            slot = (number + open_sessions) % (open_sessions + 1)
            memory[slot] = state[everyone, drawn[place]]
            copy = memory[number % (open_sessions + 1)]
            changed = np.where(touches[place], copy * kept + added[place], copy)
            state[everyone, replaced[place]] = changed
    spread, mean, square = (np.array(each) for each in zip(*found, strict=True))
    return Moments(tuple(sorted(wanted)), spread, mean, square)


def _moments(state: FloatMatrix) -> tuple[FloatVector, FloatVector, FloatVector]:
    divisor = max(state.shape[1] - 1, 1)
    mean = state.mean(axis=1)
    return ((state - mean[:, None]) ** 2).sum(axis=1) / divisor, mean, (state**2).mean(axis=1)


@dataclass(frozen=True)
class Lifetimes:
    """Of each update: whether it was lost in the end, and after how many further updates that was
    decided; shapes (n,).
    """

    lost: NDArray[np.bool_]
    decided: NDArray[np.int64]


def lifetimes(*, instances: int, updates: int, generator: np.random.Generator) -> Lifetimes:
    """Follow so many updates, each in a crowd of its own, until all instances hold it or none.

    A later update copies from a uniform instance to a uniform one: nothing else is assumed, the
    probabilities of Lemma 1's chain least of all.
    """
    holders = np.ones(updates, dtype=np.int64)
    decided = np.zeros(updates, dtype=np.int64)
    running = np.arange(updates)
    number = 0
    while running.size:
        number += 1
        held = holders[running]
        from_holder = generator.integers(0, instances, running.size) < held
        to_holder = generator.integers(0, instances, running.size) < held
        held = held + from_holder.astype(np.int64) - to_holder.astype(np.int64)
        holders[running] = held
        over = (held == 0) | (held == instances)
        decided[running[over]] = number
        running = running[~over]
    return Lifetimes(holders == 0, decided)

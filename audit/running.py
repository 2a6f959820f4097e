"""Plays scenarios in several processes and counts guesses."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final

import numpy as np

from audit.bounds import Counts
from audit.claims import Claim, Measured
from audit.contributions import ContributionGame
from audit.game import Game
from audit.scenarios import Scenario

_LARGEST_CHUNK: Final = 10_000  # runs; about a second of work
_WORLDS: Final = 2


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A scenario, and what each adversary proved in it."""

    scenario: Scenario
    measured: dict[str, Measured]

    @property
    def worst(self) -> Measured:
        """Return what the strongest adversary proved, the one the claim is made for."""
        return self.measured[self.scenario.worst_adversary]


@contextmanager
def processes() -> Iterator[Executor]:
    """Start a process for each processor."""
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        yield pool


def run(
    scenario: Scenario, pool: Executor, *, failure: float, advance: Callable[[int], None]
) -> Outcome:
    """Play a scenario; `advance` is told of runs that were played, 2 `scenario.runs` in all.

    Each adversary's bounds are wrong with probability `failure` at most.
    """
    game = scenario.game
    thresholds = game.claim.thresholds(trials=scenario.runs, failure=failure)
    claims: dict[str, Claim] = dict(game.claims.items())
    counts = {adversary: np.zeros((_WORLDS, len(thresholds)), np.int64) for adversary in claims}
    work = {
        pool.submit(guesses, game, world, runs, thresholds): (world, runs)
        for runs in _chunks(scenario.runs)
        for world in range(_WORLDS)
    }
    for done in as_completed(work):
        world, runs = work[done]
        for adversary, found in done.result().items():
            counts[adversary][world] += found
        advance(runs)
    return Outcome(
        scenario=scenario,
        measured={
            adversary: claims[adversary].measured(
                [
                    Counts(trials=scenario.runs, hits=int(hits), alarms=int(alarms))
                    for alarms, hits in found.T
                ],
                failure=failure,
            )
            for adversary, found in counts.items()
        },
    )


def guesses(
    game: Game | ContributionGame, world: int, runs: int, thresholds: tuple[float, ...]
) -> dict[str, list[int]]:
    """Return in how many runs each adversary's statistic exceeds each threshold."""
    return {
        adversary: [int(np.count_nonzero(statistic > threshold)) for threshold in thresholds]
        for adversary, statistic in game.play(world, runs).items()
    }


def _chunks(runs: int) -> Iterator[int]:
    for start in range(0, runs, _LARGEST_CHUNK):
        yield min(_LARGEST_CHUNK, runs - start)

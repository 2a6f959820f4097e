"""States what a contribution to a crowd costs against each adversary, in words and numbers.

    python -m figures.draw_and_discard.privacy crowd.toml --later 100000 --overlap 20 --delta 1e-5

The adversaries are those of Pihur et al. (2018, arXiv:1807.04369). The guarantee is the local
epsilon: it holds against everybody, whatever the trainer does, and a client's ledger is charged it.
Later noise protects further against late observers, and is counted only where proven (`hiding`).
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from figures.draw_and_discard.ancestry import Ancestry
from figures.draw_and_discard.hiding import hidden_epsilon, refusal
from shoal.jobs.task_files import read_crowd_file
from shoal_protocol.crowds.submissions import HONEST_REFUSED
from shoal_protocol.crowds.tasks import CrowdTask

MOST_CONTRIBUTIONS = 10**12
"""Later or overlapping contributions that are reckoned with: beyond them floats are too coarse."""

_UNMET = _FEWER = 0.125  # of delta, for lineages that have not met and noises that are missing
_TOO_FEW = "there are too few later noises that all instances have in common to prove less"
_REFUSALS = (
    "few later contributions prove nothing less, and of more an honest one is refused as too "
    "large, which depends on data, with a probability that takes up delta: allow a larger one"
)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """One adversary's view, and the price of one contribution against it: (epsilon, delta).

    `reason` says on what that rests. Contributions of one record, or of one client, add up.
    """

    adversary: str
    sees: str
    epsilon: float
    delta: float
    reason: str

    def __str__(self) -> str:
        """Say it in one line."""
        price = f"epsilon {self.epsilon:.4g}, delta {self.delta:g}"
        return f"{self.adversary} (sees {self.sees}): {price}. {self.reason}"


@dataclass(frozen=True, kw_only=True)
class PrivacyStatement:
    """The price of one contribution to a crowd's task against each adversary.

    I and II have the pure epsilon of the client's own noise. III has less where that is proven,
    else the same.
    """

    listener: Statement
    insider: Statement
    latecomer: Statement

    @property
    def all(self) -> tuple[Statement, Statement, Statement]:
        """Return the three, the strongest promise first."""
        return self.listener, self.insider, self.latecomer

    def __str__(self) -> str:
        """Say all three, a line each."""
        return "\n".join(map(str, self.all))


def statement(task: CrowdTask, *, later: int, overlap: int, delta: float) -> PrivacyStatement:
    """State what one contribution costs; the latecomer looks `later` submissions after it.

    `overlap` is how many other submissions may arrive between a draw and its answer: the rate of
    submissions times the longest session.

    Raises:
        ValueError: `delta` is not strictly within (0, 1), or a count is not within 0 to
            `MOST_CONTRIBUTIONS`.
    """
    _require(later, overlap, delta)
    local = task.contribution_epsilon
    return PrivacyStatement(
        listener=Statement(
            adversary="I, listener",
            sees="the drawn weights and what came back, and who sent it",
            epsilon=local,
            delta=0.0,
            reason="The client's own noise, whatever was drawn.",
        ),
        insider=Statement(
            adversary="II, insider",
            sees="all instances before and after each submission",
            epsilon=local,
            delta=0.0,
            reason="The same: not knowing which instance was drawn is not counted on.",
        ),
        latecomer=_latecomer(task, later=later, overlap=overlap, delta=delta),
    )


def snapshot_epsilon(
    task: CrowdTask, *, later: int, overlap: int, delta: float
) -> tuple[float, int] | None:
    """Return an epsilon at `delta` against one snapshot, and how many noises it counts on.

    Whoever sees all instances `later` submissions after a contribution, nothing between, and took
    no part between. The probabilities that lineages have not met, that the trunk has fewer noises,
    or that an honest submission was refused, are part of delta. None if nothing less than the pure
    epsilon is proven.

    Raises:
        ValueError: as for `statement`.
    """
    _require(later, overlap, delta)
    found = _best(task, later=later, overlap=overlap, delta=delta)
    return None if isinstance(found, str) else found


def _require(later: int, overlap: int, delta: float) -> None:
    if not all(0 <= each <= MOST_CONTRIBUTIONS for each in (later, overlap)):
        raise ValueError(f"contributions are counted from 0 to {MOST_CONTRIBUTIONS:,}")
    if not 0.0 < delta < 1.0:
        raise ValueError(
            "delta must lie strictly between 0 and 1: it is the probability with which later "
            "noise may fail to hide a contribution"
        )


def _best(task: CrowdTask, *, later: int, overlap: int, delta: float) -> tuple[float, int] | str:
    """Return the values of `snapshot_epsilon`, or why nothing is proven.

    Whatever is seen later follows from the instances and the open draws after fewer submissions,
    of which fewer may be refused.
    """
    if reason := refusal(task):
        return reason
    ancestry = Ancestry(instances=task.instances, later=later, overlap=overlap)
    found = _snapshot(task, ancestry, delta)
    for fewer in _below(later):
        earlier = _snapshot(task, replace(ancestry, later=fewer, goes_on=True), delta)
        if isinstance(found, str):
            found = found if earlier == _TOO_FEW else earlier
        elif isinstance(earlier, str) or found < earlier:
            break
        else:
            found = earlier
    return found


def _below(later: int) -> Iterator[int]:
    """Yield fewer submissions, falling, of a grid that does not depend on how many there are."""
    steps = int(4.0 * math.log2(later)) if later > 1 else -1
    return (int(2.0 ** (step / 4.0)) for step in range(steps, -1, -1))


def _snapshot(task: CrowdTask, ancestry: Ancestry, delta: float) -> tuple[float, int] | str:
    unmet, fewer = _UNMET * delta, _FEWER * delta
    noises = ancestry.trunk(unmet=unmet, failure=fewer)
    if noises < 1:
        return _TOO_FEW
    survival, local = ancestry.survival(unmet=unmet), task.contribution_epsilon
    for most in (1.0, 2.0, 4.0, 8.0):
        refused = (ancestry.later + 1) * HONEST_REFUSED * (1.0 + math.exp(most))
        left = (delta - unmet - refused) / survival - fewer
        if left <= 0.0:
            return _REFUSALS
        found = hidden_epsilon(task, additions=noises, delta=min(left, 0.25))
        if found is not None and found <= min(most, local) and found < local:
            return found, noises
        if most >= local:
            break
    return _TOO_FEW


def _latecomer(task: CrowdTask, *, later: int, overlap: int, delta: float) -> Statement:
    found = _best(task, later=later, overlap=overlap, delta=delta)
    sees = f"all instances once, {later} submissions later, and nothing between"
    if isinstance(found, str):
        return Statement(
            adversary="III, latecomer",
            sees=sees,
            epsilon=task.contribution_epsilon,
            delta=0.0,
            reason=f"The local epsilon: {found}.",
        )
    epsilon, noises = found
    return Statement(
        adversary="III, latecomer",
        sees=sees,
        epsilon=epsilon,
        delta=delta,
        reason=(
            f"At least {noises} noises lie on what all instances have in common, if those later "
            "contributions are honest. An extra: the promise is the local epsilon."
        ),
    )


def main() -> None:
    """Print what a crowd file's contribution costs against each of the three adversaries."""
    parser = argparse.ArgumentParser(prog="python -m figures.draw_and_discard.privacy")
    parser.add_argument("file", type=Path, help="the crowd file")
    parser.add_argument("--later", type=int, required=True, help="contributions after one's own")
    parser.add_argument("--overlap", type=int, required=True, help="between a draw and its answer")
    parser.add_argument("--delta", type=float, required=True, help="for what later noise hides")
    asked = parser.parse_args()
    task = read_crowd_file(asked.file).task
    print(statement(task, later=asked.later, overlap=asked.overlap, delta=asked.delta))


if __name__ == "__main__":
    main()

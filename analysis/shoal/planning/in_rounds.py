"""Plans a study by the Distributed Compute Algorithm: its cost and its expected error.

A linear regression is one matrix of noisy moments, solved. Logistic and Poisson regression follow a
path of noisy gradients: near its end the log-likelihood is a parabola, and mean and variance of
Adam's path on it follow a recursion, which is all that is computed here.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal.planning import sizes
from shoal.planning.assumptions import Assumed, assume, settled
from shoal.planning.prospects import ErrorParts, Prospect
from shoal.planning.study import Study
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.calibration import noise_for
from shoal_protocol.privacy.fineness import effective_noise_clients
from shoal_protocol.queries import (
    GradientSum,
    NoiseDesign,
    NormCounts,
    Query,
    SecondMomentMatrix,
)
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.sums import largest_norms
from shoal_protocol.rounds.spec_checks import LARGEST_POPULATION
from shoal_protocol.studies.linear_regression import LinearRegressionTask
from shoal_protocol.studies.linear_regression.round_rules import kept_whole
from shoal_protocol.studies.logistic_regression import LogisticRegressionTask
from shoal_protocol.studies.poisson_regression import PoissonRegressionTask

Floats = NDArray[np.float64]
InRounds = LinearRegressionTask | LogisticRegressionTask | PoissonRegressionTask

COUNTING_SHARE: Final = 0.05
"""What the round that counts rows by their norm takes of a linear regression's budget."""

_BEGINNING_LOG_SD: Final = -3.0
_FIRST, _SECOND = 0.9, 0.999  # what Adam keeps of a gradient's moments in a round


def in_rounds_task(study: Study) -> InRounds:
    """Return the task of a job that learns the study's model in rounds."""
    lower = -1.0 if study.family == "linear" else 0.0
    upper = study.largest_count if study.family == "poisson" else 1.0
    features = tuple(
        ColumnBounds(name=f"feature {place}", lower=-1.0, upper=1.0)
        for place in range(study.features)
    )
    target = ColumnBounds(name="target", lower=lower, upper=upper)
    if study.family == "linear":
        return LinearRegressionTask(features=features, target=target)
    kind = LogisticRegressionTask if study.family == "logistic" else PoissonRegressionTask
    task = kind(features=features, target=target, rounds=study.rounds, batch=study.batch)
    chosen = {"clip": study.clip, "learning_rate": study.learning_rate}
    update = {name: value for name, value in chosen.items() if value is not None}
    return kind.model_validate(task.model_dump() | update)


def distributed_compute(study: Study) -> Prospect:
    """Return what a job in rounds would cost, and its posterior mean's expected error.

    Raises:
        ValueError: nobody's noise would be left, or the assumed records have no estimate.
    """
    task = in_rounds_task(study)
    assumed = assume(study)
    if isinstance(task, LinearRegressionTask):
        query, error = _solved(study, task, assumed)
    else:
        query, error = _climbed(study, task, assumed)
    answers = task.participations(study.clients)
    sent, received = sizes.of_a_round(study, query, population=study.asked)
    joining, job = sizes.of_joining(study, task)
    excluded = None
    if not study.fits_rounds:
        excluded = f"a job in rounds has at most {LARGEST_POPULATION:,} clients"
    dropouts, colluders = study.tolerated
    return Prospect(
        protocol="distributed_compute",
        rounds=task.rounds,
        answers=answers,
        sent_bytes=answers * sent + joining,
        received_bytes=answers * received + job,
        taken_in_bytes=task.rounds * study.asked * sent + study.clients * joining,
        error=error,
        settings={
            "Compute nodes": study.nodes,
            "of which open a sum": study.sharing.needed(study.nodes),
            "clients in a round": study.asked,
            "dropouts": dropouts,
            "colluders": colluders,
            "numbers in a sum": query.dimension,
            "noise": study.cap.mechanism,
        },
        excluded=excluded,
    )


def noise_sds(study: Study, design: NoiseDesign, *, share: float) -> Floats:
    """Return the noise's standard deviation in a round's sum, shape (blocks,), in lattice units.

    `share` is the round's of the budget; nobody is missing.
    """
    cap, (dropouts, colluders) = study.cap, study.tolerated
    part: Cost = cap.part(share)
    noise = noise_for(
        cap.mechanism,
        sensitivity=design.sensitivity,
        cost=part,
        population=study.asked,
        dropouts=dropouts,
        colluders=colluders,
    )
    parties = effective_noise_clients(
        population=study.asked, dropouts=dropouts, colluders=colluders
    )
    parts = [noise.part(block.relative_scale, parties=parties) for block in design.blocks]
    return np.sqrt([each.variance(clients=study.asked) for each in parts])


def _solved(study: Study, task: LinearRegressionTask, assumed: Assumed) -> tuple[Query, ErrorParts]:
    """Return the last round's query, and the error of b = A^-1 c with noise on A and c.

    To first order the noise moves b_j by (e_j - sum_k E_jk b_k) / A_jj. The prior, of standard
    deviation s, then keeps s^2 / (s^2 + variance) of it.
    """
    rows = assumed.rows(task.intercept)
    squares = np.sum(rows**2, axis=1)[:, None] + assumed.targets**2
    radius = _radius(study, task, assumed)
    kept = assumed.weights * np.minimum(1.0, radius**2 / squares)
    matrix = (rows.T * kept.sum(axis=1)) @ rows
    solved = np.linalg.solve(matrix, rows.T @ np.sum(kept * assumed.targets, axis=1))
    query = SecondMomentMatrix(
        columns=tuple(bounds.column() for bounds in task.columns),
        intercept=task.intercept,
        radius=radius,
        grid_bits=task.grid_bits,
        records_per_client=1,
    )
    deviations = noise_sds(study, query.design(study.cap.mechanism), share=1.0 - COUNTING_SHARE)
    diagonal, off = (deviations[[0, -2]] / query.grid**2).tolist()
    steepness = study.clients * np.diagonal(matrix)
    others = 1.0 + np.sum(solved**2) - solved**2  # the target's own coefficient is -1
    noise = np.sqrt(off**2 * others + diagonal**2 * solved**2) / steepness
    left = assumed.targets - (rows @ solved)[:, None]
    scores = rows.T**2 @ np.sum(kept * np.minimum(1.0, radius**2 / squares) * left**2, axis=1)
    sampling = np.sqrt(study.clients * scores) / steepness
    prior = np.full(len(solved), task.prior_sd)
    prior[0] *= 2.0 / task.intercept
    pulled = prior**2 / (prior**2 + noise**2 + sampling**2)
    scale = np.ones(len(solved))
    scale[0] = task.intercept
    return query, ErrorParts.of(
        noise=scale * pulled * noise,
        sampling=scale * pulled * sampling,
        bias=scale * pulled * solved - assumed.truth,
        unfinished=np.zeros(len(solved)),
    )


def _radius(study: Study, task: LinearRegressionTask, assumed: Assumed) -> float:
    """Return the ball that the round before would measure: the bin in which enough rows are."""
    counting = NormCounts(
        columns=tuple(bounds.column() for bounds in task.columns),
        intercept=0.0,
        radius=None,
        grid_bits=task.grid_bits,
        records_per_client=1,
    )
    squares = np.sum(assumed.features**2, axis=1)[:, None] + assumed.targets**2
    norms = largest_norms(counting)
    reached = [float(assumed.weights[squares <= norm**2].sum()) for norm in norms]
    bin_of_enough = int(np.searchsorted(reached, kept_whole(study.clients)))
    return math.hypot(task.intercept, float(norms[min(bin_of_enough, len(norms) - 1)]))


def _climbed(
    study: Study, task: LogisticRegressionTask | PoissonRegressionTask, assumed: Assumed
) -> tuple[Query, ErrorParts]:
    """Return a round's query, and the error of the mean of the second half of Adam's path."""
    rows = assumed.rows(task.intercept)
    prior = np.full(rows.shape[1], task.prior_sd)
    prior[0] *= 2.0 / task.intercept
    norms = np.linalg.norm(rows, axis=1)[:, None]

    def scores(point: Floats) -> Floats:
        """Return how much of x a record's clipped gradient is, shape (n, m)."""
        residuals = assumed.residuals(rows @ point)
        clipped: Floats = residuals * np.minimum(
            1.0, task.clip / np.maximum(np.abs(residuals) * norms, 1e-300)
        )
        return clipped

    def mean_gradient(point: Floats) -> Floats:
        pull = point / prior**2 / study.clients
        mean: Floats = rows.T @ np.sum(assumed.weights * scores(point), axis=1) - pull
        return mean

    scale = np.ones(rows.shape[1])
    scale[0] = task.intercept
    point, falls = settled(mean_gradient, assumed.truth / scale, slopes=assumed.slopes(rows))
    query = GradientSum(
        model=task.model,
        columns=tuple(bounds.column() for bounds in task.columns),
        point=tuple(point.tolist()),
        clip=task.clip,
        grid_bits=task.grid_bits,
        records_per_client=1,
    )
    share = 1.0 / task.participations(study.clients)
    [deviation] = noise_sds(study, query.design(study.cap.mechanism), share=share) / query.grid
    squares = rows.T**2 @ np.sum(assumed.weights * scores(point) ** 2, axis=1)
    spread = study.clients / study.asked  # what a batch's sum is multiplied by
    path = Path(
        steepness=study.clients * falls,
        rounds=task.rounds,
        rate=task.learning_rate * min(1.0, study.asked * task.clip / float(deviation)),
    )
    of_noise = path.mean_of_later_half(point, spread * float(deviation) * np.ones(len(point)))
    batches = spread * np.sqrt(study.asked * (1.0 - 1.0 / spread) * squares)
    whole = path.mean_of_later_half(point, np.hypot(batches, spread * float(deviation)))
    sampling = np.sqrt(study.clients * squares) / path.steepness
    return query, ErrorParts.of(
        noise=scale * of_noise.deviation,
        sampling=scale
        * np.sqrt(sampling**2 + np.maximum(0.0, whole.deviation**2 - of_noise.deviation**2)),
        bias=scale * point - assumed.truth,
        unfinished=scale * whole.left,
    )


@dataclass(frozen=True)
class _Mean:
    """Of the path's later half: its expected distance from the goal, and its deviation."""

    left: Floats
    deviation: Floats


@dataclass(frozen=True)
class Path:
    """Adam's path on a parabola that falls by `steepness`, shape (p,), from 0 to a goal."""

    steepness: Floats
    rounds: int
    rate: float

    def mean_of_later_half(self, goal: Floats, noise_sd: Floats) -> _Mean:
        """Return how far the mean of the later half is from `goal`, shape (p,).

        `noise_sd`, shape (p,), is that of a round's gradient. The approximation's own deviation,
        at which gradients are looked at, adds steepness times it.
        """
        size = len(goal)
        # distance from the goal, Adam's first moment, and the sum over the later half
        mean = np.zeros((size, 3))
        mean[:, 0] = -goal
        covariance = np.zeros((size, 3, 3))
        squares = np.zeros(size)
        begun = (self.rounds + 1) // 2
        log_sd = np.full(size, _BEGINNING_LOG_SD)
        goal_sd = -0.5 * np.log(self.steepness)
        moves = np.zeros((size, 3, 3))
        enters = np.zeros((size, 3))
        for number in range(1, self.rounds + 1):
            variance = noise_sd**2 + (self.steepness * np.exp(log_sd)) ** 2
            seen = self.steepness**2 * (mean[:, 0] ** 2 + covariance[:, 0, 0]) + variance
            squares = _SECOND * squares + (1.0 - _SECOND) * seen
            size_of_climb = np.sqrt(squares / (1.0 - _SECOND**number))
            step = self.rate / size_of_climb / (1.0 - _FIRST**number)
            counted = float(number >= begun)
            fresh = 1.0 - _FIRST
            moves[:, 1, 0], moves[:, 1, 1] = -fresh * self.steepness, _FIRST
            moves[:, 0, 0] = 1.0 - step * fresh * self.steepness
            moves[:, 0, 1] = step * _FIRST
            moves[:, 2, :] = counted * moves[:, 0, :]
            moves[:, 2, 2] = 1.0
            enters[:, 1] = fresh
            enters[:, 0] = step * fresh
            enters[:, 2] = counted * step * fresh
            mean = np.einsum("pij,pj->pi", moves, mean)
            covariance = moves @ covariance @ moves.transpose(0, 2, 1)
            covariance += variance[:, None, None] * enters[:, :, None] * enters[:, None, :]
            log_sd += np.clip(goal_sd - log_sd, -self.rate, self.rate)
        later = self.rounds + 1 - begun
        return _Mean(mean[:, 2] / later, np.sqrt(covariance[:, 2, 2]) / later)

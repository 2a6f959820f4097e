"""The simulator takes the clients' own steps, and real tasks do what the theory says.

Seeds are fixed; a limit of 4.5 standard errors, estimated from R independent crowds, is passed by
chance in fewer than 1 of 10,000 seeds.
"""

import numpy as np
import pytest

from shoal_protocol.crowds.tasks import contribute, design_rows, steps
from shoal_studies.crowds.simulation import Contributors, discrete_laplace, simulate
from shoal_studies.crowds.theory import Contraction
from tests.studies.draw_and_discard.crowds import crowd_task, linear_contributors

LIMIT = 4.5
FAMILIES = ("linear", "logistic", "poisson")


def picked_from(
    rows: np.ndarray, targets: np.ndarray, generator: np.random.Generator
) -> Contributors:
    """Return contributors that are drawn from these records, with replacement; (n, p) and (n,)."""

    def pick(count: int, replicates: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = generator.integers(0, len(targets), (count, replicates))
        return rows[chosen][..., None, :], targets[chosen][..., None]

    return pick


def assert_mean(values: np.ndarray, expected: float) -> None:
    error = float(np.std(values)) / np.sqrt(len(values))
    assert abs(float(np.mean(values)) - expected) < LIMIT * error


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("clipping", ["coordinate", "residual"])
def test_without_noise_a_single_instance_takes_the_clients_own_steps(family: str, clipping: str):
    generator = np.random.default_rng(1)
    task = crowd_task(family, instances=1, variant="all", clipping=clipping, l2=0.1)
    records = generator.uniform(-1.0, 1.0, (1, 3))
    rows, targets = design_rows(task, records)
    [found] = simulate(
        task, picked_from(rows, targets, generator), generator, after=[20], noisy=False
    )
    weights = np.zeros(task.dimension, dtype=np.int64)
    for _ in range(20):
        step = steps(task, weights, rows, targets)
        nothing = np.zeros(task.dimension, dtype=np.int64)
        weights = contribute(task, weights, step, coordinate=None, noise=nothing)
    assert np.any(weights != 0)
    assert np.array_equal(found[0, 0], weights)


def test_the_variant_one_changes_one_weight_of_one_instance_at_a_time():
    generator = np.random.default_rng(2)
    task = crowd_task(instances=2, features=5)
    contributors = linear_contributors(np.zeros(6), 0.3, generator)
    [found] = simulate(task, contributors, generator, after=[1], replicates=60)
    changed = (found != 0).sum(axis=(1, 2))
    assert set(changed) <= {0, 1} and changed.sum() > 50


def test_the_lattices_noise_has_the_variance_that_the_task_states_however_coarse_it_is():
    generator = np.random.default_rng(3)
    for epsilon in (0.5, 8.0, 64.0):  # scales of 64, 4 and 0.5 lattice units
        task = crowd_task(clip=16 / 2**4, grid_bits=4, epsilon=epsilon)
        drawn = discrete_laplace(task.noise_scale, (200_000,), generator) / task.grid
        assert_mean(drawn, 0.0)
        assert_mean(drawn**2, task.noise_variance)


@pytest.mark.slow
@pytest.mark.parametrize(("instances", "variant"), [(1, "all"), (12, "all"), (12, "one")])
def test_a_linear_models_errors_are_the_theorys(instances: int, variant: str):
    generator = np.random.default_rng(5)
    truth = np.array([0.1, 0.2, -0.1])
    # Weights stay so near the truth that clipping is rare, and most of what scatters is noise.
    task = crowd_task(
        variant=variant, instances=instances, learning_rate=0.06, clip=0.06, epsilon=20.0
    )
    contributors = linear_contributors(truth, 0.1, generator)
    [found] = simulate(task, contributors, generator, after=[3000], replicates=1500)
    average = (found / task.grid).mean(axis=1)
    touched = task.touched / task.dimension
    for place, curvature in enumerate([1.0, 1 / 3, 1 / 3]):
        own_scores = task.learning_rate**2 * 0.1**2 * curvature
        learning = Contraction(
            instances=instances,
            update_variance=task.update_variance + touched * own_scores,
            pull=task.learning_rate * curvature * touched,
            touched=touched,
        )
        errors = (average[:, place] - truth[place]) ** 2
        expected = learning.squared_error_after(3000, start_error=truth[place])
        # Scores that differ from record to record, and other weights' errors in them, add a little.
        assert float(errors.mean()) == pytest.approx(expected, rel=0.2)

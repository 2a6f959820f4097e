"""How far clients that lie within the sanity bound move a crowd: see docs/draw-and-discard.md."""

import numpy as np

from shoal_protocol.crowds.submissions import largest_change
from shoal_protocol.crowds.tasks import CrowdTask, steps
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.crowds.simulation import discrete_laplace

LIARS, CROWDS, CONTRIBUTIONS, VICTIM = 0.002, 1000, 3000, 1


def test_liars_move_a_weight_by_their_share_times_the_largest_change_over_the_pull() -> None:
    """Tolerated is a quarter, 3.8 standard errors of the mean over the crowds: another seed fails
    once in 5,000."""
    task = CrowdTask(
        family="linear",
        features=(ColumnBounds(name="x", lower=-1.0, upper=1.0),),
        target=ColumnBounds(name="y", lower=-1.0, upper=1.0),
        clip=0.05,
        epsilon=4.0,
        learning_rate=0.05,
        instances=2,
    )
    generator, crowds = np.random.default_rng(3), np.arange(CROWDS)
    weights = np.zeros((CROWDS, 2, 2), np.int64)
    for _ in range(CONTRIBUTIONS):
        rows = np.column_stack([np.ones(CROWDS), generator.uniform(-1.0, 1.0, CROWDS)])
        targets = generator.uniform(-0.3, 0.3, CROWDS)  # in truth both weights are 0
        drawn = weights[crowds, generator.integers(0, 2, CROWDS)]
        chosen = generator.integers(0, 2, CROWDS)
        honest, lie = drawn.copy(), drawn.copy()
        honest[crowds, chosen] += steps(task, drawn, rows[:, None], targets[:, None])[
            crowds, chosen
        ]
        honest[crowds, chosen] += discrete_laplace(task.noise_scale, (CROWDS,), generator)
        lie[:, VICTIM] += largest_change(task)
        lies = generator.random(CROWDS) < LIARS
        sent = np.where(lies[:, None], lie, honest)
        weights[crowds, generator.integers(0, 2, CROWDS)] = sent
    moved = weights[:, :, VICTIM].mean() / task.grid
    change, pull = largest_change(task) / task.grid, task.learning_rate / 3.0  # E x^2 = 1/3
    expected = LIARS * task.dimension * change / pull
    assert 0.75 < moved / expected < 1.25

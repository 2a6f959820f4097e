"""Sums of vectors over all services, within what data holders allow, and over simulated ones."""

import numpy as np
import pytest
from pydantic import ValidationError

from shoal import SimulatedFederation
from shoal.estimators import VectorSum
from shoal_protocol.jobs.job_request import Terms
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.single_numbers import VectorSumTask

pytestmark = pytest.mark.slow

ENTRIES = 3
VECTOR = ColumnBounds(name="x", lower=-1.0, upper=3.0)
NAMES = ("x_0", "x_1", "x_2")
TASK = VectorSumTask(columns=(VECTOR,), entries=ENTRIES, radius=1.2)


def test_a_vector_is_not_read_beside_a_column_of_its_name() -> None:
    terms, column = TASK.terms(least=10, most=20), VectorSumTask(columns=(VECTOR,), radius=1.2)
    kinds = (*column.terms(least=10, most=20).kinds, *terms.kinds)
    with pytest.raises(ValidationError, match="one kind of round alone"):
        Terms(bounds=terms.bounds, batch=None, kinds=kinds)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("entries", [ENTRIES, None])
def test_intervals_hold_totals_and_means_of_the_cut_records(
    entries: int | None, delta: float
) -> None:
    # 40 simulations of 3 columns, exact intervals: of 120 fewer than 80 hold with probability
    # below 1e-7 even if columns of one simulation, which share the noisy count, held together.
    generator = np.random.default_rng(5)
    rows = generator.uniform(-2.0, 3.0, (500, ENTRIES))
    cut = np.clip(rows, -1.0, 3.0)
    columns = {"x": (-1, 3)} if entries else dict.fromkeys(NAMES, (-1, 3))
    held = {"mean": 0, "total": 0}
    for seed in range(40):
        federation = SimulatedFederation(
            dict(zip(NAMES, rows.T, strict=True)),
            epsilon=4.0,
            delta=delta,
            dropouts=5,
            colluders=5,
            seed=seed,
        )
        found = VectorSum(columns=columns, entries=entries).fit(federation).posterior_
        for what, truth, (low, high) in (
            ("mean", cut.mean(axis=0), found.interval(0.9).T),
            ("total", cut.sum(axis=0), found.total_interval(0.9).T),
        ):
            held[what] += int(np.sum((low < truth) & (truth < high)))
        assert np.all(np.abs(found.sample(10, generator) - found.mean) < 8.0 * found.sd)
    assert 80 <= held["mean"] <= 119 and 80 <= held["total"] <= 119

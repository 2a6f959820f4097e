"""Records of one person are not independent: intervals are as wide as those of so many persons."""

import numpy as np
import pytest

from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.scores import mean_of
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.regression import (
    MeasuredRegressionPosterior,
    RegressionTask,
    TargetFamily,
)
from shoal_studies.contract import RequestedRound
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, with_noise

CLIENTS, RECORDS = 4_000, 4
BOUNDS = {"logistic": (0.0, 1.0), "poisson": (0.0, 30.0)}


def posterior_of(family: TargetFamily, records: np.ndarray) -> MeasuredRegressionPosterior:
    """Return what is learned from records of shape (clients, r, 3)."""
    low, high = BOUNDS[family]
    task = RegressionTask(
        family=family,
        features=tuple(ColumnBounds(name=each, lower=-4.0, upper=4.0) for each in "ab"),
        target=ColumnBounds(name="y", lower=low, upper=high),
        records_per_client=records.shape[1],
    )
    federation = Federation(
        population=len(records), missing=0, dropouts=0, colluders=0, epsilon=100.0, delta=1e-5
    )
    generator, sums = np.random.default_rng(2), list[ReleasedSum]()
    while isinstance(step := learner_for(task).next(len(records), sums), RequestedRound):
        exact = np.sum([step.query.encode(each) for each in records], axis=0)
        counts = {"asked": len(records), "cohort": len(records)}
        sums.append(with_noise(step, exact, federation, generator, **counts))
    assert isinstance(step, MeasuredRegressionPosterior)
    return step


@pytest.mark.slow
@pytest.mark.parametrize("family", BOUNDS)
def test_four_alike_records_of_each_person_tell_no_more_than_one(family: TargetFamily) -> None:
    generator = np.random.default_rng(1)
    features = generator.normal(0.0, 1.0, (CLIENTS * RECORDS, 2)).clip(-4.0, 4.0)
    means = mean_of(family, features @ np.array([0.3, -0.3]))
    draw = generator.binomial if family == "logistic" else lambda _, mean: generator.poisson(mean)
    targets = np.clip(draw(1, means), 0, 30)
    apart = np.column_stack([features, targets]).astype(float).reshape(CLIENTS, RECORDS, 3)
    alike = np.repeat(apart[:, :1], RECORDS, axis=1)
    ratios = posterior_of(family, alike).sd / posterior_of(family, apart).sd
    assert 1.7 < ratios[0] < 2.3  # of the constant; of slopes there is more than scatter


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 3])
def test_a_summary_says_whether_intervals_are_clustered_by_client(most: int) -> None:
    records = np.random.default_rng(3).integers(0, 2, (400, most, 3)).astype(float)
    facts = dict(posterior_of("logistic", records).summary().facts)
    assert ("clustered by client: the up to 3" in facts.get("Intervals", "")) is (most == 3)

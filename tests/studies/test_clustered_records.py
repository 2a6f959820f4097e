"""Records of one person are not independent: intervals are as wide as those of so many persons."""

import numpy as np
import pytest

from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.queries.scores import mean_of
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.regression import RegressionTask, TargetFamily
from shoal_studies.contract import RequestedRound
from shoal_studies.regression import Regression
from shoal_studies.simulation import Federation, with_noise

CLIENTS, RECORDS = 4_000, 4
BOUNDS = {"logistic": (0.0, 1.0), "poisson": (0.0, 30.0)}


def spreads_of(family: TargetFamily, records: np.ndarray) -> np.ndarray:
    """Return the standard deviations of coefficients, of records of shape (clients, r, 3)."""
    low, high = BOUNDS[family]
    task = RegressionTask(
        family=family,
        features=tuple(ColumnBounds(name=each, lower=-4.0, upper=4.0) for each in "ab"),
        target=ColumnBounds(name="y", lower=low, upper=high),
        records_per_client=RECORDS,
    )
    federation = Federation(
        population=len(records), missing=0, dropouts=0, colluders=0, epsilon=100.0, delta=1e-5
    )
    generator, sums = np.random.default_rng(2), list[ReleasedSum]()
    while isinstance(step := Regression(task).next(len(records), sums), RequestedRound):
        exact = np.sum([step.query.encode(each) for each in records], axis=0)
        counts = {"asked": len(records), "cohort": len(records)}
        sums.append(with_noise(step, exact, federation, generator, **counts))
    return np.sqrt(np.diagonal(step.covariance))


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
    ratios = spreads_of(family, alike) / spreads_of(family, apart)
    assert 1.7 < ratios[0] < 2.3  # of the constant; of slopes there is more than scatter

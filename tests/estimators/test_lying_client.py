"""One client that lies: what it can do to a regression, and that the summary says so."""

import numpy as np

from shoal.estimators import LinearRegression
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.regression import MeasuredRegressionPosterior
from shoal_studies.contract import RequestedRound
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, with_noise

CLIENTS = 1000
SETTING = Federation(
    population=CLIENTS, missing=0, dropouts=20, colluders=20, epsilon=3.0, delta=1e-5
)
TASK = LinearRegression(features={"dose": (-3, 3)}, target={"pressure": (-8, 8)}).to_task()


def learned(*, lies: bool) -> MeasuredRegressionPosterior:
    """Return the posterior; the one who lies answers so that the sum is that of other records."""
    generator = np.random.default_rng(1)
    dose = generator.normal(0, 1, CLIENTS)
    records = np.column_stack([dose, dose + generator.normal(0, 1, CLIENTS)])
    reversed_records = records * [1.0, -1.0]
    learner, sums = learner_for(TASK), list[ReleasedSum]()
    while isinstance(step := learner.next(CLIENTS, sums), RequestedRound):
        others = sum(step.query.encode(record[None]) for record in records[:-1])  # type: ignore[call-arg]
        wanted = sum(step.query.encode(record[None]) for record in reversed_records)  # type: ignore[call-arg]
        own = wanted - others if lies else step.query.encode(records[-1:])  # type: ignore[call-arg]
        total = others + own
        assert np.all(np.abs(total) <= CLIENTS * step.query.largest_value)  # all that is checked
        sums.append(with_noise(step, total, SETTING, generator, asked=CLIENTS, cohort=CLIENTS))
    assert isinstance(step, MeasuredRegressionPosterior)
    return step


def test_one_client_of_a_thousand_reverses_a_slope_unseen_and_the_summary_says_that_it_could() -> (
    None
):
    honest, false = learned(lies=False), learned(lies=True)
    for posterior, slope in ((honest, 1.0), (false, -1.0)):
        low, high = posterior.interval(0.99)[1]
        assert low < slope < high
        assert str(posterior.verdict) == "trustworthy"
        [said] = [fact for what, fact in posterior.facts if what == "One dishonest client"]
        assert said.startswith(f"any one of about {posterior.records:,} could move each of these")
        assert f"One dishonest client: {said}" in str(posterior.summary())

"""A whole job in memory: who is asked in which round, and how much noise that brings."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.queries import Column, SecondMoments
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.linear_regression import LinearRegressionPosterior
from shoal_studies.contract import RequestedRound
from shoal_studies.registry import Posterior
from shoal_studies.simulation import Federation, run

CLIENTS, ROUNDS, BATCH = 40, 12, 15
QUERY = SecondMoments(
    columns=(Column(name="x", centre=0.0, scale=1.0),),
    intercept=0.0,
    radius=None,
    grid_bits=10,
    records_per_client=1,
)
ANY = LinearRegressionPosterior(
    names=("intercept", "x"),
    target="y",
    coefficients=(0.0, 0.0),
    covariance=((1.0, 0.0), (0.0, 1.0)),
    residual_sd=1.0,
    records=1,
    prior_mean=(0.0, 0.0),
    prior_sd=(100.0, 100.0),
)


class InBatches:
    """A learner that asks the same in every round; it notes nothing."""

    def __init__(self, batch: int | None) -> None:
        self.batch = batch

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | Posterior:
        if len(sums) == ROUNDS:
            return ANY
        return RequestedRound(query=QUERY, share=1.0 / ROUNDS, batch=self.batch)


def carried_out(batch: int | None, monkeypatch, missing: int = 0) -> tuple[Counter, list]:
    """Return how often each client was asked, and the sums; a client's record is its number."""
    asked: Counter[float] = Counter()

    def encode(self: SecondMoments, records: np.ndarray) -> np.ndarray:
        asked.update(records[:, 0].tolist())
        return np.array([0])

    monkeypatch.setattr(SecondMoments, "encode_apart", encode)
    federation = Federation(
        population=CLIENTS, missing=missing, dropouts=2, colluders=1, epsilon=1.0, delta=1e-5
    )
    records = np.arange(CLIENTS, dtype=float)[:, None]
    outcome = run(InBatches(batch), records, federation, np.random.default_rng(1))
    return asked, list(outcome.sums)


def test_a_batch_is_of_those_who_were_asked_least_often(monkeypatch) -> None:
    asked, sums = carried_out(BATCH, monkeypatch)
    assert {each.cohort_size for each in sums} == {BATCH}
    assert len(asked) == CLIENTS
    assert set(asked.values()) <= {ROUNDS * BATCH // CLIENTS, -(-ROUNDS * BATCH // CLIENTS)}


def test_a_batch_bears_the_noise_that_its_share_of_the_price_needs(monkeypatch) -> None:
    _, sums = carried_out(BATCH, monkeypatch)
    mu = Cap(epsilon=1.0, delta=1e-5).part(1.0 / ROUNDS).mu
    needed = QUERY.design("discrete_gaussian").sensitivity / mu
    without_some = BATCH / (BATCH - 3)  # the noise of three clients may be gone or known
    assert sums[0].noise_sd[0] ** 2 >= needed**2 * without_some * 0.999
    assert sums[0].noise_sd[0] ** 2 <= needed**2 * without_some * 1.1

"""Quantiles in rounds: edges that holders allow, how often intervals hold, a job of services."""

from itertools import pairwise

import numpy as np
import pytest

from shoal_protocol.queries import EdgeCut, Tables
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.wire.errors import RefusedSpec
from shoal_studies.catalogue.quantiles import QuantilesTask, laws, next_edges
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation as Setting
from shoal_studies.simulation import Outcome, run

pytestmark = pytest.mark.slow

LEVELS = (0.05, 0.5, 0.95)
TASK = QuantilesTask(
    variables=(ColumnBounds(name="income", lower=0.0, upper=1e9),),
    levels=LEVELS,
    bins=64,
    rounds=6,
)


def learned(
    values: np.ndarray,
    *,
    epsilon: float,
    delta: float = 1e-5,
    seed: int = 1,
    task: QuantilesTask = TASK,
) -> Outcome:
    setting = Setting(
        population=len(values), missing=3, dropouts=20, colluders=20, epsilon=epsilon, delta=delta
    )
    there = np.ones(len(values), np.bool_)
    generator = np.random.default_rng(seed)
    return run(learner_for(task), values[:, None], setting, generator, there=there)


def incomes(count: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    values = np.round(generator.lognormal(10.0, 1.5, count))
    values[generator.random(count) < 0.1] = np.nan
    return values


def test_every_round_asks_another_query() -> None:
    assert len({released.query for released in learned(incomes(5000, 1), epsilon=2.0).sums}) == 6


@pytest.mark.parametrize(
    ("edges", "allowed"),
    [
        ((5.0, 6.0, 7.0), True),
        ((0.0, 1.0, 1e9), True),
        ((-1.0, 1.0, 1e9), False),
        ((0.0, 1.0, 1.1e9), False),
        (tuple(map(float, range(66))), False),
    ],
)
def test_holders_let_edges_be_any_within_the_bounds_but_no_more(
    edges: tuple[float, ...], allowed: bool
) -> None:
    terms, query = TASK.terms(least=4000, most=5000), TASK.query(())
    cut = query.cuts[0]
    assert isinstance(cut, EdgeCut)
    moved = query.model_copy(update={"cuts": (EdgeCut(column=0, edges=edges),)})
    with pytest.raises(RefusedSpec):
        terms.check(moved, number=0)
    if allowed:
        terms.check(moved, number=1)
    else:
        with pytest.raises(RefusedSpec, match="cuts are not those"):
            terms.check(moved, number=1)
    flagged = query.model_copy(
        update={
            "columns": (*query.columns, query.columns[0].model_copy(update={"name": "flag"})),
            "cuts": (cut.model_copy(update={"indicator": 1}),),
        }
    )
    with pytest.raises(RefusedSpec, match="columns"):
        terms.check(flagged, number=1)


def test_rounds_come_closer_to_a_value_that_nearly_all_have_until_floats_end() -> None:
    outcome = learned(np.full(5000, 123_456.0), epsilon=20.0)
    widths = []
    for released in outcome.sums:
        assert isinstance(released.query, Tables)
        cut = released.query.cuts[0]
        assert isinstance(cut, EdgeCut)
        widths.append(np.diff(cut.edges).min())
    assert all(late < early for early, late in pairwise(widths))
    [low, high] = outcome.posterior.interval(0.9)[2]
    assert low <= 123_456.0 < high < 123_457.0
    law = laws(outcome.sums)[0]
    assert np.all(np.diff(next_edges(law, LEVELS, 64)) > 0.0)


@pytest.mark.parametrize("skew", [1.0, 2.0])
@pytest.mark.parametrize("bins", [64, 256])
def test_a_quantile_that_noise_hides_leaves_others_their_bins(bins: int, skew: float) -> None:
    """The tails' numbers are near the noise, so that they may be anywhere within wide bounds."""
    quartiles = (0.25, 0.5, 0.75)
    for seed in range(3):
        values = np.random.default_rng(seed).lognormal(3.0, skew, 1300)
        widths = []
        for levels in (quartiles, (0.05, *quartiles, 0.95)):
            task = QuantilesTask(
                variables=(ColumnBounds(name="fare", lower=0.0, upper=1e6),),
                levels=levels,
                bins=bins,
            )
            posterior = learned(values, epsilon=1.0, seed=seed, task=task).posterior
            places = [posterior.names.index(f"fare: quantile {each:g}") for each in quartiles]
            widths.append(np.diff(posterior.interval(0.9)[places]))
        assert (widths[1] < 3.0 * widths[0] + 1.0).all()
        assert (widths[1] < 5.0 * np.quantile(values, 0.75)).all()


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-5, 0.0], ids=["gaussian", "laplace"])
def test_intervals_hold_at_least_as_often_as_they_say(delta: float) -> None:
    """Of 150 intervals at 90 % 120 hold at least, but with probability 1e-4 each of the three."""
    hold = np.zeros(len(LEVELS))
    for seed in range(150):
        values = incomes(6000, seed)
        truth = np.nanquantile(values[3:], LEVELS)
        ends = learned(values, epsilon=2.0, delta=delta, seed=seed).posterior.interval(0.9)[1:]
        hold += (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    assert hold.min() >= 120

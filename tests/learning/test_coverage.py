"""Intervals given the design hold as often as they say, where those that ignore noise do not."""

import numpy as np
import pytest


@pytest.mark.slow
def test_nine_of_ten_intervals_hold_given_the_design_and_few_that_ignore_the_noise():
    pytest.importorskip("numpyro")
    from bench.coverage import compare, draw, side_by_side

    generator = np.random.default_rng(7)
    sets = [draw("box", epsilon, generator) for epsilon in (1.0, 5.0) for _ in range(12)]
    answers = side_by_side(sets, generator, chains=1, warmup=150, count=100)
    row = compare(sets, answers)
    # 120 intervals, five a set: standard error .027 if a set's were nearly independent, which
    # bench.coverage's ranks do not contradict; 2.4 of them, false alarm 2 %, not with this seed.
    assert 0.835 <= row.conditional.coverage <= 0.965
    assert 0.8 <= row.quasi_likelihood.coverage <= 0.98
    assert row.naive.coverage < 0.6
    assert row.ranks_p > 1e-3
    assert sum(each.divergences for each in answers) < 0.001 * 24 * 100

"""A plan's errors are those of simulations."""

import math
from typing import Any

import pytest

from bench.planner import errors_of_crowds
from shoal.planning import (
    Prospect,
    Study,
    draw_and_discard,
    instances_for_load,
)

AGREEMENT = 1.6
"""Factor within which plan and simulation must agree: the plan's approximations, and the chance in
a root mean square of 6 coefficients in 8 runs, whose standard error is about a tenth."""


def a_study(**changes: Any) -> Study:
    settings = {"family": "logistic", "clients": 2000, "features": 5, "epsilon": 2.0}
    return Study.model_validate(settings | changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"family": "linear", "epsilon": 2.0, "instances": 10},
        {"family": "linear", "epsilon": 4.0, "instances": 1},
        {"family": "linear", "epsilon": 8.0, "instances": 50, "variant": "all"},
        {"epsilon": 8.0, "instances": 10, "clipping": "residual"},
        {"family": "poisson", "epsilon": 4.0},
        {"family": "linear", "epsilon": 4.0, "instances": 40, "open_sessions": 40.0},
        {"family": "linear", "epsilon": 4.0, "instances": 100},
        {"family": "linear", "epsilon": 4.0, "instances": 1000, "clients": 20_000},
        {"family": "poisson", "epsilon": 4.0, "instances": 1000, "clients": 20_000},
        {"family": "poisson", "epsilon": 4.0, "instances": 1, "clipping": "residual"},
        # so long a step that instances stray to where most steps are clipped
        {"family": "linear", "epsilon": 4.0, "instances": 300, "clients": 20_000, "step": 0.5},
        {"family": "linear", "epsilon": 4.0, "instances": 1, "horizon": 5000},
        {"family": "linear", "epsilon": 8.0, "clients": 20_000, "instances": 10, "horizon": 10_000},
        {"epsilon": 8.0, "instances": 1, "horizon": 5000},
    ],
    ids=str,
)
def test_what_a_crowd_is_planned_to_err_by_is_what_a_simulation_errs_by(
    changes: dict[str, Any],
) -> None:
    study = a_study(**{"clients": 10_000, **changes})
    expected = draw_and_discard(study)
    simulated = math.sqrt(errors_of_crowds(study, expected, runs=16).mean())
    assert 1.0 / AGREEMENT < simulated / expected.error.total < AGREEMENT


def test_a_plan_for_a_truth_that_turns_weighs_lag_against_noise() -> None:
    stream = a_study(family="linear", epsilon=4.0, clients=10**5, instances=1)

    def planned(horizon: int | None, **changes: Any) -> Prospect:
        return draw_and_discard(stream.model_copy(update={"horizon": horizon, **changes}))

    fixed, slow, fast = planned(None), planned(80_000), planned(5_000)
    rates = [float(each.settings["learning rate"]) for each in (fixed, slow, fast)]
    assert rates == sorted(rates) and rates[0] < rates[2]
    assert fixed.error.total < slow.error.total < fast.error.total
    # where the optimum is inside, lag and noise are about equal (docs/mathematics.md, section 9)
    assert slow.error.unfinished == pytest.approx(slow.error.noise, rel=0.2)
    for worse in (rates[1] / 2.0, 2.0 * rates[1]):
        assert planned(80_000, step=worse).error.total > slow.error.total
    assert planned(80_000, instances=20).error.total > slow.error.total
    with pytest.raises(ValueError, match="does not turn"):
        a_study(clients=1000, horizon=1001)


def test_open_sessions_slow_learning_and_instances_follow_from_them() -> None:
    busy = a_study(family="linear", epsilon=4.0, clients=10**6, open_sessions=100.0)

    def error(**changes: Any) -> float:
        return draw_and_discard(busy.model_copy(update=changes)).error.total

    assert error(instances=1, open_sessions=0.0) < error(instances=1) < error(instances=100)
    assert instances_for_load(99.2, 6) == 100
    assert instances_for_load(0.0, 6) == 1
    assert instances_for_load(1e9, 6) == 10_000
    assert instances_for_load(1e9, 101) == (1 << 16) // 101

"""A plan's errors are those of simulations, and its bytes those of real documents."""

import math
from typing import Any

import numpy as np
import pydantic
import pytest
from nacl.signing import SigningKey

from bench.planner import errors_in_rounds, errors_of_crowds
from shoal.planning import (
    Study,
    distributed_compute,
    draw_and_discard,
    instances_for_load,
    of_a_round,
)
from shoal_holder.contribution import box_keys, draw_noise, seal_contribution
from shoal_holder.noise import exact_noise
from shoal_protocol.wire.documents import sign
from tests.world import examples

AGREEMENT = 1.6
"""Factor within which plan and simulation must agree: the plan's approximations, and the chance in
a root mean square of 6 coefficients in 8 runs, whose standard error is about a tenth."""


def a_study(**changes: Any) -> Study:
    settings = {"family": "logistic", "clients": 2000, "features": 5, "epsilon": 2.0, "delta": 1e-6}
    return Study.model_validate(settings | changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"family": "linear", "clients": 500, "epsilon": 0.5},
        {"family": "linear", "clients": 20_000, "epsilon": 1.0},
        {"family": "linear", "epsilon": 1.0, "delta": 0.0},
        {"epsilon": 0.5},
        {"epsilon": 4.0, "delta": 0.0},
        {"features": 1, "effect": 1.5},
        {"family": "poisson", "epsilon": 0.5},
        {"family": "poisson", "clients": 5000, "epsilon": 4.0},
    ],
    ids=str,
)
def test_what_rounds_are_planned_to_err_by_is_what_a_simulation_errs_by(
    changes: dict[str, Any],
) -> None:
    study = a_study(**changes)
    expected = distributed_compute(study).error.total
    simulated = math.sqrt(errors_in_rounds(study, runs=8).mean())
    assert 1.0 / AGREEMENT < simulated / expected < AGREEMENT


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


def test_open_sessions_slow_learning_and_instances_follow_from_them() -> None:
    busy = a_study(family="linear", epsilon=4.0, clients=10**6, open_sessions=100.0)

    def error(**changes: Any) -> float:
        return draw_and_discard(busy.model_copy(update=changes)).error.total

    assert error(instances=1, open_sessions=0.0) < error(instances=1) < error(instances=100)
    assert instances_for_load(99.2, 6) == 100
    assert instances_for_load(0.0, 6) == 1
    assert instances_for_load(1e9, 6) == 10_000
    assert instances_for_load(1e9, 101) == (1 << 16) // 101


def test_a_round_is_as_large_as_its_real_envelopes_and_spec() -> None:
    spec = examples.SPEC
    study = a_study(
        family="linear",
        clients=spec.population_size,
        nodes=len(spec.compute_nodes),
        dropouts=spec.dropouts,
        colluders=spec.colluders,
    )
    key = SigningKey.generate()
    values = np.zeros(spec.dimension, np.int64)
    [noise] = draw_noise(spec, 1, exact_noise)
    envelopes = seal_contribution(
        spec,
        box_keys(examples.CONSORTIUM),
        0,
        key,
        values,
        noise,
        random_bytes=examples.random_bytes("planning"),
    )
    sent, received = of_a_round(study, spec.query, population=spec.population_size)
    assert sent == sum(map(len, envelopes))
    encoded = sign(spec, "trainer", key).encode()
    assert received == pytest.approx(len(encoded), rel=0.02)  # but for digits of times and noise


@pytest.mark.parametrize(
    "changes",
    [
        {"clients": 20, "dropouts": 10, "colluders": 9},
        {"features": 101},
        {"nodes": 5, "sharing": {"scheme": "threshold", "threshold": 6}},
        {"nodes": 5, "sharing": {"scheme": "threshold", "threshold": 2}},
        {"epsilon": 0.0},
        {"something": 1},
    ],
    ids=str,
)
def test_sizes_that_make_no_study_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError):
        a_study(**changes)

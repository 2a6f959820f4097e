"""A plan's errors are those of simulations, and its bytes those of real documents."""

import math
from typing import Any

import numpy as np
import pydantic
import pytest
from nacl.signing import SigningKey

from bench.planner import errors_in_rounds, errors_of_crowds
from shoal.planning import Study, compare
from shoal.planning.assumptions import POINTS, assume
from shoal.planning.comparing import formulas, trust
from shoal.planning.crowds import contributions_needed, draw_and_discard, instances_for_load
from shoal.planning.in_rounds import distributed_compute, in_rounds_task
from shoal.planning.sizes import of_a_round, of_contribution, of_joining
from shoal_holder.contribution import box_keys, draw_noise, seal_contribution
from shoal_holder.noise import exact_noise
from shoal_protocol.jobs.membership import Join
from shoal_protocol.wire.documents import sign
from tests.world import examples
from tests.world.crowd_examples import CROWD_DOCUMENTS, CROWD_TASK

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


def test_the_chosen_learning_rate_errs_by_less_than_others() -> None:
    study = a_study(family="linear", clients=50_000)
    best = draw_and_discard(study)
    rate = float(best.settings["learning rate"])
    for other in (rate / 3.0, rate * 3.0):
        assert draw_and_discard(study.model_copy(update={"step": other})).error.total > (
            best.error.total
        )


@pytest.mark.slow
def test_as_many_contributions_as_are_needed_suffice_and_fewer_do_not() -> None:
    study = a_study(family="linear", epsilon=4.0)
    needed = contributions_needed(study, 0.1)
    assert needed is not None
    for clients, suffices in ((needed, True), (needed * 9 // 10, False)):
        there = study.model_copy(update={"clients": clients})
        assert (draw_and_discard(there).error.total <= 0.1) is suffices


def test_no_number_of_contributions_mends_what_bounds_and_clipping_do() -> None:
    study = a_study(family="linear", effect=0.5)
    bias = draw_and_discard(study).error.bias
    assert contributions_needed(study, bias / 2.0) is None


def test_open_sessions_slow_learning_and_instances_follow_from_them() -> None:
    busy = a_study(family="linear", epsilon=4.0, clients=10**6, open_sessions=100.0)

    def error(**changes: Any) -> float:
        return draw_and_discard(busy.model_copy(update=changes)).error.total

    assert error(instances=1, open_sessions=0.0) < error(instances=1) < error(instances=100)
    assert instances_for_load(99.2, 6) == 100
    assert instances_for_load(0.0, 6) == 1
    assert instances_for_load(1e9, 6) == 10_000
    assert instances_for_load(1e9, 101) == (1 << 16) // 101


@pytest.mark.parametrize(("times", "instances"), [(1, 20), (1000, 20), (1, 10_000)])
def test_no_study_is_planned_to_end_further_off_than_it_began(times: int, instances: int) -> None:
    """For the smallest learning rates next to nothing is learned, and no noise taken up."""
    study = a_study(clients=1000, epsilon=0.5, contributions_per_client=times, instances=instances)
    assert draw_and_discard(study).error.total < 1.01 * study.effect


@pytest.mark.slow
def test_the_same_study_gets_the_same_plan() -> None:
    assert compare(a_study()) == compare(a_study())


@pytest.mark.parametrize("features", [1, 5, 40, 100])
def test_assumed_features_fill_their_bounds_and_hardly_correlate(features: int) -> None:
    points = assume(a_study(features=features, effect=0.01)).features
    assert points.shape == (POINTS, features)
    assert np.allclose(points.mean(axis=0), 0.0, atol=0.01)
    assert np.allclose(points.var(axis=0), 1.0 / 3.0, rtol=0.01)
    correlations = np.corrcoef(points, rowvar=False) - np.eye(features)
    assert np.abs(correlations).max() < 0.16


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


def test_joining_is_as_large_as_a_real_join() -> None:
    join = Join(manifest=examples.CONSORTIUM.digest, job="a" * 64, holder=1_000_000)
    study = a_study()
    sent, _ = of_joining(study, in_rounds_task(study))
    assert sent == len(sign(join, "client", SigningKey.generate()).encode())


def test_a_contribution_is_as_large_as_real_documents() -> None:
    sent, received = of_contribution(CROWD_TASK)
    real = {name: len(document.encode()) for name, document in CROWD_DOCUMENTS.items()}
    nonce = len('{"nonce":"' + "0" * 64 + '"}')
    assert sent - nonce == pytest.approx(real["submission"], rel=0.03)
    assert received == pytest.approx(real["draw"] + real["submission_receipt"], rel=0.03)


def test_more_clients_than_a_job_can_have_leave_draw_and_discard_only() -> None:
    rounds, crowd = compare(a_study(clients=10**9, instances=1000))
    assert rounds.excluded is not None and "1,048,576" in rounds.excluded
    assert crowd.excluded is None and crowd.rounds == 0


@pytest.mark.slow
def test_the_trust_that_is_named_follows_from_sharing_and_noise() -> None:
    threshold = {"scheme": "threshold", "threshold": 3}
    rounds, crowd = compare(a_study(nodes=5, sharing=threshold, colluders=7))
    assert "2 of 5 Compute nodes and 7 other clients" in trust(rounds)
    assert "No node and no other client has to be trusted" in trust(crowd)
    pure, _ = compare(a_study(delta=0.0))
    assert "next to no noise" in trust(pure)
    assert all(formulas(each) for each in (rounds, crowd))


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


def test_a_step_with_which_no_model_would_settle_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        draw_and_discard(a_study(family="linear", step=5.0))

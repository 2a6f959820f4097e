"""The round spec: every party refuses one that contradicts itself, the manifest or the policy."""

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import pydantic
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Balances, Cap, Cost, price
from shoal_protocol.privacy.job_costs import noise_for
from shoal_protocol.privacy.mechanisms import DiscreteGaussianNoise
from shoal_protocol.queries import Column, ScoreSum
from shoal_protocol.rounds.round_spec import LARGEST_SPEC_BYTES, RoundSpec, check_spec
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.trust.policy import LARGEST_POPULATION
from shoal_protocol.trust.roster_changes import roster_of
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import LARGEST_SET, encode_clients
from shoal_protocol.wire.errors import RefusedSpec
from tests.world.examples import (
    CLIENTS,
    CONSORTIUM,
    MATRIX,
    MOMENTS,
    NODES,
    OPENED_AT,
    POLICY,
    REVOKED,
    SPEC,
    THRESHOLD_CONSORTIUM,
    THRESHOLD_SPEC,
    consortium,
    named,
    signing_key,
    spec,
)
from tests.world.strategies import make_query

SECOND = timedelta(seconds=1)


def changed(**changes: Any) -> RoundSpec:
    return RoundSpec.model_validate(SPEC.model_dump() | changes)


def mu_of(scale: float, *, population: int = SPEC.population_size) -> float:
    return price(
        DiscreteGaussianNoise(scale=scale),
        sensitivity=SPEC.design.sensitivity,
        population=population,
        dropouts=SPEC.dropouts,
        colluders=SPEC.colluders,
    ).mu


def with_scale(scale: float, **changes: Any) -> RoundSpec:
    """Return a spec whose declared cost fits its noise."""
    mu = mu_of(scale)
    return changed(noise=DiscreteGaussianNoise(scale=scale), mu=mu, **changes)


def check(example: RoundSpec, **changes: Any) -> None:
    arguments = {"consortium": CONSORTIUM, "now": OPENED_AT} | changes
    check_spec(example, arguments["consortium"], now=arguments["now"])


def test_a_spec_that_is_made_is_accepted_until_its_deadline() -> None:
    check(SPEC)
    check(SPEC, now=SPEC.deadline - timedelta(microseconds=1000))
    check(SPEC, now=OPENED_AT - 100 * SECOND)  # by a party whose clock is slow


@given(
    query=st.sampled_from([MATRIX, MOMENTS]),
    mu=st.floats(0.01, 0.7),
    population=st.sets(st.integers(0, REVOKED - 1), min_size=12),
    dropouts=st.integers(0, 4),
    colluders=st.integers(POLICY.minimum_colluders, 6),
    number=st.integers(0, 100),
)
def test_every_spec_that_is_made_is_accepted_and_survives_the_wire(
    query, mu, population, dropouts, colluders, number
) -> None:
    assume(len(population) - dropouts >= POLICY.minimum_cohort)
    made = spec(
        query=query,
        mu=mu,
        population=BitMap(population),
        dropouts=dropouts,
        colluders=colluders,
        number=number,
    )
    read = decode(named("trainer", made).encode(), RoundSpec)
    CONSORTIUM.verify(read)
    check(read.body)
    assert read.body.digest == made.digest
    assert made.mu <= mu
    assert made.mu == pytest.approx(mu)
    assert set(read.body.clients()) == population
    assert sum(coordinates for coordinates, _ in made.noise_blocks()) == made.dimension


def test_a_spec_with_the_largest_basis_and_roster_survives_the_wire_within_its_limit() -> None:
    size = 512
    columns = tuple(Column(name=f"{place:-<64}", centre=0.0, scale=1.0) for place in range(size))
    query = make_query(ScoreSum, size).model_copy(
        update={
            "columns": columns,
            "basis": tuple((-1.23456e-05,) * row for row in range(1, size + 1)),
        }
    )
    encoded = named("trainer", changed(query=query)).encode()
    assert decode(encoded, RoundSpec).body.query == query
    largest_roster = 4 * 8192 * math.ceil(LARGEST_SET / 65_536) // 3  # in base64
    assert len(encoded) + largest_roster < LARGEST_SPEC_BYTES


def test_noise_meets_theorem_one_in_the_smallest_cohort_without_its_colluders() -> None:
    honest_others = SPEC.minimum_cohort - SPEC.colluders - 1
    deviation = SPEC.noise.scale * np.sqrt(honest_others)
    assert SPEC.query.design("discrete_gaussian").sensitivity / deviation == pytest.approx(
        0.25, rel=1e-9
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"deadline": OPENED_AT}, "deadline has passed"),
        ({"deadline": OPENED_AT - SECOND}, "deadline has passed"),
        ({"opened_at": SPEC.deadline}, "follow one another"),
        ({"give_up_at": SPEC.deadline}, "follow one another"),
        ({"give_up_at": OPENED_AT}, "follow one another"),
        ({"give_up_at": OPENED_AT + 3601 * SECOND}, "at most 3600 seconds"),
        ({"proceed_at": SPEC.deadline + SECOND}, "proceed_at"),
        ({"sharing": {"scheme": "threshold", "threshold": 2}}, "additive sharing only"),
        ({"compute_nodes": ["compute-0", "compute-1"]}, "compute_nodes"),
        ({"compute_nodes": ["compute-1", "compute-0", "compute-2"]}, "compute_nodes"),
        ({"compute_nodes": ["compute-0", "compute-1", "foreign"]}, "compute_nodes"),
        ({"compute_nodes": [f"compute-{node}" for node in range(NODES + 1)]}, "compute_nodes"),
        ({"population_size": 13}, "population_size"),
        ({"population_size": 11}, "population_size"),
        ({"population": encode_clients(range(11))}, "population_size"),
        ({"population": encode_clients([*range(11), REVOKED])}, "not enrolled"),
        ({"population": encode_clients([*range(11), CLIENTS])}, "not enrolled"),
        ({"population": encode_clients([*range(11), 2**32 - 1])}, "not enrolled"),
        ({"minimum_cohort": 9}, "less dropouts"),
        ({"minimum_cohort": 12}, "less dropouts"),
        ({"dropouts": 3}, "less dropouts"),
        ({"dropouts": 5, "minimum_cohort": 7}, "at least 8"),
        ({"dropouts": 4, "colluders": 7, "minimum_cohort": 8}, "too few clients"),
        ({"dropouts": 2, "colluders": 10**9}, "too few clients"),
        ({"dimension": 5}, "dimension"),
        ({"dimension": 8}, "dimension"),
        ({"query": MOMENTS}, "dimension"),
        ({"mu": SPEC.mu * 1.001}, "mu is not"),
        ({"mu": SPEC.mu / 1.001}, "mu is not"),
        ({"mu": 1e-300}, "mu is not"),
        ({"colluders": 2}, "mu is not"),
        ({"noise": DiscreteGaussianNoise(scale=SPEC.noise.scale * 1.001)}, "mu is not"),
        ({"noise": DiscreteGaussianNoise(scale=SPEC.noise.scale / 1.001)}, "mu is not"),
        ({"noise": DiscreteGaussianNoise(scale=1.0)}, "too small against the grid"),
        ({"noise": DiscreteGaussianNoise(scale=5e-324)}, "too small against the grid"),
        ({"noise": DiscreteGaussianNoise(scale=2.0**56)}, "mu is not"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_spec_that_contradicts_itself_or_the_manifest_is_refused(changes: Any, reason) -> None:
    with pytest.raises(RefusedSpec, match=reason):
        check(changed(**changes))


def threshold_spec(**changes: Any) -> RoundSpec:
    return RoundSpec.model_validate(THRESHOLD_SPEC.model_dump() | changes)


def test_a_threshold_spec_lets_the_threshold_suffice_midway_to_the_end() -> None:
    made = THRESHOLD_SPEC
    check(made, consortium=THRESHOLD_CONSORTIUM)
    assert (made.threshold, made.sharing.modulus_bits) == (2, 61)
    assert made.proceed_at - made.deadline == made.give_up_at - made.proceed_at > 0 * SECOND
    assert (SPEC.threshold, SPEC.proceed_at) == (NODES, SPEC.give_up_at)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sharing": {"scheme": "threshold", "threshold": 4}}, "at most all"),
        ({"proceed_at": SPEC.deadline}, "proceed_at"),
        ({"proceed_at": SPEC.give_up_at}, "proceed_at"),
        ({"proceed_at": OPENED_AT}, "proceed_at"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_threshold_spec_that_contradicts_itself_is_refused(changes: Any, reason: str) -> None:
    with pytest.raises(RefusedSpec, match=reason):
        check(threshold_spec(**changes), consortium=THRESHOLD_CONSORTIUM)


def test_a_threshold_below_the_policys_is_refused() -> None:
    policy = POLICY.model_copy(update={"minimum_threshold": 3})
    with pytest.raises(RefusedSpec, match="at least 3"):
        check(THRESHOLD_SPEC, consortium=consortium(policy=policy))


def test_half_of_the_nodes_are_no_threshold() -> None:
    policy = POLICY.model_copy(update={"minimum_threshold": 2})
    four = consortium(nodes=4, policy=policy)
    with pytest.raises(ValueError, match="more than half"):
        spec(manifest=four, sharing=ThresholdSharing(threshold=2))
    spec(manifest=four, sharing=ThresholdSharing(threshold=3))


def test_a_sum_that_fits_the_ring_but_not_the_field_is_refused_under_threshold_sharing() -> None:
    policy = POLICY.model_copy(update={"minimum_threshold": 2})
    held = consortium(policy=policy)
    scale = 2.0**54
    mu = mu_of(scale)
    check(changed(noise=DiscreteGaussianNoise(scale=scale), mu=mu), consortium=held)
    with pytest.raises(RefusedSpec, match="overflow"):
        check(threshold_spec(noise=DiscreteGaussianNoise(scale=scale), mu=mu), consortium=held)


@pytest.mark.slow
def test_a_population_beyond_the_bound_is_refused() -> None:
    key = signing_key("holder").verify_key
    crowd = consortium(of=roster_of([(key, LARGEST_POPULATION + 1)]))
    arguments = {"manifest": crowd, "query": MOMENTS, "mu": 0.5}
    spec(population=BitMap(range(LARGEST_POPULATION)), **arguments)
    with pytest.raises(ValueError, match="at most 1048576 clients"):
        spec(population=BitMap(range(LARGEST_POPULATION + 1)), **arguments)


def test_a_spec_with_too_little_noise_for_the_policy_is_refused() -> None:
    just_enough = SPEC.noise.scale * SPEC.mu / POLICY.cap.mu
    check(with_scale(just_enough * 1.000001))
    with pytest.raises(RefusedSpec, match="too little for the policy"):
        check(with_scale(just_enough * 0.999999))


def test_a_spec_whose_sum_could_overflow_is_refused() -> None:
    for clients, overflows in ((12, False), (19, True)):
        mu = mu_of(2.0**56, population=clients)
        example = changed(
            noise=DiscreteGaussianNoise(scale=2.0**56),
            mu=mu,
            population=encode_clients(range(clients)),
            population_size=clients,
            minimum_cohort=clients - SPEC.dropouts,
        )
        if overflows:
            with pytest.raises(RefusedSpec, match="overflow"):
                check(example)
        else:
            check(example)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [({"queries": ("second_moments",)}, "query"), ({"maximum_round_seconds": 89}, "89 seconds")],
    ids=["query", "duration"],
)
def test_a_spec_beyond_the_policy_is_refused(policy: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedSpec, match=reason):
        check(SPEC, consortium=consortium(policy=POLICY.model_copy(update=policy)))


def test_a_spec_from_the_far_future_is_refused() -> None:
    check(SPEC, now=OPENED_AT - 3600 * SECOND)
    with pytest.raises(RefusedSpec, match=r"opened_at is .* ahead, more than"):
        check(SPEC, now=OPENED_AT - 3601 * SECOND)


@pytest.mark.parametrize(
    "changes",
    [
        {"noise": {"mechanism": "discrete_gaussian", "scale": 0.0}},
        {"noise": {"mechanism": "discrete_gaussian", "scale": -1.0}},
        {"noise": {"mechanism": "discrete_gaussian", "scale": float("inf")}},
        {"noise": {"mechanism": "discrete_gaussian", "scale": 1e300}},
        {"noise": {"mechanism": "gaussian", "scale": 1e6}},
        {"sharing": {"scheme": "shamir"}},
        {"sharing": "additive"},
        {"sharing": {"scheme": "threshold", "threshold": 1}},
        {"sharing": {"scheme": "additive", "threshold": 3}},
        {"dropouts": -1},
        {"colluders": -1},
        {"number": -1},
        {"mu": -1.0},
        {"population_size": 1},
        {"dimension": 1_000_001},
        {"compute_nodes": ["compute-0"]},
        {"query": {"name": "run_this_code"}},
        {"job": "00"},
    ],
    ids=str,
)
def test_a_field_outside_its_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError):
        changed(**changes)


@given(
    scale=st.floats(5e-324, 2.0**56),
    mu=st.floats(5e-324, 1e6),
    dropouts=st.integers(0, 2**32),
    colluders=st.integers(0, 2**32),
    grid_bits=st.integers(4, 15),
    radius=st.none() | st.floats(0.1, 1e6),
    seconds=st.integers(-(2**30), 2**30),
)
def test_whatever_a_spec_says_checking_it_raises_nothing_but_a_refusal(
    scale, mu, dropouts, colluders, grid_bits, radius, seconds
) -> None:
    example = changed(
        noise=DiscreteGaussianNoise(scale=scale),
        mu=mu,
        dropouts=dropouts,
        colluders=colluders,
        minimum_cohort=max(2, SPEC.population_size - dropouts),
        query=MATRIX.model_dump() | {"grid_bits": grid_bits, "radius": radius},
        deadline=OPENED_AT + timedelta(seconds=seconds),
    )
    with pytest.raises(RefusedSpec):
        check(example)


@given(scale=st.floats(1e-300, 2.0**56))
def test_whatever_the_scale_a_spec_that_prices_it_right_is_accepted_or_refused(scale) -> None:
    try:
        check(with_scale(scale))
    except (RefusedSpec, pydantic.ValidationError):
        return
    assert SPEC.noise.scale * SPEC.mu / POLICY.cap.mu <= scale * 1.000001


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"colluders": 9}, "leave nobody"),
        ({"dropouts": 6}, "at least 8"),
        ({"mu": 3.0}, "too little for the policy"),
        ({"mu": 1e-11}, "too large to draw"),
        ({"population": BitMap([*range(11), REVOKED])}, "not enrolled"),
        ({"deadline": OPENED_AT}, "deadline"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_trainer_that_asks_for_the_impossible_is_told_so(arguments: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        spec(**arguments)


PURE_POLICY = POLICY.model_copy(update={"mechanisms": ("discrete_gaussian", "discrete_laplace")})
PURE_CONSORTIUM = consortium(policy=PURE_POLICY)


def laplace_spec(**changes: Any) -> RoundSpec:
    arguments = {"manifest": PURE_CONSORTIUM, "mechanism": "discrete_laplace"} | changes
    return spec(**({"cost": Cost.pure(0.25)} | arguments))


def test_a_round_with_laplace_noise_states_its_pure_epsilon_and_survives_the_wire() -> None:
    made = laplace_spec()
    read = decode(named("trainer", made).encode(), RoundSpec).body
    check(read, consortium=PURE_CONSORTIUM)
    assert read == made
    assert made.epsilon == pytest.approx(0.25, rel=1e-12) and made.epsilon <= 0.25
    assert made.noise.scale == pytest.approx(made.design.sensitivity / 0.25)
    assert {part.parties for _, part in made.noise_blocks()} == {12 - 2 - 3 - 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"epsilon": 0.2}, "epsilon is not"),
        ({"epsilon": None}, "epsilon is not"),
        ({"mu": 0.2}, "mu is not"),
        ({"colluders": 1}, "colluders must be at least 2"),
    ],
    ids=str,
)
def test_a_round_with_laplace_noise_at_another_price_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    example = RoundSpec.model_validate(laplace_spec().model_dump() | changes)
    with pytest.raises(RefusedSpec, match=reason):
        check(example, consortium=PURE_CONSORTIUM)


def test_a_round_with_laplace_noise_is_refused_where_the_policy_does_not_name_it() -> None:
    example = laplace_spec().model_copy(update={"manifest": CONSORTIUM.digest})
    with pytest.raises(RefusedSpec, match="mechanism"):
        check(example)


def test_gaussian_noise_is_refused_with_an_epsilon_that_it_has_not() -> None:
    with pytest.raises(RefusedSpec, match="epsilon is not"):
        check(changed(epsilon=0.5))


@pytest.mark.parametrize("declare", ["mu", "epsilon"])
def test_a_declared_cost_may_not_be_a_thousand_millionth_too_low(declare: str) -> None:
    made = laplace_spec()
    for factor, accepted in ((1 - 1e-10, False), (1 + 1e-9 - 1e-13, True), (1 + 1.1e-9, False)):
        example = made.model_copy(update={declare: getattr(made, declare) * factor})
        if accepted:
            check(example, consortium=PURE_CONSORTIUM)
        else:
            with pytest.raises(RefusedSpec, match=f"{declare} is not"):
                check(example, consortium=PURE_CONSORTIUM)
    cheaper = SPEC.model_copy(update={"mu": SPEC.mu * (1 - 1e-10)})
    with pytest.raises(RefusedSpec, match="mu is not"):
        check(cheaper)


@given(asked=st.floats(0.01, 4.0), less=st.floats(0.0, 1e-10), rounds=st.integers(1, 40))
def test_rounds_under_a_pure_cap_never_really_cost_more_than_it(
    asked: float, less: float, rounds: int
) -> None:
    cap = Cap(epsilon=asked, delta=0.0)
    only = {"mechanisms": ("discrete_laplace",), "maximum_epsilon": asked, "delta": 0.0}
    policy = PURE_POLICY.model_copy(update=only)
    pure = consortium(policy=policy)
    made = laplace_spec(manifest=pure, cost=Cost.pure(asked / rounds))
    # less noise than was asked for, at the price that was asked for
    noise = noise_for(
        "discrete_laplace",
        sensitivity=made.design.sensitivity,
        cost=Cost.pure(asked / rounds * (1 + less)),
        population=made.population_size,
        dropouts=made.dropouts,
        colluders=made.colluders,
    )
    declared = made.model_copy(update={"noise": noise})
    try:
        check(declared, consortium=pure)
    except RefusedSpec:
        assert less > 1e-11, "rounding alone"
        return
    balances, clients, answered = Balances(), made.clients(), 0
    while answered < 2 * rounds and balances.affording(clients, declared.cost, cap):
        balances.add(clients, declared.cost)
        answered += 1
    assert answered >= rounds
    assert answered * Fraction(made.design.sensitivity) / Fraction(noise.scale) <= Fraction(asked)

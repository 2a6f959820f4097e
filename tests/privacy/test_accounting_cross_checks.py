"""Every price, again by methods that share no code with the accountant's.

Exact convolutions of the noise that is really summed, dp_accounting's privacy loss distributions
and Rényi accountants, and mpmath with 60 digits. Trap: under REPLACE_ONE dp_accounting's PLD
accountant doubles a sensitivity, its RDP accountant does not; here neighbours are two
distributions, shifted against each other by the sensitivity for replacement.
"""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import rdp_privacy_accountant as rdp
from numpy.typing import NDArray

from shoal_protocol.privacy.accounting import Cost, compose, price
from shoal_protocol.privacy.job_costs import (
    Release,
    epsilon_at,
    noise_for,
    statements,
)
from shoal_protocol.privacy.mechanisms import (
    fold_excess,
    gaussian_delta,
    gaussian_mu,
    lattice_excess,
)
from shoal_protocol.queries import Column, SecondMomentMatrix
from shoal_protocol.queries.sums import matrix_from
from tests.world.examples import one_block

Pmf = NDArray[np.float64]

EPSILONS = (0.1, 0.5, 1.0, 3.0, 10.0)
DELTAS = (1e-4, 1e-6, 1e-9)
GRID = tuple(itertools.product(EPSILONS, DELTAS))
INTERVAL = 1e-4  # of dp_accounting's grid of losses, and so about its error
MECHANISMS = ("discrete_gaussian", "discrete_laplace")
FEDERATION = {"population": 24, "dropouts": 4, "colluders": 3}
PARTIES = 16


def discrete_gaussian(scale: float, reach: float = 14.0) -> Pmf:
    support = np.arange(-math.ceil(reach * scale), math.ceil(reach * scale) + 1)
    weights: Pmf = np.exp(-0.5 * (support / scale) ** 2)
    return weights / weights.sum()


def negative_binomial_difference(scale: float, parties: int, clients: int) -> Pmf:
    """Return the distribution of so many clients' Laplace parts, by its recursion."""
    successes, fails = clients / parties, math.exp(-1.0 / scale)
    counts = np.arange(1, round(45 * scale) + 200)
    steps = np.log(fails * (counts - 1 + successes) / counts)
    one = np.exp(successes * math.log1p(-fails) + np.concatenate([[0.0], np.cumsum(steps)]))
    return np.convolve(one, one[::-1])


def folded(one: Pmf, times: int) -> Pmf:
    """Return the distribution of the sum of so many independent draws, exactly convolved."""
    total = one
    for _ in range(times - 1):
        total = np.convolve(total, one)
    return total


def shifted_delta(noise: Pmf, shift: int, epsilon: float) -> float:
    """Return delta at `epsilon` between noise and the same noise, shifted: the definition."""
    gap = np.concatenate([noise, np.zeros(shift)]) - math.exp(epsilon) * np.concatenate(
        [np.zeros(shift), noise]
    )
    return math.fsum(gap[gap > 0.0])


@pytest.mark.parametrize("squared_scale", [0.5, 0.7, 1.0, 1.5])
@pytest.mark.parametrize("clients", [2, 3, 8, 20])
def test_pitfall_3_a_sum_of_discrete_gaussians_differs_from_one_by_at_most_tau(
    squared_scale, clients
):
    scale = math.sqrt(squared_scale)
    total = folded(discrete_gaussian(scale), clients)
    support = np.arange(len(total)) - len(total) // 2
    expected = np.exp(-0.5 * support**2 / (clients * squared_scale))
    expected /= expected.sum()
    near = np.abs(support) <= 6 * scale * math.sqrt(clients)
    apart = float(np.abs(np.log(total[near] / expected[near])).max())
    assert apart <= fold_excess(scale=scale, parties=clients)
    if squared_scale == 0.5:
        assert apart > 1e-4  # so the accountant may not take it for one


def test_pitfall_3_tau_is_part_of_what_must_be_small_enough():
    for scale, parties, dimension in ((0.8, 4, 10), (1.0, 100, 3)):
        tau = fold_excess(scale=scale, parties=parties)
        excess = lattice_excess(scale=scale, parties=parties, dimension=dimension, mu=1.0)
        assert excess >= dimension * tau
    assert fold_excess(scale=4.0, parties=2**20) < 1e-61
    exact = 10 * math.fsum(math.exp(-2 * math.pi**2 * 0.64 * k / (k + 1)) for k in range(1, 1000))
    assert exact <= fold_excess(scale=0.8, parties=1000) <= exact * 1.1


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_the_noise_that_is_really_summed_keeps_to_the_price(epsilon, delta):
    """Sixteen clients' discrete Gaussians, convolved, against the continuous claim.

    A grid of 400 lattice units per noise scale is far coarser than `is_fine_enough` demands, so the
    claim may be missed by what `lattice_excess` allows for, and by no more.
    """
    scale = 100.0
    noise = folded(discrete_gaussian(scale, 10.0), 4)
    noise = folded(noise, 4)
    total = scale * math.sqrt(PARTIES)
    mu = min(gaussian_mu(epsilon=epsilon, delta=delta), 4.0)
    shift = round(mu * total)
    claimed = gaussian_delta(epsilon=epsilon, mu=shift / total)
    true = shifted_delta(noise, shift, epsilon)
    excess = 2.0 * lattice_excess(scale=scale, parties=PARTIES, dimension=1, mu=mu)
    assert true <= gaussian_delta(epsilon=epsilon - excess, mu=shift / total)
    assert true == pytest.approx(claimed, rel=0.02, abs=1e-14)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("present", range(20, 25))
def test_pitfall_4_every_releasable_cohort_less_any_colluders_has_the_noise_that_was_promised(
    mechanism, present
):
    """The noise of the cohort less C colluders and the reader, convolved, shift by shift."""
    cost = Cost.pure(0.5) if mechanism == "discrete_laplace" else Cost.gaussian(0.5)
    noise = noise_for(mechanism, sensitivity=8.0, cost=cost, **FEDERATION)
    counted = present - FEDERATION["colluders"] - 1
    assert counted >= PARTIES
    if mechanism == "discrete_laplace":
        total = negative_binomial_difference(noise.scale, PARTIES, counted)
        middle = total[len(total) // 2 - 150 : len(total) // 2 + 151]
        for shift in (1, 4, 8):  # 8 is the whole sensitivity
            losses = np.log(middle[shift:] / middle[:-shift])
            assert np.abs(losses).max() <= 0.5 * shift / 8 * (1 + 1e-9)
    else:
        total = folded(discrete_gaussian(noise.scale), counted)
        variance = (np.arange(len(total)) - len(total) // 2) ** 2 @ total
        assert 8.0 / math.sqrt(variance) <= 0.5 * (1 + 1e-9)
        for epsilon in (0.5, 1.0, 2.0):
            assert (
                shifted_delta(total, 8, epsilon) <= gaussian_delta(epsilon=epsilon, mu=0.5) * 1.05
            )


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("sensitivity", [3, 7, 20])
def test_the_laplace_total_costs_exactly_its_epsilon(epsilon, sensitivity):
    noise = noise_for(
        "discrete_laplace", sensitivity=sensitivity, cost=Cost.pure(epsilon), **FEDERATION
    )
    theirs = pld.from_discrete_laplace_mechanism(
        1.0 / noise.scale, sensitivity, value_discretization_interval=INTERVAL
    )
    claimed = price(noise, sensitivity=sensitivity, **FEDERATION).epsilon
    assert claimed == pytest.approx(epsilon, rel=1e-12)
    assert theirs.get_epsilon_for_delta(0.0) == pytest.approx(claimed, abs=2 * INTERVAL)
    total = negative_binomial_difference(noise.scale, PARTIES, PARTIES)
    reach = min(len(total) // 2 - sensitivity, round(12 * noise.scale) + 1)
    x = np.arange(-reach, reach + 1) + len(total) // 2
    assert np.log(total[x] / total[x - sensitivity]).max() == pytest.approx(claimed, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5, 30])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_composed_gaussians_agree_with_both_accountants_of_dp_accounting(count, delta):
    costs = [Cost.gaussian(0.05 * (1 + number % 3)) for number in range(count)]
    claimed = epsilon_at(delta, compose(costs))
    exact = pld_privacy_accountant.PLDAccountant(value_discretization_interval=INTERVAL)
    doubling = pld_privacy_accountant.PLDAccountant(
        dp_accounting.NeighboringRelation.REPLACE_ONE, value_discretization_interval=INTERVAL
    )
    orders = np.concatenate([np.linspace(1.01, 20, 400), np.geomspace(20, 4000, 200)])
    loose = rdp.RdpAccountant(orders)
    for cost in costs:
        exact.compose(dp_accounting.GaussianDpEvent(1.0 / cost.mu))
        doubling.compose(dp_accounting.GaussianDpEvent(2.0 / cost.mu))
        loose.compose(dp_accounting.GaussianDpEvent(1.0 / cost.mu))
    assert exact.get_epsilon(delta) == pytest.approx(claimed, abs=count * INTERVAL)
    assert doubling.get_epsilon(delta) == pytest.approx(claimed, abs=count * INTERVAL)
    assert claimed <= loose.get_epsilon(delta)
    assert compose(costs).mu == pytest.approx(math.sqrt(sum(cost.mu**2 for cost in costs)))


def matrix_query() -> SecondMomentMatrix:
    """Return a query on a grid so coarse that its noise can be written down."""
    columns = tuple(Column(name=name, centre=0.0, scale=1.0) for name in "ab")
    return SecondMomentMatrix(
        columns=columns, intercept=0.0, radius=1.0, grid_bits=4, records_per_client=1
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_different_noise_on_each_coordinate_costs_what_is_stated(mechanism):
    """Neighbours that reach the sensitivity, coordinate by coordinate, composed by dp_accounting.

    Against coordinate noise of another scale each, less off the diagonal.
    """
    query = matrix_query()
    design = query.design(mechanism)
    one, other = query.encode(np.array([[0.0, 1.0]])), query.encode(np.array([[1.0, 0.0]]))
    slanted = [np.array([[root, sign * root]]) for root, sign in ((0.5**0.5, 1), (0.5**0.5, -1))]
    pairs = [(one, other), tuple(map(query.encode, slanted))]
    cost = Cost.gaussian(1.0) if mechanism == "discrete_gaussian" else Cost.pure(1.0)
    noise = noise_for(mechanism, sensitivity=design.sensitivity, cost=cost, **FEDERATION)
    scales = np.repeat(
        [block.relative_scale * noise.scale for block in design.blocks],
        [block.coordinates for block in design.blocks],
    )
    worst = 0.0
    for first, second in pairs:
        together = pld.identity(INTERVAL)
        for scale, shift in zip(scales, np.abs(first - second), strict=True):
            if not shift:
                continue
            part = (
                pld.from_discrete_gaussian_mechanism(
                    scale * math.sqrt(PARTIES), int(shift), value_discretization_interval=INTERVAL
                )
                if mechanism == "discrete_gaussian"
                else pld.from_discrete_laplace_mechanism(
                    1.0 / scale, int(shift), value_discretization_interval=INTERVAL
                )
            )
            together = together.compose(part)
        delta = 1e-6 if mechanism == "discrete_gaussian" else 0.0
        worst = max(worst, together.get_epsilon_for_delta(delta))
    claimed = epsilon_at(delta, cost)
    assert worst <= claimed + 10 * INTERVAL
    assert worst >= 0.6 * claimed  # rounding to so coarse a grid loses some, and L1 keeps to a box


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_pitfall_18_knowing_who_took_part_makes_nothing_cheaper_or_dearer(mechanism):
    """No adversary's price has a sampling rate in it, whatever part of the enrolled takes part."""
    cost = Cost.pure(0.5) if mechanism == "discrete_laplace" else Cost.gaussian(0.5)
    delta = 0.0 if mechanism == "discrete_laplace" else 1e-6
    for population in (100, 10_000):
        federation = {"population": population, "dropouts": 0, "colluders": 9}
        noise = noise_for(mechanism, sensitivity=1e6, cost=cost, **federation)
        release = Release(noise=noise, design=one_block(1e6), cohort_size=population, **federation)
        *_, node, colluding, _ = statements([release], delta=delta, nodes=3, needed=3)
        unamplified = epsilon_at(delta, cost)
        assert colluding.promised.epsilon == pytest.approx(unamplified, rel=1e-6)
        assert node.promised.epsilon >= 0.93 * unamplified  # 9 colluders fewer, and no more


def test_pitfall_19_nothing_is_divided_by_a_count_that_a_neighbour_changes():
    """Sums are only ever scaled by the grid, which is public: reading them is linear."""
    query = matrix_query().model_copy(update={"records_per_client": 3})
    few, many = (np.full((records, 2), 0.5) for records in (1, 3))
    apart = query.encode(many) - query.encode(few)
    weights = np.repeat(
        [block.relative_scale for block in query.design("discrete_gaussian").blocks],
        [block.coordinates for block in query.design("discrete_gaussian").blocks],
    )
    distance = float(np.linalg.norm(apart / weights))
    assert distance <= query.design("discrete_gaussian").sensitivity
    assert np.array_equal(
        matrix_from(query, query.encode(few) + query.encode(many)),
        matrix_from(query, query.encode(few)) + matrix_from(query, query.encode(many)),
    )
    assert np.array_equal(
        matrix_from(query, 7 * query.encode(few)), 7 * matrix_from(query, query.encode(few))
    )

"""Privacy costs against three referees: mpmath, dp_accounting, and lattice noise summed exactly."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian
from hypothesis import assume, given
from hypothesis import strategies as st

from shoal_protocol import accounting, curves, mechanisms

EPSILONS = (0.0, 1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 31.6, 100.0)
DELTAS = (1e-15, 1e-12, 1e-8, 1e-5, 1e-4, 1e-2, 0.3)
GRID = tuple(itertools.product(EPSILONS, DELTAS))

mus = st.floats(1e-6, 20.0)
epsilons = st.floats(0.0, 100.0)
deltas = st.floats(1e-15, 0.5)


def exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(80):
        shift, half = mpmath.mpf(epsilon) / mu, mpmath.mpf(mu) / 2
        return mpmath.ncdf(half - shift) - mpmath.exp(epsilon) * mpmath.ncdf(-half - shift)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_the_mu_allowed_for_a_budget_keeps_to_it_and_wastes_next_to_nothing(epsilon, delta):
    mu = curves.gaussian_mu(epsilon=epsilon, delta=delta)
    assert exact_delta(epsilon, mu) <= delta
    assert exact_delta(max(0.0, epsilon - 2e-6), mu * (1.0 + 1e-5)) >= delta


@given(epsilon=epsilons, mu=mus)
def test_a_claimed_delta_is_never_below_the_true_one(epsilon, mu):
    assert curves.gaussian_delta(epsilon=epsilon, mu=mu) >= exact_delta(epsilon, mu)


@given(mu=mus, delta=deltas)
def test_a_claimed_epsilon_is_never_below_the_true_one(mu, delta):
    epsilon = curves.gaussian_epsilon(mu=mu, delta=delta)
    assert exact_delta(epsilon, mu) <= delta
    if epsilon > 1e-5:
        assert exact_delta(epsilon - 1e-5, mu) > delta


@pytest.mark.parametrize(("epsilon", "delta"), [(e, d) for e, d in GRID if e > 0 and d >= 1e-12])
def test_dp_accounting_agrees_and_never_asks_for_more(epsilon, delta):
    theirs = 1.0 / get_sigma_gaussian(epsilon, delta)
    ours = curves.gaussian_mu(epsilon=epsilon, delta=delta)
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert get_epsilon_gaussian(1.0 / ours, delta) <= epsilon
    claimed = curves.gaussian_epsilon(mu=ours, delta=delta)
    assert claimed >= get_epsilon_gaussian(1.0 / ours, delta)
    assert claimed == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize(("epsilon", "true_epsilon"), [(10.0, 10.6), (10.0**1.5, 52.77)])
def test_the_classical_gaussian_rule_breaks_its_promise_at_large_epsilon(epsilon, true_epsilon):
    delta = 1e-4
    classical_mu = epsilon / math.sqrt(2.0 * math.log(1.25 / delta))
    assert exact_delta(epsilon, classical_mu) > delta
    spent = curves.gaussian_epsilon(mu=classical_mu, delta=delta)
    assert spent == pytest.approx(true_epsilon, abs=0.05)
    assert curves.gaussian_mu(epsilon=epsilon, delta=delta) < classical_mu


def test_nothing_released_costs_nothing():
    assert curves.gaussian_epsilon(mu=0.0, delta=1e-9) == 0.0
    assert curves.gaussian_delta(epsilon=0.0, mu=0.0) == 0.0
    assert accounting.compose([]) == 0.0


@given(mu=mus, more=st.floats(1.001, 3.0), delta=deltas)
def test_more_revealed_never_costs_less(mu, more, delta):
    assert curves.gaussian_epsilon(mu=mu * more, delta=delta) >= curves.gaussian_epsilon(
        mu=mu, delta=delta
    )


@given(mu=mus)
def test_one_release_composes_to_itself(mu):
    assert accounting.compose([mu]) == mu


@given(mu=mus, weights=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=30))
def test_shares_of_a_budget_fit_it_and_a_millionth_more_does_not(mu, weights):
    spent = accounting.compose(mu * math.sqrt(weight / sum(weights)) for weight in weights)
    assert accounting.fits_budget(spent_mu=spent, budget_mu=mu)
    assert not accounting.fits_budget(spent_mu=spent * (1.0 + 1e-6), budget_mu=mu)


@given(mu=mus, delta=deltas)
def test_what_the_budget_check_forgives_is_within_the_claim(mu, delta):
    claimed = curves.gaussian_epsilon(mu=mu, delta=delta)
    assert exact_delta(claimed, mu * (1.0 + 1e-12)) <= delta


@given(
    population=st.integers(2, 2000),
    dropouts=st.integers(0, 50),
    colluders=st.integers(0, 50),
    present=st.floats(0.0, 1.0),
    mu=st.floats(0.01, 10.0),
)
def test_every_releasable_cohort_less_the_colluders_still_has_the_full_noise(
    population, dropouts, colluders, present, mu
):
    assume(population - dropouts - colluders >= 2)
    scale = mechanisms.client_noise_scale(
        sensitivity=1000.0,
        mu=mu,
        population=population,
        dropouts=dropouts,
        colluders=colluders,
    )
    cohort = population - dropouts + round(present * dropouts)
    honest_others = cohort - colluders - 1
    assert 1000.0 / (scale * math.sqrt(honest_others)) <= mu


@given(
    population=st.integers(4, 10**8),
    mu=st.floats(1e-3, 50.0),
    sensitivity=st.floats(1.0, 1e12),
)
def test_the_cost_of_a_calibrated_round_never_exceeds_its_target(population, mu, sensitivity):
    federation = {"population": population, "dropouts": 1, "colluders": 1}
    scale = mechanisms.client_noise_scale(sensitivity=sensitivity, mu=mu, **federation)
    spent = mechanisms.round_mu(sensitivity=sensitivity, noise_scale=scale, **federation)
    assert spent <= mu
    assert spent == pytest.approx(mu, rel=1e-13)


def test_losing_noise_costs_what_it_should():
    full = curves.gaussian_mu(epsilon=1.0, delta=1e-5)
    for lost, epsilon in ((0.1, 1.06), (0.5, 1.47), (0.9, 3.62)):
        left = curves.gaussian_epsilon(mu=full / math.sqrt(1.0 - lost), delta=1e-5)
        assert left == pytest.approx(epsilon, abs=0.006)


@pytest.mark.parametrize(
    ("population", "dropouts", "colluders"), [(3, 1, 1), (1, 0, 0), (10, -1, 0), (10, 0, -1)]
)
def test_a_federation_with_nobody_left_to_add_noise_is_refused(population, dropouts, colluders):
    with pytest.raises(ValueError, match=r"noise|negative"):
        mechanisms.effective_noise_clients(
            population=population, dropouts=dropouts, colluders=colluders
        )


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_numbers_that_mean_nothing_are_refused(bad):
    federation = {"population": 10, "dropouts": 1, "colluders": 1}
    for call in (
        lambda: curves.gaussian_delta(epsilon=bad, mu=1.0),
        lambda: curves.gaussian_delta(epsilon=1.0, mu=bad),
        lambda: curves.gaussian_epsilon(mu=bad, delta=0.1),
        lambda: curves.gaussian_epsilon(mu=1.0, delta=bad),
        lambda: curves.gaussian_mu(epsilon=bad, delta=0.1),
        lambda: accounting.compose([1.0, bad]),
        lambda: accounting.fits_budget(spent_mu=bad, budget_mu=1.0),
        lambda: mechanisms.client_noise_scale(sensitivity=bad, mu=1.0, **federation),
        lambda: mechanisms.round_mu(sensitivity=1.0, noise_scale=bad, **federation),
        lambda: mechanisms.noise_tail(noise_scale=bad, clients=1, dimension=1),
    ):
        with pytest.raises(ValueError):
            call()


def lattice(scale: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    support = np.arange(-math.ceil(reach), math.ceil(reach) + 1, dtype=np.float64)
    weights = np.exp(-0.5 * (support / scale) ** 2)
    return support, weights / weights.sum()


def test_two_clients_discrete_gaussians_add_up_to_one_at_the_smallest_scale():
    scale = mechanisms.SMALLEST_CLIENT_SCALE
    _, one = lattice(scale, 15 * scale)
    both = np.convolve(one, one)
    support = np.arange(len(both)) - len(both) // 2
    _, expected = lattice(scale * math.sqrt(2.0), len(both) // 2)
    near = np.abs(support) <= 6 * scale
    assert np.abs(np.log(both[near] / expected[near])).max() < 1e-10


def lattice_delta(scale: float, shift: int, epsilon: float) -> float:
    support, weights = lattice(scale, 12 * scale + shift)
    log_loss = (2.0 * support * shift + shift * shift) / (2.0 * scale**2)
    kept = weights * -np.expm1(np.minimum(0.0, epsilon - log_loss))
    return math.fsum(kept[log_loss > epsilon])


@pytest.mark.parametrize("mu", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 20.0])
def test_noise_that_is_fine_enough_costs_no_more_than_continuous_noise(mu, epsilon):
    scale, clients = 5000.0, 100
    federation = {"population": clients + 1, "dropouts": 0, "colluders": 0}
    assert mechanisms.is_fine_enough(noise_scale=scale, dimension=1, **federation)
    total = scale * math.sqrt(clients)
    shift = round(mu * total)
    true = lattice_delta(total, shift, epsilon)
    claimed = curves.gaussian_delta(epsilon=epsilon, mu=shift / total)
    assert true <= claimed
    assert true == pytest.approx(claimed, rel=1e-3, abs=1e-12)


def test_coarse_noise_is_not_accounted_as_continuous():
    federation = {"population": 3, "dropouts": 0, "colluders": 0}
    assert not mechanisms.is_fine_enough(noise_scale=3.9, dimension=1, **federation)
    assert not mechanisms.is_fine_enough(noise_scale=5.0, dimension=1, **federation)
    worst = max(
        lattice_delta(5.0, 5, epsilon) / curves.gaussian_delta(epsilon=epsilon, mu=1.0)
        for epsilon in np.linspace(0.5, 4.0, 50)
    )
    assert worst > 1.01


@given(scale=st.floats(0.1, 1e9), clients=st.integers(1, 10**8), dimension=st.integers(1, 10**6))
def test_the_noise_tail_holds_for_all_coordinates_together(scale, clients, dimension):
    tail = mechanisms.noise_tail(noise_scale=scale, clients=clients, dimension=dimension)
    outside = math.erfc(tail / (scale * math.sqrt(2.0 * clients)))
    assert dimension * outside <= 2.0**-40


@given(
    largest=st.integers(1, 2**30),
    population=st.integers(1, 10**8),
    scale=st.floats(4.0, 1e9),
    dimension=st.integers(1, 10**5),
)
def test_a_sum_that_fits_keeps_two_bits_spare(largest, population, scale, dimension):
    arguments = {
        "largest_value": largest,
        "population": population,
        "noise_scale": scale,
        "dimension": dimension,
    }
    tail = mechanisms.noise_tail(noise_scale=scale, clients=population, dimension=dimension)
    worst = population * largest + math.ceil(tail)
    bits = next(m for m in range(3, 80) if mechanisms.fits_modulus(modulus_bits=m, **arguments))
    assert 4 * (2 * worst + 1) <= 2**bits < 8 * (2 * worst + 1)

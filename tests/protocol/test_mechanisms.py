"""What noise sums to, against noise on the lattice that is summed exactly."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.privacy import mechanisms
from shoal_protocol.privacy.mechanisms import DiscreteGaussianNoise, GaussianPart, LaplacePart
from shoal_protocol.queries import NoiseBlock, NoiseDesign


def design(*blocks: tuple[int, float]) -> NoiseDesign:
    return NoiseDesign(
        sensitivity=1.0,
        blocks=tuple(
            NoiseBlock(coordinates=coordinates, relative_scale=relative_scale)
            for coordinates, relative_scale in blocks
        ),
    )


DESIGN = design((1, 1.0))


@pytest.mark.parametrize(
    ("population", "dropouts", "colluders"), [(3, 1, 1), (1, 0, 0), (10, -1, 0), (10, 0, -1)]
)
def test_a_federation_with_nobody_left_to_add_noise_is_refused(population, dropouts, colluders):
    with pytest.raises(ValueError, match=r"noise|negative"):
        mechanisms.effective_noise_clients(
            population=population, dropouts=dropouts, colluders=colluders
        )


def lattice(scale: float, reach: float) -> tuple[np.ndarray, np.ndarray]:
    support = np.arange(-math.ceil(reach), math.ceil(reach) + 1, dtype=np.float64)
    weights = np.exp(-0.5 * (support / scale) ** 2)
    return support, weights / weights.sum()


def lattice_delta(scale: float, shift: int, epsilon: float) -> float:
    support, weights = lattice(scale, 12 * scale + shift)
    log_loss = (2.0 * support * shift + shift * shift) / (2.0 * scale**2)
    kept = weights * -np.expm1(np.minimum(0.0, epsilon - log_loss))
    return math.fsum(kept[log_loss > epsilon])


def test_coarse_noise_is_not_accounted_as_continuous():
    many = 10**12  # so that only the scale of one client's noise can be too small
    assert not DiscreteGaussianNoise(scale=3.9).is_fine_enough(
        design((1, 1.0)), parties=many, mu=1.0
    )
    assert DiscreteGaussianNoise(scale=4.1).is_fine_enough(DESIGN, parties=many, mu=1.0)
    assert not DiscreteGaussianNoise(scale=5.0).is_fine_enough(DESIGN, parties=2, mu=1.0)
    worst = max(
        lattice_delta(5.0, 5, epsilon) / mechanisms.gaussian_delta(epsilon=epsilon, mu=1.0)
        for epsilon in np.linspace(0.5, 4.0, 50)
    )
    assert worst > 1.01


def test_neighbours_far_apart_need_finer_noise():
    """Checked at the far neighbour's mean, where a rounded Gaussian differs the most."""
    scale = 50.0
    for mu in (5.0, 11.0, 20.0, 40.0):
        squares = 1.0 + 2.0 * math.sqrt(60.0) + 120.0
        far = (math.sqrt(squares) + mu) ** 2 + 1.0
        bound = mechanisms.lattice_excess(scale=scale, parties=1, dimension=1, mu=mu)
        assert far / (24.0 * scale**2) <= bound
    noise = DiscreteGaussianNoise(scale=500_000.0)
    assert noise.is_fine_enough(design((1, 1.0)), parties=1, mu=11.0)
    assert not noise.is_fine_enough(design((1, 1.0)), parties=1, mu=80.0)
    with pytest.raises(ValueError, match="mu"):
        noise.is_fine_enough(design((1, 1.0)), parties=1, mu=-1.0)


def test_the_smallest_noise_of_any_coordinate_decides_whether_it_is_fine_enough():
    noise, many = DiscreteGaussianNoise(scale=5.0), 10**12
    assert noise.is_fine_enough(design((3, 1.0), (3, 0.9)), parties=many, mu=1.0)
    assert not noise.is_fine_enough(design((3, 1.0), (3, 0.7)), parties=many, mu=1.0)


@given(scale=st.floats(0.1, 1e9), clients=st.integers(1, 10**8), dimension=st.integers(1, 10**6))
def test_the_gaussian_tail_holds_for_all_coordinates_together(scale, clients, dimension):
    tail = GaussianPart(scale=scale).tail(clients=clients, dimension=dimension)
    outside = math.erfc(tail / (scale * math.sqrt(2.0 * clients)))
    assert dimension * outside <= 2.0**-40


def negative_binomial(successes: float, fails: float, length: int) -> np.ndarray:
    """Return P(0), ..., P(length - 1) of the failures before so many successes."""
    counts = np.arange(1, length)
    steps = np.log(fails * (counts - 1 + successes) / counts)
    logs = successes * math.log1p(-fails) + np.concatenate([[0.0], np.cumsum(steps)])
    return np.exp(logs)


def laplace_sum(scale: float, parties: int, clients: int) -> np.ndarray:
    """Return the exact distribution of so many clients' noise, centred, far into its tails."""
    one = negative_binomial(clients / parties, math.exp(-1.0 / scale), round(60 * scale) + 200)
    return np.convolve(one, one[::-1])


@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize(("parties", "clients"), [(1, 1), (10, 10), (10, 14), (10, 1), (3, 30)])
def test_the_laplace_variance_and_tail_are_those_of_the_noise_really_summed(
    scale, parties, clients
):
    part, total = LaplacePart(scale=scale, parties=parties), laplace_sum(scale, parties, clients)
    support = np.arange(len(total)) - len(total) // 2
    assert part.variance(clients=clients) == pytest.approx(float(support**2 @ total), rel=1e-6)
    for failure in (0.1, 1e-4, 1e-8):
        tail = part.tail(clients=clients, dimension=1, failure=failure)
        outside = float(total[np.abs(support) > tail].sum())
        assert outside <= failure
    # not far beyond what is needed either: the modulus must fit it
    assert tail <= 3.0 * scale * (math.log(2.0 / failure) + clients / parties)


@given(
    scale=st.floats(1.0, 1e12),
    parties=st.integers(1, 10**6),
    more=st.floats(1.0, 3.0),
    dimension=st.integers(1, 10**6),
)
def test_the_laplace_tail_is_finite_and_grows_with_what_must_hold(scale, parties, more, dimension):
    part = LaplacePart(scale=scale, parties=parties)
    tail = part.tail(clients=parties, dimension=dimension)
    assert scale < tail < 200.0 * scale
    assert part.tail(clients=math.ceil(parties * more), dimension=dimension) >= tail
    assert part.tail(clients=parties, dimension=dimension + 1) >= tail


@given(
    largest=st.integers(1, 2**30),
    population=st.integers(1, 10**8),
    tail=st.floats(1.0, 1e12),
)
def test_a_sum_that_fits_keeps_two_bits_spare(largest, population, tail):
    arguments = {"largest_value": largest, "population": population, "tail": tail}
    worst = population * largest + math.ceil(tail)
    bits = next(m for m in range(3, 80) if mechanisms.fits_modulus(modulus_bits=m, **arguments))
    assert 4 * (2 * worst + 1) <= 2**bits < 8 * (2 * worst + 1)


@pytest.mark.parametrize("bad", [-1.0, 0.0, math.nan, math.inf])
def test_numbers_that_mean_nothing_are_refused(bad):
    for call in (
        lambda: mechanisms.lattice_excess(scale=bad, parties=2, dimension=1, mu=1.0),
        lambda: mechanisms.fold_excess(scale=0.7, parties=2),
        lambda: mechanisms.fold_excess(scale=4.0, parties=0),
        lambda: GaussianPart(scale=1.0).tail(clients=1, dimension=1, failure=bad),
        lambda: GaussianPart(scale=1.0).tail(clients=0, dimension=1),
        lambda: LaplacePart(scale=1.0, parties=1).tail(clients=1, dimension=0),
        lambda: mechanisms.fits_modulus(largest_value=-1, population=1, tail=1.0, modulus_bits=64),
        lambda: DiscreteGaussianNoise(scale=bad),
    ):
        with pytest.raises(ValueError):
            call()

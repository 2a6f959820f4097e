"""The red team's tests of chance: they alarm as rarely as they say, and are able to find."""

import math

import pytest
from scipy.special import gammainc, gammaincc

from shoal_holder.noise import exact_noise
from shoal_protocol.privacy.mechanisms import GaussianPart, LaplacePart, NoisePart
from shoal_redteam.attacks.sent_noise import size_of
from shoal_redteam.chance import (
    FALSE_ALARM,
    gamma_bound,
    p_value,
    pairs_of,
)
from tests.world.chance import fixed_bytes


def test_the_p_value_is_the_two_sided_binomial_one() -> None:
    assert p_value(0, 10) == 2 / 1024
    assert p_value(10, 10) == 2 / 1024
    assert p_value(5, 10) == 1.0
    assert math.isclose(p_value(2, 10), 2 * (1 + 10 + 45) / 1024)


def test_the_test_calls_a_coincidence_a_leak_as_rarely_as_it_says() -> None:
    # exact, over all outcomes of 200 fair coins
    alarm = sum(math.comb(200, k) for k in range(201) if p_value(k, 200) < FALSE_ALARM) / 2**200
    assert 0 < alarm < FALSE_ALARM


def test_two_quantities_of_which_one_follows_the_other_are_found_out() -> None:
    draw = fixed_bytes("quantities")
    noise = [float(int.from_bytes(draw(4), "little")) for _ in range(100)]
    times = [3.0 + 1e-12 * each for each in noise]
    assert p_value(*pairs_of(noise, times)) < FALSE_ALARM


def test_a_machine_that_slows_down_is_no_leak() -> None:
    draw = fixed_bytes("drift")
    noise = [float(int.from_bytes(draw(4), "little")) for _ in range(400)]
    times = [float(number) for number in range(400)]
    assert p_value(*pairs_of(noise, times)) > 0.01


@pytest.mark.parametrize("shape", [0.5, 1.0, 34.0, 120.0])
def test_the_bound_on_a_sum_is_no_smaller_than_its_exact_tails(shape: float) -> None:
    for share in (0.01, 0.3, 0.8, 1.2, 3.0):
        total = share * shape
        tail = gammainc(shape, total) if share < 1.0 else gammaincc(shape, total)
        assert min(1.0, 2.0 * tail) <= gamma_bound(total, shape) * (1.0 + 1e-9)


def test_no_noise_at_all_is_no_coincidence() -> None:
    assert gamma_bound(0.0, 0.5) == 0.0


@pytest.mark.parametrize(
    ("part", "shape"),
    [(GaussianPart(scale=1e6), 300.0), (LaplacePart(scale=1e6, parties=7), 85.0)],
)
def test_honest_noise_is_as_large_as_it_should_be(part: NoisePart, shape: float) -> None:
    # fails with probability 1e-6 at most
    total, found = size_of(part, exact_noise(part, 600))
    assert found == shape
    assert gamma_bound(total, shape) >= FALSE_ALARM

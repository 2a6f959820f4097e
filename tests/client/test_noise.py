"""The noise sampler, and OpenDP's beside it, which samples the same laws exactly, too (Canonne,
Kamath and Steinke 2020, arXiv:2004.00010). Randomness is fresh, so each statistical test states how
often it would fail on a right sampler."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace
from opendp.metrics import l1_distance, l2_distance
from opendp.mod import enable_features
from scipy import stats

from shoal_holder.noise import discrete_gaussian, exact_noise
from shoal_protocol.privacy.mechanisms import (
    LARGEST_LAPLACE_SCALE,
    LARGEST_SCALE,
    GaussianPart,
    LaplacePart,
)

DRAWS = 20_000

enable_features("contrib")


def opendp_gaussian(scale: float, count: int) -> NDArray[np.int64]:
    domain = vector_domain(atom_domain(T="i64"), size=count)
    return np.array(make_gaussian(domain, l2_distance(T="f64"), scale)([0] * count), np.int64)


def opendp_laplace(scale: float, count: int) -> NDArray[np.int64]:
    domain = vector_domain(atom_domain(T="i64"), size=count)
    return np.array(make_laplace(domain, l1_distance(T="i64"), scale)([0] * count), np.int64)


def discrete_laplace(scale: float, count: int) -> NDArray[np.int64]:
    """The whole noise of one party."""
    return exact_noise(LaplacePart(scale=scale, parties=1), count)


Sampler = Callable[[float, int], NDArray[np.int64]]


@pytest.mark.parametrize("scale", [0.7, 4.0, 20.5, 1e6, 2.0**50])
@pytest.mark.parametrize(
    ("ours", "reference"),
    [(discrete_gaussian, opendp_gaussian), (discrete_laplace, opendp_laplace)],
    ids=["gaussian", "laplace"],
)
def test_draws_have_the_same_law_as_opendps(
    ours: Sampler, reference: Sampler, scale: float
) -> None:
    """Chi-square of two samples over our sample's twentieths; once in 10^9 runs by chance."""
    one, other = ours(scale, 10 * DRAWS), reference(scale, DRAWS)
    edges = np.unique(np.quantile(one, np.linspace(0.05, 0.95, 19)))
    table = [np.bincount(np.searchsorted(edges, each), minlength=20) for each in (one, other)]
    counts = np.array(table)[:, np.sum(table, axis=0) > 0]
    assert stats.chi2_contingency(counts).pvalue > 1e-9


@pytest.mark.parametrize(
    "scale", [math.nan, math.inf, -math.inf, 0.0, -1.0, math.nextafter(LARGEST_SCALE, math.inf)]
)
def test_a_scale_that_gives_no_noise_or_saturates_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        discrete_gaussian(scale, 3)


@pytest.mark.parametrize(
    "part", [GaussianPart(scale=300.0), LaplacePart(scale=300.0, parties=1)], ids=lambda p: str(p)
)
def test_either_mechanism_is_drawn_with_the_variance_that_is_accounted(
    part: GaussianPart | LaplacePart,
) -> None:
    """The mean of 20,000 squares within 7 of its standard errors (at most sqrt(5 / 20,000), for
    the Laplace's fourth moment): fails on a right sampler less than once in 10^9 runs."""
    draws = exact_noise(part, DRAWS).astype(np.float64)
    error = np.mean(draws**2) / part.variance(clients=1) - 1.0
    assert abs(error) < 7.0 * math.sqrt(5.0 / DRAWS)


@pytest.mark.parametrize(
    "scale", [math.nan, math.inf, 0.0, -1.0, math.nextafter(LARGEST_LAPLACE_SCALE, math.inf)]
)
def test_a_laplace_that_gives_no_noise_or_saturates_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="scale"):
        discrete_laplace(scale, 3)
    with pytest.raises(ValueError, match="count"):
        discrete_laplace(4.0, 0)

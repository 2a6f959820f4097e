"""What rounds cost if each client's secret coin decides whether it takes part; pure numerics.

Every client answers each of T rounds, with its contribution (of norm at most half the sensitivity)
where its coin, of probability q, says so, and with zeros where not; nobody else sees the coin.
Neighbours differ by the replacement of one client. With noise of which an unsampled round would
cost the Gaussian parameter mu, one round then reveals no more than which of

    (1 - q) N(0, 1) + q N(mu/2, 1)    and    (1 - q) N(0, 1) + q N(-mu/2, 1)

a number is drawn from, and T rounds, adaptively chosen ones too, no more than T such numbers.
`hidden_mu` is the Gaussian parameter that covers them at every epsilon, up to a chance too small
for any cap. Proofs, and of each bound: docs/mathematics.md, "Hidden participation".
"""

import math
from functools import lru_cache
from typing import Final

import numpy as np

from shoal_protocol.curves import gaussian_delta_below, require_positive
from shoal_protocol.privacy_losses import Array, PrivacyLosses

SLACK: Final = 1e-16
"""For each unit of mu^2, the chance that a hidden job reveals everything rather than its mu."""

LARGEST_ROUNDS: Final = 2**20
LARGEST_MU: Final = 10.0
"""Of an unsampled round, and about that of all: what costs more protects nobody."""

_LOSS_ERROR: Final = 2e-10  # of one round: twice `mechanisms.LATTICE_EXCESS`
_OUTSIDE: Final = 2.0 * math.exp(-60.0)  # of one round: the chance that it is more
_MARGIN: Final = 1.0 + 1e-6  # covers rounding in the masses of a loss, and other machines'
_KNOTS_PER_DEVIATION: Final = 50
_SECANTS: Final = 40
_NO_PRICE: Final = "hidden participation has no price for these rounds, this rate and this noise"


@lru_cache(maxsize=1024)
def hidden_mu(*, rate: float, mu: float, rounds: int) -> float:
    """Return the Gaussian parameter that covers `rounds` rounds of hidden participation.

    `rate` is the coin's probability q; `mu` what each round costs a client that surely takes part.
    For all epsilon, in either order of the neighbours, and for noise on the integers,
    delta(epsilon) <= s + (1 - s) G(epsilon): G of the result's Gaussian, s = `SLACK` result^2.

    Raises:
        ValueError: `rate` is not within (0, 1], `mu` not within (0, `LARGEST_MU`], `rounds` not
            within 1 to `LARGEST_ROUNDS`, or the loss is too large to be worth a price.
    """
    require_positive("mu", mu)
    if not (0.0 < rate <= 1.0 and mu <= LARGEST_MU and 1 <= rounds <= LARGEST_ROUNDS):
        raise ValueError(_NO_PRICE)
    losses = PrivacyLosses.of_mirrored_mixtures(rate=rate, reach=mu / 2.0)
    epsilons, deltas = losses.composed(rounds, knots_per_deviation=_KNOTS_PER_DEVIATION)
    # What the integers change: delta(epsilon) is at most e^error delta(epsilon - error), and below
    # 0 a delta rises by at most 1 for each unit of e^epsilon; and 1 - delta falls by e^-error.
    error = _LOSS_ERROR * rounds
    epsilons = np.concatenate([[0.0], epsilons + error])
    unshifted = np.concatenate([[deltas[0]], deltas])
    shifted = np.concatenate([[deltas[0] - math.expm1(-error)], deltas]) * math.exp(error)
    deltas = np.minimum(shifted, 1.0 - math.exp(-error) * (1.0 - unshifted)) + _OUTSIDE * rounds
    low, high = 0.0, mu
    while not _covers(high, epsilons, deltas):
        if high > LARGEST_MU:
            raise ValueError(_NO_PRICE)
        low, high = high, 2.0 * high
    while high - low > 1e-8 * high:
        middle = 0.5 * (low + high)
        if _covers(middle, epsilons, deltas):
            high = middle
        else:
            low = middle
    return high * _MARGIN


@lru_cache(maxsize=256)
def hidden_round_mu(*, rate: float, total: float, rounds: int) -> float:
    """Return a `mu` of which `hidden_mu` is less than `total`, by 1e-7 to 1e-5 of it.

    It is `LARGEST_MU` if that costs no more.

    Raises:
        ValueError: as `hidden_mu`, or no noise brings the price so low.
    """
    require_positive("total", total)
    if not (0.0 < rate <= 1.0 and 1 <= rounds <= LARGEST_ROUNDS):
        raise ValueError(_NO_PRICE)
    # By the central limit the total is 2 rate sqrt(rounds sinh(mu^2 / 4)); from there by secants
    # in the logarithms, where the price is nearly a line.
    guess = 2.0 * math.sqrt(math.asinh((total / (2.0 * rate)) ** 2 / rounds))
    tried: list[tuple[float, float]] = []
    for _ in range(_SECANTS):
        guess = min(guess, LARGEST_MU)
        found = hidden_mu(rate=rate, mu=guess, rounds=rounds)
        if found <= total * (1.0 - 1e-7) and (found >= total * (1.0 - 1e-5) or guess == LARGEST_MU):
            return guess
        tried.append((math.log(guess), math.log(found / total)))
        (x, y), slope = tried[-1], 1.0
        if len(tried) > 1 and tried[-2][0] != x:
            slope = max(1.0, (tried[-2][1] - y) / (tried[-2][0] - x))
        guess = math.exp(x - (y + 5e-6) / slope)
    raise ValueError("no noise brings so many rounds at this rate to so low a price")


def _covers(mu: float, epsilons: Array, deltas: Array) -> bool:
    """Tell whether a Gaussian of `mu`, with its slack, is nowhere below these deltas.

    Between two epsilons a delta is at most what a line in e^epsilon says, for it is convex in it;
    the Gaussian's may be below that line by an eighth of (the cell's width)^2 times its second
    derivative, which is the density of its loss times e^(-2 epsilon).
    """
    slack = SLACK * mu * mu
    if not deltas[-1] <= slack:
        return False
    standard = (epsilons - 0.5 * mu * mu) / mu
    density = np.exp(-0.5 * standard**2) / (mu * math.sqrt(2.0 * math.pi))
    highest = np.maximum(density[:-1], density[1:])
    peak = (standard[:-1] < 0.0) & (standard[1:] > 0.0)
    highest[peak] = 1.0 / (mu * math.sqrt(2.0 * math.pi))
    gaps = np.expm1(np.diff(epsilons)) ** 2 / 8.0 * highest
    needed = deltas + np.maximum(np.append(gaps, 0.0), np.append(0.0, gaps))
    for epsilon, delta, bound in zip(
        epsilons.tolist(), deltas.tolist(), needed.tolist(), strict=True
    ):
        if delta <= slack:
            return True
        if bound > slack + (1.0 - slack) * gaussian_delta_below(epsilon=epsilon, mu=mu):
            return False
    return True

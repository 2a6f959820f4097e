"""Samples the posterior of a linear regression given the design by NUTS, or refuses.

Four chains run the model in `design_model`, which needs the extra `numpyro`, and must pass checks.
Draws follow from the released sums alone, so they can be reproduced.
"""

import importlib.util
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.design_moments import WITHOUT_NUMPYRO, DesignMoments, model
from shoal_learning.design_starts import starts
from shoal_learning.refusals import NoReliablePosterior
from shoal_protocol.posteriors.diagnostics import effective_sample_size, split_r_hat

FloatMatrix = NDArray[np.float64]

CHAINS: Final = 4
WARMUP: Final = 500
COUNT: Final = 500
LARGEST_R_HAT: Final = 1.01
FEWEST_EFFECTIVE: Final = 100 * CHAINS
MOST_COEFFICIENTS: Final = 32
"""With more the sampler takes hours; the matrix alone has half the square of it to be sampled."""

_ATTEMPTS: Final = ((0.9, 1), (0.97, 2), (0.995, 4))
"""Target acceptance and thinning of the first attempt and of those after a failed one."""


@dataclass(frozen=True, kw_only=True)
class CoefficientDraws:
    """Draws of b, shape (chains, draws, k), and of s, shape (chains, draws): s is a row's residual
    standard deviation before it shrinks. `divergences` of all transitions behind them."""

    coefficients: FloatMatrix
    residual_sd: FloatMatrix
    divergences: int


def conditional_posterior(design: DesignMoments) -> CoefficientDraws:
    """Return draws of the posterior that pass every check, after three attempts at most.

    The checks: no divergent transition, R-hat below 1.01 and an effective sample size of 400 or
    more for each coefficient and for s (Vehtari et al. 2021). A failed attempt is followed by one
    with shorter steps and twice as many of them.

    Raises:
        NoReliablePosterior: no attempt passed, or none could; the message says what to do.
    """
    check_feasible(len(design.prior_sd), design.most)
    reasons = []
    for number, (target_acceptance, thinning) in enumerate(_ATTEMPTS):
        draws = sample(design, number, target_acceptance=target_acceptance, thinning=thinning)
        reason = failure(draws)
        if reason is None:
            return draws
        reasons.append(reason)
    raise NoReliablePosterior(
        f"the sampler did not pass its checks in {len(reasons)} attempts ({'; '.join(reasons)}): "
        "ask with more clients, a larger epsilon or fewer features, or take inference "
        "quasi_likelihood"
    )


def check_feasible(coefficients: int, records: int) -> None:
    """Refuse what can never be sampled, before anything is spent on it.

    Raises:
        NoReliablePosterior: too many coefficients, too few records, or NumPyro is not installed.
    """
    if coefficients > MOST_COEFFICIENTS:
        raise NoReliablePosterior(
            f"inference conditional_design is for at most {MOST_COEFFICIENTS} coefficients: take "
            "fewer features, or inference quasi_likelihood"
        )
    if records <= coefficients:
        raise NoReliablePosterior(
            "inference conditional_design needs more records than coefficients: take fewer "
            "features, or inference quasi_likelihood"
        )
    if any(importlib.util.find_spec(name) is None for name in ("jax", "numpyro")):
        raise NoReliablePosterior(WITHOUT_NUMPYRO)


def failure(draws: CoefficientDraws) -> str | None:
    """Return why the draws must not be used, or None if they may."""
    if not (np.all(np.isfinite(draws.coefficients)) and np.all(draws.residual_sd > 0.0)):
        return "draws that are not finite"
    if draws.divergences:
        return f"{draws.divergences} divergent transitions"
    parameters = [*np.moveaxis(draws.coefficients, 2, 0), draws.residual_sd]
    r_hat = max(split_r_hat(each) for each in parameters)
    if not r_hat < LARGEST_R_HAT:
        return f"R-hat {r_hat:.3f}"
    effective = min(effective_sample_size(each) for each in parameters)
    if not effective >= FEWEST_EFFECTIVE:
        return f"effective sample size {effective:.0f}"
    return None


def sample(
    design: DesignMoments, attempt: int, *, target_acceptance: float, thinning: int
) -> CoefficientDraws:
    """Return the draws of one attempt, unchecked.

    Raises:
        ImportError: NumPyro is not installed; the message says what to do.
    """
    sampler = model()
    import jax

    generator = np.random.default_rng((design.seed, attempt))
    with jax.enable_x64(True):
        start = starts(design, CHAINS, generator)
        copies = (CHAINS,)
        evidence, coordinates = jax.tree.map(
            lambda value: np.broadcast_to(value, copies + np.shape(value)),
            (design.evidence(), start.coordinates),
        )
        found = sampler.run_chains(
            design.kind,
            evidence,
            coordinates,
            start.positions,
            jax.random.split(jax.random.key(int(generator.integers(2**63))), CHAINS),
            target_acceptance,
            thinning,
            warmup=WARMUP,
            count=COUNT,
        )
        return CoefficientDraws(
            coefficients=np.asarray(found.coefficients),
            residual_sd=np.asarray(found.residual_sd),
            divergences=int(np.sum(found.divergences)),
        )

"""Chooses the noise with which a release costs at most what it may: the inverse of `price`."""

import math

import pydantic

from shoal_protocol.privacy.accounting import PRICE_MARGIN, Cost
from shoal_protocol.privacy.curves import require_positive
from shoal_protocol.privacy.fineness import effective_noise_clients
from shoal_protocol.privacy.mechanisms import NOISES, DiscreteGaussianNoise, DiscreteLaplaceNoise
from shoal_protocol.queries import Mechanism


def noise_for(
    mechanism: Mechanism,
    *,
    sensitivity: float,
    cost: Cost,
    population: int,
    dropouts: int,
    colluders: int,
) -> DiscreteGaussianNoise | DiscreteLaplaceNoise:
    """Return the noise with which a release costs at most `cost`, by Theorem 1.

    Gaussian: each client's scale is sensitivity / (mu sqrt(N - D - C - 1)), L2. Laplace: the
    total's is sensitivity / epsilon, L1; the clients' parts divide it by N - D - C - 1.

    Raises:
        ValueError: `sensitivity` or the cost is not positive and finite, the noise would be too
            large to draw, or nobody would add any.
    """
    require_positive("sensitivity", sensitivity)
    parties = effective_noise_clients(population=population, dropouts=dropouts, colluders=colluders)
    if mechanism == "discrete_gaussian":
        require_positive("mu", cost.mu)
        scale = sensitivity / (cost.mu * math.sqrt(parties))
    else:
        require_positive("epsilon", cost.epsilon)
        scale = sensitivity / cost.epsilon
    try:
        return NOISES[mechanism](scale=scale * (1.0 + PRICE_MARGIN) * (1.0 + 1e-14))
    except pydantic.ValidationError:
        raise ValueError(
            "the noise would be too large to draw: allow a larger epsilon, or ask for fewer "
            "columns or records per client"
        ) from None

"""What releases really cost: the published methods', and one release per drug on the same lines.

Formulas only; draws nothing and reads nothing.
"""

import math

from figures.published import FIRST_ROUND
from shoal_protocol.privacy.accounting import Cap, Cost, compose
from shoal_protocol.privacy.job_costs import epsilon_at


def published_cost(*, epsilon: float, delta: float, understated: float) -> float:
    """Return the epsilon at `delta` that the projected method spends where it claims `epsilon`.

    The spread round's noise is `understated` times too small. Both rounds' noise is eq. (1)'s for
    its share of epsilon and delta; two Gaussian releases compose exactly.
    """
    rounds = (
        _classical(FIRST_ROUND * epsilon, FIRST_ROUND * delta, understated),
        _classical((1.0 - FIRST_ROUND) * epsilon, (1.0 - FIRST_ROUND) * delta, 1.0),
    )
    return epsilon_at(delta, compose(rounds))


def understated_sensitivity(bounds: tuple[float, ...]) -> float:
    """Return by what factor the spread round's noise is too small for columns within `bounds`.

    The squares within [0, c^2] have L2 sensitivity sqrt(sum c^4); published is sqrt(sum c^2).
    """
    right = math.sqrt(math.fsum(bound**4 for bound in bounds))
    return right / math.sqrt(math.fsum(bound**2 for bound in bounds))


def one_release_per_drug(*, epsilon: float, delta: float, drugs: int) -> float:
    """Return the epsilon at `delta` of a cell line that is in the release of each of the drugs."""
    one = Cost.gaussian(Cap(epsilon=epsilon, delta=delta).mu)
    return epsilon_at(delta, compose([one] * drugs))


def _classical(epsilon: float, delta: float, understated: float) -> Cost:
    return Cost.gaussian(understated * epsilon / math.sqrt(2.0 * math.log(1.25 / delta)))

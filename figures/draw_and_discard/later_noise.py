"""How far later noise hides a contribution, if nothing else happened to it: three curves over T.

Theorem 2 of Pihur et al. (2018, arXiv:1807.04369) and what it approximates. These are curves of
the noise alone: which tasks may claim what of them is said in `privacy`.
"""

import math
from collections.abc import Sequence

from figures.draw_and_discard.convolution import laplace_sum_epsilon
from shoal_protocol.privacy.mechanisms import require_positive, require_probability


def paper_epsilon(*, epsilon: float, additions: int, delta: float) -> float:
    """Return eps_T = epsilon sqrt(ln(1 / (2 delta)) / (2 T)), as Theorem 2 states it.

    It counts a sum of Laplace noises as normal, two steps as sqrt(2) clip apart where 2 clip is
    possible, and drops a term: from epsilon of about 4 on it is below the truth.

    Raises:
        ValueError: an argument is not positive, or `delta` is not below 1/2.
    """
    return epsilon * math.sqrt(_log(epsilon, additions, delta) / (2.0 * additions))


def exact_epsilon(*, epsilon: float, additions: int, delta: float) -> float:
    """Return the smallest epsilon at `delta` of two steps 2 clip apart under T Laplace noises.

    Raises:
        ValueError: as for `paper_epsilon`.
    """
    _log(epsilon, additions, delta)
    return laplace_sum_epsilon(delta=delta, shift=epsilon, additions=additions)


def epsilon_t_table(
    epsilons: Sequence[float], additions: Sequence[int], *, delta: float
) -> dict[float, dict[int, dict[str, float]]]:
    """Return {epsilon: {T: {"paper": ..., "exact": ...}}} at `delta`, for figures.

    Raises:
        ValueError: as for `paper_epsilon`.
    """
    return {
        epsilon: {
            each: {
                "paper": paper_epsilon(epsilon=epsilon, additions=each, delta=delta),
                "exact": exact_epsilon(epsilon=epsilon, additions=each, delta=delta),
            }
            for each in additions
        }
        for epsilon in epsilons
    }


def _log(epsilon: float, additions: int, delta: float) -> float:
    require_positive("epsilon", epsilon)
    require_probability(delta)
    if additions < 1 or delta >= 0.5:
        raise ValueError("additions must be positive, and delta below 1/2")
    return -math.log(2.0 * delta)

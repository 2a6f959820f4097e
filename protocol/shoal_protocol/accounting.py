"""What releases cost together, and whether that keeps to a cap; it knows no noise and no party.

Everywhere, neighbours differ by **replacement**: one client's whole contribution is exchanged for
any other admissible one, the number of clients stays as it is.
"""

import math
from collections.abc import Iterable
from typing import Final

from shoal_protocol.curves import require_at_least_zero

_BUDGET_SLACK: Final = 1e-12


def compose(mus: Iterable[float]) -> float:
    """Return the parameter of several releases on the same clients together: sqrt(sum mu^2).

    Exact also when a later release was chosen after seeing the earlier ones (Dong, Roth and Su
    2022, arXiv:1905.02383, Corollary 2). Replacement of one client in all of them at once.

    Raises:
        ValueError: a `mu` is negative or not finite.
    """
    parameters = tuple(mus)
    for mu in parameters:
        require_at_least_zero("mu", mu)
    return math.hypot(*parameters)


def fits_budget(*, spent_mu: float, budget_mu: float) -> bool:
    """Tell whether `spent_mu` keeps to `budget_mu`, forgiving floating-point error of 1e-12.

    Compare a composed cost with a cap by this function, not by `<=`: shares of a budget add up
    to the budget only up to the last bit. The reported epsilon covers what is forgiven.
    """
    require_at_least_zero("spent_mu", spent_mu)
    require_at_least_zero("budget_mu", budget_mu)
    return spent_mu <= budget_mu * (1.0 + _BUDGET_SLACK)

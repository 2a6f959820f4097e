"""Compares both protocols for a study side by side, with the trust that each needs."""

from typing import Final

from shoal.planning.crowds import draw_and_discard
from shoal.planning.in_rounds import distributed_compute
from shoal.planning.study import Prospect, Protocol, Study


def compare(study: Study) -> tuple[Prospect, Prospect]:
    """Return what the study would cost in rounds, and by Draw and Discard.

    Raises:
        ValueError: nobody's noise would be left, a crowd job of so many instances, coefficients and
            so much noise is not possible, or the assumed records have no estimate.
    """
    return distributed_compute(study), draw_and_discard(study)


def trust(prospect: Prospect) -> str:
    """Say whom a client has to trust for what."""
    return _TRUST[prospect.protocol].format(**_words(prospect))


def _words(prospect: Prospect) -> dict[str, str]:
    if prospect.protocol == "draw_and_discard":
        return {}
    settings = prospect.settings
    nodes, opened = int(settings["Compute nodes"]), int(settings["of which open a sum"])
    own = "its own small part of the noise"
    if settings["noise"] == "discrete_laplace":
        own = "next to no noise: most parts of a discrete Laplace are 0"
    return {
        "fewer": f"{opened - 1} of {nodes} Compute nodes",
        "colluders": f"{settings['colluders']:,}",
        "dropouts": f"{settings['dropouts']:,}",
        "own": own,
    }


_TRUST: Final[dict[Protocol, str]] = {
    "distributed_compute": (
        "the noise of all clients together protects each. The price holds against whoever sees the "
        "sums, in league with {fewer} and {colluders} other clients, while at most {dropouts} "
        "are missing. Against one Compute node more each client has {own}."
    ),
    "draw_and_discard": (
        "each client's own noise protects it. The price holds against everybody, the trainer and "
        "all services together, whatever they run. No node and no other client has to be trusted."
    ),
}

_FORMULAS: Final[dict[Protocol, str]] = {
    "distributed_compute": (
        "noise and bias: of the learner, run on expected sums with the noise of its rounds; "
        "sampling: sandwich variance of the exact fit."
    ),
    "draw_and_discard": (
        "with lam = learning rate times curvature, f the share of contributions that touch a "
        "coefficient and v = f 8 clip^2 / epsilon^2 (variant all: p^2 times that): noise tends "
        "to v / (f lam (2 - lam)) / (1 + f lam (k - 1)), squared; what is left of the start is "
        "about (1 - f lam / k)^contributions of it. Both are computed for the number that "
        "there are, by the recursion of docs/mathematics.md; with m open sessions learning "
        "goes at k / (k + m) of that pace. bias: where the mean clipped step "
        "is zero. sampling: as noise, with the variance of a record's own step."
    ),
}


def formulas(prospect: Prospect) -> str:
    """Return the formulas of the expected error, in one paragraph."""
    return _FORMULAS[prospect.protocol]

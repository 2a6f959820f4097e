"""Plans a study by Draw and Discard: its cost and its expected error.

Near the point where the mean step is zero a contribution contracts a coefficient's deviation by
learning rate times curvature, and adds noise and the scatter of the record's own score:
`shoal_learning.crowds.theory.Contraction`, of which the averaged model's error follows.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

import numpy as np

from shoal.planning import sizes
from shoal.planning.assumptions import assume
from shoal.planning.steps import CLIP_RATIO, Steps
from shoal.planning.study import Prospect, Study
from shoal_protocol.crowds.tasks import MOST_INSTANCES, MOST_WEIGHTS, CrowdTask
from shoal_protocol.queries.columns import ColumnBounds

_RATES: Final = np.geomspace(1e-9, 1.0, 109)  # learning rates that are tried
_GRID_BITS: Final = 24  # at least; so many that a clip is 2^10 lattice units or more
_LARGEST_EXPONENT: Final = 472  # 10^12 contributions: no crowd job has more


def crowd_task(study: Study, step: float) -> CrowdTask:
    """Return the task of a crowd job with that learning rate.

    Raises:
        ValueError: so many instances of so many coefficients, or so much noise, are not possible.
    """
    ratio = CLIP_RATIO[study.family]
    lower = -1.0 if study.family == "linear" else 0.0
    upper = study.largest_count if study.family == "poisson" else 1.0
    each = study.epsilon / study.contributions_per_client
    return CrowdTask(
        family=study.family,
        features=tuple(
            ColumnBounds(name=f"feature {place}", lower=-1.0, upper=1.0)
            for place in range(study.features)
        ),
        target=ColumnBounds(name="target", lower=lower, upper=upper),
        variant=study.variant,
        clipping=study.clipping,
        clip=ratio * step,
        epsilon=each / (study.coefficients if study.variant == "feature" else 1),
        learning_rate=step,
        instances=study.instances,
        grid_bits=max(_GRID_BITS, 10 + math.ceil(-math.log2(ratio * step))),
    )


def draw_and_discard(study: Study) -> Prospect:
    """Return what a crowd job would cost, and its averaged model's expected error.

    Raises:
        ValueError: the task is not possible, or the assumed records have no estimate.
    """
    assumed = assume(study)
    steps = Steps(assumed)
    rates: Iterable[float] = _RATES.tolist() if study.step is None else [study.step]
    tried = {
        rate: steps.error(crowd_task(study, rate), study.contributions)
        for rate in rates
        if rate < steps.fastest
    }
    if not tried:
        raise ValueError("the step is too long: with it a model would not settle")
    rate = min(tried, key=lambda each: tried[each].total)
    task = crowd_task(study, rate)
    sent, received = sizes.of_contribution(task)
    contributions = study.contributions
    return Prospect(
        protocol="draw_and_discard",
        rounds=0,
        answers=study.contributions_per_client,
        sent_bytes=sent * study.contributions_per_client,
        received_bytes=received * study.contributions_per_client + sizes.of_crowd_job(task),
        taken_in_bytes=contributions * sent,
        error=tried[rate],
        settings={
            "instances": study.instances,
            "open sessions": study.open_sessions,
            "variant": study.variant,
            "epsilon of a contribution": task.contribution_epsilon,
            "contributions": contributions,
            "learning rate": rate,
            "clip": task.clip,
            "noise sd on a weight": math.sqrt(task.noise_variance),
        },
    )


def instances_for_load(open_sessions: float, coefficients: int) -> int:
    """Return as many instances as there are open sessions, as far as a crowd job may have them.

    One instance with m open sessions learns from 1 in m + 1 updates, k instances from 1 in k + m:
    up to k = m of them cost at most half of the learning, while each is written k times less often,
    and one stale or bad submission moves the average by 1/k of its change.
    """
    most = min(MOST_INSTANCES, MOST_WEIGHTS // coefficients)
    return int(min(max(1, math.ceil(open_sessions)), most))


def contributions_needed(study: Study, error: float) -> int | None:
    """Return about how many contributions an error of at most `error` takes, in two digits.

    None: more than 10^12, the most that a crowd job may have, or no number of them.
    """
    steps = Steps(assume(study))
    tasks = [crowd_task(study, rate) for rate in _RATES.tolist() if rate < steps.fastest]

    def suffices(exponent: int) -> bool:
        return min(steps.error(task, _count(exponent)).total for task in tasks) <= error

    exponents = range(_LARGEST_EXPONENT + 1)
    found = bisect_left(exponents, True, key=suffices)
    return _count(found) if found < len(exponents) else None


def _count(exponent: int) -> int:
    """Return 100 times 1.05^exponent, in two digits."""
    return int(float(f"{100.0 * 1.05**exponent:.1e}"))

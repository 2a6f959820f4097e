"""Computes how long a crowd job must be open, so that no more draws overlap than planned."""

from typing import Final

from shoal.planning.study import Study
from shoal_holder.crowds.schedule import LAST_MOMENTS

ANSWER_SECONDS: Final = 0.5
"""From a draw to its answer, assumed: an agent's step and two requests, on a fair line."""

LITTLE: Final = 0.1
"""Open sessions for each instance that cost at most a tenth of the learning: k / (k + m)."""


_FEWEST: Final = 1e-6  # open sessions on average: one second of two weeks


def assumed_open_sessions(study: Study) -> float:
    """Return how many draws may be under way at a time before the plan is off.

    As many as the study says; if it says none, so few that they cost a tenth of the learning.
    """
    return max(study.open_sessions, _FEWEST) if study.open_sessions else LITTLE * study.instances


def sufficient_open_seconds(study: Study) -> float:
    """Return for how many seconds the job must be open for no more open sessions on average.

    Contributions come evenly over all but the last moments, each open for `ANSWER_SECONDS`.
    """
    busy = study.contributions * ANSWER_SECONDS / assumed_open_sessions(study)
    return busy / (1.0 - LAST_MOMENTS)

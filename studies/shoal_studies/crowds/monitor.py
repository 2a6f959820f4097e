"""Tells, from what a trainer receives anyway, whether the truth that a crowd learns has turned.

Near the optimum θ a contribution changes a weight that it touches, drawn as b, by c with
E[c | b] = λ (θ - b): by its step; the noise has mean 0. So over all contributions c falls on a line
over b, whatever path the instances take, learning or settled. If θ turns, later contributions lie
on another line than earlier ones. That shows before the averaged model has followed.

Of each of `WINDOWS` equal parts of a job only sums are kept. They are made of submissions alone,
which are private against everybody: this costs no client anything.
"""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

import numpy as np

from shoal_protocol.crowds.tasks import CrowdTask, IntArray, decayed
from shoal_protocol.queries.design import Floats

WINDOWS: Final = 32
_LENGTHS: Final = (1, 2, 4, 8)  # of the windows before and after a turn, which are compared
_FEWEST: Final = 100  # touches of a weight on either side, so that the noise's mean is normal
FALSE_ALARMS: Final = 0.01
"""Of jobs whose truth does not turn, at most so many are said to have turned.

This holds where the mean step is linear in the weight, as without clipping, and features are
uncorrelated. Correlated ones make it a few in a hundred while the model still learns.
"""


def sums_of(task: CrowdTask, drawn: Sequence[int], sent: Sequence[int]) -> Floats:
    """Return one contribution's part of a window's sums, shape (6, p), in units of a weight.

    Rows are 1, b, c, b^2, bc and c^2 of the weights that were touched, and 0 of the others. Sums
    of several contributions are the sums of these.
    """
    weights: IntArray = np.array(drawn, np.int64)
    changed = np.array(sent, np.int64) - decayed(task, weights)
    b, c = weights / task.grid, changed / task.grid
    sums: Floats = np.array([np.ones_like(b), b, c, b * b, b * c, c * c]) * (weights != sent)
    return sums


def turned_at(windows: Floats) -> int | None:
    """Return the window with which the truth turned most clearly, or None if it is not seen to.

    `windows`, shape (w, 6, p), are the sums of the first w windows, each with the contributions
    that there are by now. One line through all contributions is taken to hold for each weight.
    Before and after the beginning of every window its mean residuals over several windows are
    compared, in standard errors. The limit allows for all comparisons that are made in a whole job.
    """
    whole = windows.sum(axis=0)
    if whole[0].min() < 2 * _FEWEST:
        return None
    squares, products, residuals = whole[3:] - whole[[1, 1, 2]] * whole[[1, 2, 2]] / whole[0]
    squares = np.where(squares > 0.0, squares, np.inf)  # a weight that never moved tells nothing
    slope = products / squares
    variance = (residuals - slope * products) / whole[0]
    comparisons = [(at, by) for by in _LENGTHS for at in range(by, WINDOWS - by + 1)]
    level = FALSE_ALARMS / (2 * len(comparisons) * whole.shape[1])
    limit = NormalDist().inv_cdf(1.0 - level)
    turned, clearest = None, limit
    for at, by in comparisons:
        first, second = windows[at - by : at].sum(axis=0), windows[at : at + by].sum(axis=0)
        if at + by > len(windows) or min(first[0].min(), second[0].min()) < _FEWEST:
            continue
        moved, changed = second[1:3] / second[0] - first[1:3] / first[0]
        error = variance * (1.0 / first[0] + 1.0 / second[0] + moved**2 / squares)
        error = np.where(error > 0.0, error, np.inf)
        score = float(np.max(np.abs(changed - slope * moved) / np.sqrt(error)))
        if score > clearest:
            turned, clearest = at, score
    return turned

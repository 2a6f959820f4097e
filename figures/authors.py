"""What the authors' own code scores on these data sets and splits: facts to compare with.

Measured by running the public implementation of Heikkilä et al. 2017 (github.com/DPBayes/
dca-nips2017, commit 79917a2, 25 splits, delta = 1e-4), repaired as far as today's numpy needs; not
read off the paper's plots. None of these curves is private as labelled: docs/figures.md.
"""

from typing import Final

FIGURE2_EPSILONS: Final = tuple(10.0**power for power in (0.0, 0.25, 0.5, 0.75, 1.0, 1.5))
FIGURE3_EPSILONS: Final = (1.0, 3.0, 5.0, 7.5, 10.0)
DELTA: Final = 1e-4

# fmt: off
MEDIAN_ERROR: Final[dict[str, dict[str, tuple[float, ...]]]] = {
    "red_wine": {
        "np": (0.64427, 0.64427, 0.64427, 0.64427, 0.64427, 0.64427),
        "proj_np": (0.9084, 0.90761, 0.67013, 0.65967, 0.65582, 0.63986),
        "ta": (2.56344, 3.16448, 2.49486, 1.59506, 1.29141, 0.75267),
        "proj_ta": (1.53477, 1.1926, 0.95142, 0.69692, 0.66338, 0.65359),
        "ddp": (3.04408, 2.49697, 1.65737, 1.64946, 1.67196, 0.77577),
        "proj_ddp": (1.32663, 1.16382, 0.84339, 0.72726, 0.67527, 0.64361),
        "input_perturbation": (3.81834, 2.66002, 3.88463, 3.33326, 2.62594, 2.15289),
    },
    "white_wine": {
        "np": (0.65748, 0.65748, 0.65748, 0.65748, 0.65748, 0.65748),
        "proj_np": (0.66869, 0.66338, 0.66484, 0.66463, 0.66374, 0.65807),
        "ta": (1.7862, 1.87261, 1.30855, 2.01611, 0.89347, 0.68925),
        "proj_ta": (0.69474, 0.67678, 0.67334, 0.66738, 0.66334, 0.65824),
        "ddp": (1.4291, 1.82184, 1.26553, 1.31497, 0.9351, 0.67907),
        "proj_ddp": (0.68963, 0.67379, 0.6727, 0.66709, 0.66327, 0.65907),
        "input_perturbation": (2.37113, 1.97342, 2.34605, 1.99546, 1.95573, 2.40432),
    },
    "abalone": {
        "np": (0.57257, 0.57257, 0.57257, 0.57257, 0.57257, 0.57257),
        "proj_np": (0.60144, 0.59794, 0.59298, 0.59304, 0.59198, 0.58586),
        "ta": (0.87631, 1.28817, 1.07411, 0.77623, 0.71314, 0.635),
        "proj_ta": (0.81155, 0.87822, 0.66596, 0.62393, 0.60117, 0.58627),
        "ddp": (1.1147, 1.22787, 0.83385, 0.86001, 0.6935, 0.62704),
        "proj_ddp": (1.09217, 0.7195, 0.67011, 0.6163, 0.60522, 0.58855),
        "input_perturbation": (7.5165, 5.49663, 5.03702, 2.33742, 1.48384, 0.91681),
    },
}
"""Median test error in units of the scaled target, by data set and method, for each epsilon."""

MEAN_RANK_CORRELATION: Final[dict[str, tuple[float, ...]]] = {
    "np": (0.2472, 0.2472, 0.2472, 0.2472, 0.2472),
    "proj_np": (0.2312, 0.2324, 0.2344, 0.2336, 0.2354),
    "ta": (0.0451, 0.0994, 0.1214, 0.1369, 0.1478),
    "proj_ta": (0.0819, 0.1801, 0.2107, 0.221, 0.2283),
    "ddp": (0.0407, 0.0952, 0.1191, 0.1357, 0.1498),
    "proj_ddp": (0.0773, 0.1781, 0.2108, 0.2205, 0.229),
    "input_perturbation": (0.007, 0.0104, 0.014, 0.0178, 0.0209),
}
"""Mean Spearman correlation over 89 drugs and 25 splits, by method, for each epsilon."""

DRUGS: Final = 89
# fmt: on


def key(epsilon: float) -> str:
    """Return how an epsilon is written in the figures' files."""
    return f"{epsilon:.4g}"

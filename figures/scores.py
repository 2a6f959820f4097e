"""Scores of methods by price, and how they are summed up."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from figures.authors import key

Floats = NDArray[np.float64]
Scores = dict[str, dict[float, Floats]]
"""Scores by method and epsilon, shape (splits, draws of noise), or (splits, draws, drugs)."""


def rank_correlation(predicted: Floats, truth: Floats) -> float:
    """Return Spearman's rank correlation of two vectors of one shape; 0 if one is constant."""
    ranks = [rankdata(each) - (len(truth) + 1.0) / 2.0 for each in (predicted, truth)]
    lengths = [float(np.linalg.norm(each)) for each in ranks]
    return float(ranks[0] @ ranks[1] / (lengths[0] * lengths[1])) if all(lengths) else 0.0


def stacked(scores: Iterable[Scores], axis: int = 0) -> Scores:
    """Return the scores of several units as one, along `axis`."""
    every = list(scores)
    return {
        method: {
            epsilon: np.stack([each[method][epsilon] for each in every], axis=axis)
            for epsilon in by_epsilon
        }
        for method, by_epsilon in every[0].items()
    }


def best_and_worst_search(scores: Scores, *, lower_is_better: bool) -> Scores:
    """Return the scores with those of every search replaced by the best and the worst search's.

    The scores "proj_ddp_searches" have shape (splits, searches, ...). Searches are compared by
    their median where lower is better, else by their mean.
    """
    rest = {method: each for method, each in scores.items() if method != "proj_ddp_searches"}
    best: dict[float, Floats] = {}
    worst: dict[float, Floats] = {}
    for epsilon, values in scores["proj_ddp_searches"].items():
        by_search = np.moveaxis(values, 1, 0)
        flat = by_search.reshape(len(by_search), -1)
        merits = -np.median(flat, axis=1) if lower_is_better else flat.mean(axis=1)
        best[epsilon] = by_search[int(np.argmax(merits))][:, None]
        worst[epsilon] = by_search[int(np.argmin(merits))][:, None]
    return rest | {"proj_ddp_best_search": best, "proj_ddp_worst_search": worst}


def quartiles(scores: Scores) -> dict[str, dict[str, dict[str, float]]]:
    """Return median and quartiles over all splits and draws, by method and epsilon."""
    return {
        method: {
            key(epsilon): dict(
                zip(
                    ("median", "q25", "q75"),
                    np.quantile(values, [0.5, 0.25, 0.75]).round(6).tolist(),
                    strict=True,
                )
            )
            for epsilon, values in by_epsilon.items()
        }
        for method, by_epsilon in scores.items()
    }


def mean_and_sd(scores: Scores) -> dict[str, dict[str, dict[str, float]]]:
    """Return mean and sd over splits and draws of the mean over drugs, by method and epsilon."""
    return {
        method: {
            key(epsilon): {
                "mean": round(float(values.mean()), 6),
                "sd": round(float(values.mean(axis=2).std()), 6),
            }
            for epsilon, values in by_epsilon.items()
        }
        for method, by_epsilon in scores.items()
    }

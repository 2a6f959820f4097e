"""Split R-hat and effective sample size, which tell whether chains of draws mixed.

Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021, "Rank-normalization, folding, and
localization", doi:10.1214/20-BA1221. Of a parameter, draws have shape (chains, draws).
"""

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

FloatMatrix = NDArray[np.float64]


def split_r_hat(draws: FloatMatrix) -> float:
    """Return the rank-normalised split R-hat, the larger one of centre and spread: 1 when mixed.

    Draws that never move have R-hat 1 if all are equal, and a huge one if chains differ.
    """
    halves = _split(draws)
    folded = np.abs(halves - np.median(halves))
    return max(_r_hat(_normal_scores(halves)), _r_hat(_normal_scores(folded)))


def effective_sample_size(draws: FloatMatrix) -> float:
    """Return how many independent draws tell as much: of the centre or of the 5 % tails, the less.

    Draws that are all equal count in full.
    """
    halves = _split(draws)
    low, high = np.quantile(halves, [0.05, 0.95])
    tails = [(halves <= low).astype(np.float64), (halves <= high).astype(np.float64)]
    return min(_effective_size(each) for each in (_normal_scores(halves), *tails))


def _split(draws: FloatMatrix) -> FloatMatrix:
    """Return each chain as two; of an odd number of draws the middle one is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])


def _normal_scores(draws: FloatMatrix) -> FloatMatrix:
    """Return normal quantiles of the draws' ranks; equal draws share their mean rank."""
    _, places, counts = np.unique(draws, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0
    quantile = NormalDist().inv_cdf
    scores = np.array([quantile((rank - 0.375) / (draws.size + 0.25)) for rank in ranks])
    normal: FloatMatrix = scores[places].reshape(draws.shape)
    return normal


def _r_hat(draws: FloatMatrix) -> float:
    count = draws.shape[1]
    within = float(np.mean(np.var(draws, axis=1, ddof=1)))
    between = float(np.var(np.mean(draws, axis=1), ddof=1))
    if within == 0.0:
        return 1.0 if between == 0.0 else float("inf")
    return float(np.sqrt((count - 1) / count + between / within))


def _effective_size(draws: FloatMatrix) -> float:
    """Geyer's initial monotone sequence over all chains (equations 10 to 13 of the paper)."""
    count = draws.shape[1]
    centred = draws - draws.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * count, axis=1)
    covariances = np.fft.irfft(spectrum * np.conj(spectrum), 2 * count, axis=1)[:, :count] / count
    within = float(np.mean(covariances[:, 0])) * count / (count - 1)
    between = float(np.var(draws.mean(axis=1), ddof=1))
    variance = within * (count - 1) / count + between
    if variance == 0.0:
        return float(draws.size)
    correlations = 1.0 - (within - covariances.mean(axis=0) * count / (count - 1)) / variance
    correlations[0] = 1.0
    total, least = -1.0, float("inf")
    for lag in range(0, count - 1, 2):
        pair = float(correlations[lag] + correlations[lag + 1])
        if pair < 0.0:
            break
        least = min(least, pair)
        total += 2.0 * least
    return draws.size / max(total, 1.0 / math.log10(draws.size))

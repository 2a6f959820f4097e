"""What the figures must show: rules with their false-alarm rates, and what was found.

Errors are lower, correlations higher the better. The authors' own curves are in `figures.authors`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import wilcoxon

from figures.authors import (
    DRUGS,
    FIGURE2_EPSILONS,
    FIGURE3_EPSILONS,
    MEAN_RANK_CORRELATION,
    MEDIAN_ERROR,
    key,
)
from figures.scores import Floats, Scores

PUBLISHED_PRIVATE: Final = ("ta", "proj_ta", "ddp", "proj_ddp")
FALSE_ALARM: Final = 0.01
"""Of all comparisons of one figure together, where two methods are the same."""

FAR_WORSE: Final = 1.5


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One rule and whether it holds; `detail` has the figures."""

    rule: str
    holds: bool
    detail: str


def figure2_findings(found: dict[str, Scores]) -> list[Finding]:
    """Return what Figure 2 shows; `found` are the scores by data set, shape (splits, draws)."""
    return [
        *(each for name in found for each in _against_authors(name, found[name])),
        *_same_distribution(found),
        *(each for name in found for each in _input_perturbation(found[name], name)),
    ]


def figure3_findings(scores: Scores, drugs: int) -> list[Finding]:
    """Return what Figure 3 shows; scores of shape (splits, draws, drugs).

    The published method is taken at the best of its searches for thresholds. The authors' figures
    are for 89 drugs: with others, ours is compared with the published method on the same splits
    alone.
    """
    findings = []
    for epsilon, ours in scores["ours"].items():
        best = scores["proj_ddp_best_search"][epsilon]
        bars = {"the published proj_ddp, best search": float(best.mean())}
        if drugs == DRUGS and epsilon in FIGURE3_EPSILONS:
            place = FIGURE3_EPSILONS.index(epsilon)
            for method in ("proj_ta", "proj_ddp"):
                bars[f"the authors' {method}"] = MEAN_RANK_CORRELATION[method][place]
        found = float(ours.mean())
        findings.append(
            Finding(
                rule=f"GDSC, epsilon {key(epsilon)}: ours at or above the published methods",
                holds=all(found >= bar for bar in bars.values()),
                detail=f"ours {found:.4f}; "
                + ", ".join(f"{name} {bar:.4f}" for name, bar in bars.items()),
            )
        )
    return findings


def _against_authors(name: str, scores: Scores) -> Iterator[Finding]:
    for epsilon, values in scores["ours"].items():
        if epsilon not in FIGURE2_EPSILONS:
            continue
        place = FIGURE2_EPSILONS.index(epsilon)
        bars = {method: MEDIAN_ERROR[name][method][place] for method in PUBLISHED_PRIVATE}
        bars["proj_ddp, best search"] = float(np.median(scores["proj_ddp_best_search"][epsilon]))
        found = float(np.median(values))
        best = min(bars, key=lambda method: bars[method])
        yield Finding(
            rule=f"{name}, epsilon {key(epsilon)}: ours at or below every curve of the authors",
            holds=found <= bars[best],
            detail=f"ours {found:.4f}; the authors' best, {best}, {bars[best]:.4f}",
        )


def _same_distribution(found: dict[str, Scores]) -> Iterator[Finding]:
    """Compare DDP with TA by Wilcoxon's signed ranks on splits, averaged over draws, of log errors.

    Their noise differs by a factor of 1 + 1/(2N): nothing that a few hundred draws could show.
    """
    pairs = [(name, epsilon) for name in found for epsilon in found[name]["ddp"]]
    limit = FALSE_ALARM / len(pairs)
    for name, epsilon in pairs:
        gaps: Floats = np.log(found[name]["ddp"][epsilon] / found[name]["ta"][epsilon])
        p_value = float(wilcoxon(gaps.mean(axis=1)).pvalue)
        medians = (float(np.median(found[name][method][epsilon])) for method in ("ddp", "ta"))
        yield Finding(
            rule=f"{name}, epsilon {key(epsilon)}: DDP within Monte Carlo error of TA",
            holds=p_value > limit,
            detail="DDP {:.3f}, TA {:.3f}; p {:.2g}, must exceed {:.2g}".format(
                *medians, p_value, limit
            ),
        )


def _input_perturbation(scores: Scores, name: str) -> Iterator[Finding]:
    ratios = []
    for epsilon, values in scores["input_perturbation"].items():
        by_method = (values, scores["ours"][epsilon], scores["ta"][epsilon])
        found, ours, ta = (float(np.median(each)) for each in by_method)
        ratios.append(math.log(found / ta))
        yield Finding(
            rule=f"{name}, epsilon {key(epsilon)}: input perturbation far worse than ours",
            holds=found > FAR_WORSE * ours,
            detail=f"{found:.3f} against {ours:.3f}",
        )
    mean = math.exp(math.fsum(ratios) / len(ratios))
    yield Finding(
        rule=f"{name}: input perturbation worse than TA over all epsilons",
        holds=mean > 1.0,
        detail=f"geometric mean of the ratios {mean:.2f}",
    )

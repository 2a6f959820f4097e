"""The rules that the figures are checked by hold where they should, and fail where they should."""

import numpy as np

from figures.authors import (
    FIGURE2_EPSILONS,
    MEDIAN_ERROR,
)
from figures.checks import Finding, figure2_findings
from figures.scores import Scores

METHODS = ("ta", "proj_ta", "ddp", "proj_ddp", "input_perturbation")


def errors_like_the_authors(seed: int = 1) -> Scores:
    """Return scores scattered about the authors' medians; ours is a hundredth below their best."""
    generator = np.random.default_rng(seed)
    scores: Scores = {}
    for place, epsilon in enumerate(FIGURE2_EPSILONS):
        for method in METHODS:
            middle = MEDIAN_ERROR["abalone"][method][place]
            if method == "ddp":
                middle = MEDIAN_ERROR["abalone"]["ta"][place]
            drawn = middle * np.exp(0.3 * generator.standard_normal((25, 4)))
            scores.setdefault(method, {})[epsilon] = drawn
        best = min(MEDIAN_ERROR["abalone"][method][place] for method in METHODS[:4])
        scores.setdefault("ours", {})[epsilon] = np.full((25, 4), best - 0.01)
    return scores


def broken(findings: list[Finding]) -> list[str]:
    return [each.rule for each in findings if not each.holds]


def test_results_like_the_authors_with_ours_below_hold():
    findings = figure2_findings({"abalone": errors_like_the_authors()})
    assert len(findings) == 3 * len(FIGURE2_EPSILONS) + 1
    assert broken(findings) == []


def test_a_distributed_method_that_errs_a_third_more_is_told_from_the_trusted_aggregators():
    scores = errors_like_the_authors()
    scores["ddp"][1.0] *= 4 / 3
    [rule] = broken(figure2_findings({"abalone": scores}))
    assert "epsilon 1: DDP within" in rule

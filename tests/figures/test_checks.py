"""The rules that the figures are checked by hold where they should, and fail where they should."""

import numpy as np
import pytest

from figures import efficiency, pictures
from figures.authors import (
    FIGURE2_EPSILONS,
    MEDIAN_ERROR,
)
from figures.checks import Finding, figure2_findings, figure3_findings
from figures.scores import Scores, best_and_worst_search

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
        scores.setdefault("proj_ddp_best_search", {})[epsilon] = np.full((25, 1), best)
        scores.setdefault("ours", {})[epsilon] = np.full((25, 4), best - 0.01)
    return scores


def broken(findings: list[Finding]) -> list[str]:
    return [each.rule for each in findings if not each.holds]


def test_results_like_the_authors_with_ours_below_hold():
    findings = figure2_findings({"abalone": errors_like_the_authors()})
    assert len(findings) == 3 * len(FIGURE2_EPSILONS) + 1
    assert broken(findings) == []


def test_ours_must_be_as_good_as_the_published_method_at_the_best_of_its_searches():
    scores = errors_like_the_authors()
    scores["proj_ddp_best_search"][1.0] -= 0.02
    [rule] = broken(figure2_findings({"abalone": scores}))
    assert "epsilon 1: ours at or below" in rule
    shape = (3, 14, 2)
    searches = np.full(shape, 0.1)
    searches[:, 5], searches[:, 7] = 0.17, 0.05
    found = best_and_worst_search(
        {"ours": {1.0: np.full(shape, 0.16)}, "proj_ddp_searches": {1.0: searches}},
        lower_is_better=False,
    )
    assert found["proj_ddp_best_search"][1.0] == pytest.approx(0.17)
    assert found["proj_ddp_worst_search"][1.0] == pytest.approx(0.05)
    assert [each.holds for each in figure3_findings(found, 2)] == [False]


def test_the_private_fit_nears_the_exact_one_as_one_over_n_and_noise_that_grows_does_not(tmp_path):
    # Medians of 25 distances, each with a coefficient of variation of .3: their ratio's standard
    # error is .11, so [.7, 1.4] is a 3-sigma event. Fixed seed.
    distances = efficiency.run(numbers=(10_000, 100_000), repeats=25)
    assert broken(efficiency.efficiency_findings(distances)) == []
    slow = {method: distances["input_perturbation"] for method in efficiency.METHODS}
    assert len(broken(efficiency.efficiency_findings(slow))) == 1
    flat = {method: distances["ours"] for method in efficiency.METHODS}
    assert len(broken(efficiency.efficiency_findings(flat))) == 1
    pictures.draw_efficiency(efficiency.medians(distances), tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_a_distributed_method_that_errs_a_third_more_is_told_from_the_trusted_aggregators():
    scores = errors_like_the_authors()
    scores["ddp"][1.0] *= 4 / 3
    [rule] = broken(figure2_findings({"abalone": scores}))
    assert "epsilon 1: DDP within" in rule

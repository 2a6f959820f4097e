"""Both experiments cut down: every method scores, the same every time, and pictures are drawn."""

from pathlib import Path

import numpy as np
import pytest

from figures import figure2, figure3, notes, pictures
from figures.authors import MEDIAN_ERROR
from figures.datasets import Gdsc
from figures.published import METHODS
from figures.scores import mean_and_sd, quartiles
from figures.sources import Files
from tests.figures.shared import DATA, with_data

EVERY = {
    *(*METHODS, "ours", "diffprivlib", "default", "noiseless", "algorithm2_box"),
    *("algorithm2_ball", "proj_ddp_best_search", "proj_ddp_worst_search"),
}
FIGURE_2 = EVERY | {"adassp"}


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    for experiment in (figure2, figure3):
        monkeypatch.setattr(experiment, "SEARCH_REPEATS", 2)


@with_data
def test_one_split_of_red_wine_scores_every_method_and_makes_a_picture(tmp_path: Path):
    size = figure2.Size(splits=1, draws=1, epsilons=(31.62,), searches=2)
    files = Files(data=DATA, cache=tmp_path)
    found = figure2.run(files, as_authors=True, size=size, processes=1, names=("red_wine",))
    curves = {"red_wine": quartiles(found["red_wine"].scores)}
    assert set(curves["red_wine"]) == FIGURE_2
    assert set(curves["red_wine"]["ours"]) == {"31.62"}
    assert set(curves["red_wine"]["ours"]["31.62"]) == {"median", "q25", "q75"}
    # At this price ours is nearly the exact fit's, on the same split; authors' median .644.
    exact, ours = (curves["red_wine"][name]["31.62"]["median"] for name in ("np", "ours"))
    assert ours == pytest.approx(exact, rel=0.05)
    assert exact == pytest.approx(MEDIAN_ERROR["red_wine"]["np"][0], rel=0.1)
    best, worst = (
        curves["red_wine"][f"proj_ddp_{each}_search"]["31.62"]["median"]
        for each in ("best", "worst")
    )
    assert best <= worst
    assert curves["red_wine"]["noiseless"]["31.62"]["median"] == pytest.approx(exact, rel=0.02)
    assert curves["red_wine"]["default"]["31.62"]["median"] == pytest.approx(exact, rel=0.05)
    pictures.draw_figure2(curves, tmp_path / "a.png", ["said"])
    assert (tmp_path / "a.png").stat().st_size > 10_000


def cell_lines(lines: int, drugs: int) -> Gdsc:
    """Return cell lines of which the genes' directions explain half of every drug's response."""
    generator = np.random.default_rng(1)
    genes = 6.0 + 1.5 * generator.standard_normal((lines, 4))
    directions = genes - 6.0
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    responses = 2.0 + directions @ generator.standard_normal((4, drugs))
    responses += 0.5 * generator.standard_normal(responses.shape)
    responses[: lines - 150, drugs - 1] = np.nan  # too few for the last
    return Gdsc(
        genes=tuple("ABCD"),
        drugs=tuple(f"DRUG_{number}" for number in range(drugs)),
        expression=genes,
        responses=responses,
        digests={},
    )


def test_two_drugs_score_every_method_the_same_every_time_and_make_a_picture(tmp_path: Path):
    data = cell_lines(400, 3)
    size = figure3.Size(splits=2, draws=1, epsilons=(10.0,), searches=2, default_splits=1)
    first, again = (figure3.run(data, size=size, processes=1) for _ in range(2))
    assert set(first.scores) == EVERY
    assert first.left_out == ("DRUG_2",)
    assert first.scores["ours"][10.0].shape == (2, 1, 2)
    assert first.scores["default"][10.0].shape == (1, 1, 2)
    means = {name: first.scores[name][10.0].mean() for name in EVERY}
    assert means["proj_ddp_worst_search"] <= means["proj_ddp_best_search"]
    assert means["noiseless"] == pytest.approx(means["np"], abs=0.05)
    assert means["algorithm2_ball"] > 0.5 * means["np"]
    for method in EVERY:
        assert np.array_equal(first.scores[method][10.0], again.scores[method][10.0])
    curves = mean_and_sd(first.scores)
    assert curves["ours"]["10"]["mean"] > 0.5 * curves["np"]["10"]["mean"] > 0.2
    said = notes.about_figure3(first, data)
    assert any("all 265 drugs 31." in line for line in said)
    assert any("NOT private" in line for line in said)
    pictures.draw_figure3(curves, 2, tmp_path / "a.png", said)
    assert (tmp_path / "a.png").stat().st_size > 10_000

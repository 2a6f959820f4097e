"""What a regression's sums of scores tell of dispersion, and of records that lie far out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.regressions import DataSet, exact, made_up, without_deciding
from shoal_studies.regression import constants
from shoal_studies.regression.engine import far_slopes, telling
from shoal_studies.regression.families import FAMILIES, Residuals
from shoal_studies.regression.plausible_designs import DesignRows
from shoal_studies.regression.scores import TargetScores, log_dispersions

RECORDS = 5_000.0


def design() -> DesignRows:
    generator = np.random.default_rng(7)
    rows = np.column_stack([np.ones(400), generator.standard_normal(400)])
    return DesignRows(
        rows=rows, offsets=np.zeros(400), weights=np.full(400, 1 / 400), shrunk=np.ones(400)
    )


SLOPE = np.array([0.0, 1.0])


def scores(
    *, radius: float, point: np.ndarray = SLOPE, dispersion: float = 0.5, squares_sd: float = 60.0
) -> TargetScores:
    """Return a round at a point, whose squares are those of records with this dispersion."""
    empty = TargetScores(
        family=FAMILIES["normal"],
        values=np.zeros(2),
        noise_sd=1.0,
        basis=np.eye(2),
        squared_radius=radius**2,
        point=point,
        squares_sd=squares_sd,
        cut=20.0,
        low=-10.0,
        high=10.0,
    )
    rows, residuals = empty.rows(design()), empty.residuals(empty.asked(design()))
    _, squares, _ = empty.family.cut(design().predictors(SLOPE), residuals, dispersion)
    return replace(empty, squares=RECORDS * (design().weights * squares) @ rows**2)


def test_a_dispersion_that_a_round_rules_out_is_not_chosen_since_others_allow_it() -> None:
    """Far from the fit squares tell little: they are mostly those of means."""
    far = scores(radius=9.0, point=np.zeros(2), dispersion=0.3, squares_sd=900.0)
    near = scores(radius=1.9, squares_sd=120.0)
    grid = np.geomspace(0.02, 3.0, 120)
    logs = log_dispersions((far, near), RECORDS, design(), SLOPE, grid)
    assert grid[np.argmax(logs)] == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("dispersion", [1e-3, 0.5, 3.0])
@pytest.mark.parametrize(
    ("low", "high", "cut"),
    [(0.0, 6.0, 0.9), (2.0, 90.0, 4.0), (3.0, 900.0, 60.0), (30.0, 40.0, 9.0)],
)
@pytest.mark.parametrize("name", ["negative_binomial", "gamma"])
def test_moments_of_cut_residuals_are_those_of_their_distribution(
    name: str, low: float, high: float, cut: float, dispersion: float
) -> None:
    """By summing over targets, also where all residuals are cut, and at one end."""
    means, about = np.array([0.7, 40.0, 90.0]), np.array([0.2, 2.0, 4.5, 60.0, 95.0])
    found, asked = map(np.ravel, np.meshgrid(means, about))
    if name == "gamma":
        shares = (np.arange(100_000) + 0.5) / 100_000
        targets = stats.gamma.ppf(shares[:, None], 1.0 / dispersion, scale=means * dispersion)
        chances = np.full_like(targets, 1.0 / len(targets))
    else:
        targets, size = np.tile(np.arange(8000.0)[:, None], len(means)), 1.0 / dispersion
        chances = stats.nbinom.pmf(targets, size, size / (size + means))
    weights = np.full(len(asked), 0.5)
    family, residuals = FAMILIES[name], Residuals(asked, weights, cut, low, high)
    moments = np.transpose(family.cut(np.log(found), residuals, dispersion))
    for mean, centre, moment in zip(found, asked, moments, strict=True):
        [place] = np.flatnonzero(means == mean)
        whole = 0.5 * (targets[:, place].clip(low, high) - centre)
        at, chance = whole.clip(-cut, cut), chances[:, place]
        expected = [at @ chance, at**2 @ chance, (at != whole) @ chance]
        assert moment == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_rounds_of_a_ball_that_hardly_grew_do_not_replace_the_others() -> None:
    narrow, hardly, wide = (scores(radius=radius) for radius in (1.9, 2.1, 3.0))
    assert telling((), (narrow, hardly), 1.9**2) == (narrow, hardly)
    assert telling((), (narrow, wide), 1.9**2) == (wide,)


def test_what_shrinking_loses_widens_intervals_as_far_slopes_may_differ() -> None:
    records, residual_sd = 10_000.0, 2.0
    sampling = residual_sd**2 / records * np.eye(3)
    far = far_slopes(sampling, np.array([0.0, 0.0, 0.1]), records)
    assert np.sqrt(np.diagonal(far)) == pytest.approx(
        [0.0, 0.0, 0.1 * constants.FAR_SLOPES * residual_sd]
    )


def test_records_far_out_that_scatter_more_are_a_reason_to_doubt() -> None:
    uneven = next(each for each in made_up() if each.name == "skewed, uneven")
    fit = uneven.fit(epsilon=10.0, delta=1e-5, dropouts=20, colluders=20, seed=1)
    assert "records far out scatter more" in fit.verdict_


def test_only_a_record_that_decides_a_slope_alone_is_set_aside() -> None:
    counts = next(each for each in made_up() if each.name == "counts")
    assert without_deciding(counts) is counts
    columns = {name: values.astype(float).copy() for name, values in counts.columns.items()}
    columns["x0"][3], columns["y"][3] = 8.0, 0.0
    others = without_deciding(replace(counts, columns=columns))
    assert len(others.target) == len(counts.target) - 1
    assert others.features.max() < 8.0


def test_what_no_design_shows_farther_out_counts_as_lost() -> None:
    """A margin of 1 in 50 records at ten spreads: no beta has that shape."""
    generator = np.random.default_rng(3)
    far = generator.uniform(size=4_000) < 0.02
    skewed = np.where(far, generator.uniform(4.0, 5.0, 4_000), generator.normal(1.0, 0.2, 4_000))
    target = np.minimum(skewed, 2.0) + generator.standard_normal(4_000)
    each = DataSet(
        name="skewed",
        family="normal",
        columns={"x": skewed, "y": target},
        bounds={"x": (0.3, 5.0), "y": (-4.0, 6.0)},
    )
    posterior = each.fit(epsilon=3.0, delta=1e-5, dropouts=20, colluders=20, seed=1).posterior_
    low, high = posterior.interval(0.9)[1]
    assert posterior.verdict.kind == "doubtful"
    assert low < exact(each)[0][0] < high

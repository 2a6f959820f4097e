"""Posteriors and reports that show themselves: as a picture, as text, and in a notebook."""

from collections.abc import Iterator
from statistics import NormalDist
from typing import Literal

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot
from numpy.typing import NDArray

from shoal import plots
from shoal_protocol.certificates.release_certificate import Participations
from shoal_protocol.journal import UNPLACED
from shoal_protocol.privacy.job_costs import PrivacySpent
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_studies.catalogue.linear_regression import LinearRegressionPosterior
from shoal_studies.posterior_report import (
    PosteriorReport,
)
from shoal_studies.posteriors.base import BasePosterior

HOSTILE = "<script>$\\frac{</script>\x1b[31m"


class StandardNormal(BasePosterior):
    """A posterior of one number."""

    name: Literal["standard_normal"] = "standard_normal"

    @property
    def mean(self) -> NDArray[np.float64]:
        return np.array([3.0])

    @property
    def sd(self) -> NDArray[np.float64]:
        return np.array([2.0])

    def _quantiles(self, low: float, high: float) -> NDArray[np.float64]:
        reach = 2.0 * NormalDist().inv_cdf(high)
        return np.array([[3.0 - reach, 3.0 + reach]])

    def sample(self, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
        return generator.normal(3.0, 2.0, (count, 1))


def regression(*features: str) -> LinearRegressionPosterior:
    size = len(features) + 1
    return LinearRegressionPosterior(
        names=("intercept", *features),
        target=HOSTILE,
        coefficients=tuple(range(size)),
        covariance=tuple(map(tuple, np.eye(size).tolist())),
        residual_sd=0.5,
        records=1234,
        prior_mean=(0.0,) * size,
        prior_sd=(100.0,) * size,
    )


def report(posterior: LinearRegressionPosterior) -> PosteriorReport:
    return PosteriorReport(
        manifest="0" * 64,
        entry=UNPLACED,
        job="1" * 64,
        rounds=("2" * 64, "3" * 64),
        results=("4" * 64, "5" * 64),
        lost_rounds=(),
        record="6" * 64,
        population_size=2000,
        participations=Participations(least=2, most=2),
        cohort_sizes=(1990, 1985),
        sharing=ADDITIVE,
        compute_nodes=(3, 3),
        partial_sums=(3, 3),
        privacy=PrivacySpent(epsilon=0.75, delta=1e-6, mu=0.2),
        posterior=posterior,
    )


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


def texts(axes: object) -> list[str]:
    pyplot.gcf().canvas.draw()  # as a notebook would: a formula that is none would raise here
    return [each.get_text() for each in pyplot.gcf().findobj(matplotlib.text.Text)]


def test_hostile_names_are_drawn_as_they_are() -> None:
    posterior = regression(HOSTILE, "age")
    found = texts(plots.draw(posterior))
    assert HOSTILE.replace("\x1b", "\N{REPLACEMENT CHARACTER}") in found
    pyplot.close("all")
    texts(plots.draw(StandardNormal(names=(HOSTILE,), records=5)))


def test_hostile_names_are_no_markup_in_a_notebook_and_no_control_on_a_terminal() -> None:
    shown = report(regression(HOSTILE))
    assert "<script>" not in shown._repr_html_()
    assert "&lt;script&gt;" in shown._repr_html_()
    assert "\x1b" not in shown._repr_html_()
    assert "\x1b" not in str(shown.summary())

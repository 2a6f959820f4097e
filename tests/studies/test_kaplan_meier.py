"""Survival curves: against SciPy's where noise is small, how often what is said holds, a whole job.

Statistical tests are wrong by chance with probability 1e-4.
"""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from shoal import SimulatedFederation
from shoal.estimators import KaplanMeier
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.kaplan_meier import KaplanMeierPosterior, KaplanMeierTask
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation as Setting
from shoal_studies.simulation import run

pytestmark = pytest.mark.slow

SHAPE, SCALE = 1.3, 40.0
WEEKS = ColumnBounds(name="weeks", lower=0.0, upper=70.0)
TASK = KaplanMeierTask(time=WEEKS, event="died", group="arm", levels=(0, 1))
FREE: dict[str, Any] = {"epsilon": 80.0, "delta": 1e-5, "dropouts": 5, "colluders": 5, "seed": 1}


def patients(
    count: int, generator: np.random.Generator, *, effect: float = 1.0
) -> dict[str, np.ndarray]:
    """Return patients of two arms that are followed for unlike times; `effect` is on scales."""
    arm = (generator.random(count) < 0.4).astype(float)
    died = SCALE * np.where(arm == 1.0, effect, 1.0) * generator.weibull(SHAPE, count)
    late = np.minimum(generator.uniform(10.0, 80.0, count), 70.0)
    seen = np.where(arm == 1.0, generator.uniform(5.0, 60.0, count), late)
    died_first = (died <= seen).astype(float)
    return {"weeks": np.minimum(died, seen), "died": died_first, "arm": arm}


def censored(who: dict[str, np.ndarray], arm: float) -> stats.CensoredData:
    chosen, died = who["arm"] == arm, who["died"] == 1.0
    return stats.CensoredData(
        uncensored=who["weeks"][chosen & died], right=who["weeks"][chosen & ~died]
    )


def survival(data: stats.CensoredData, times: np.ndarray) -> np.ndarray:
    """Return SciPy's Kaplan-Meier estimate just before each of `times`."""
    found = stats.ecdf(data).sf
    return np.append(1.0, found.probabilities)[np.searchsorted(found.quantiles, times)]


def test_at_little_noise_curves_medians_and_test_are_scipys() -> None:
    who = patients(6000, np.random.default_rng(1), effect=1.12)
    model = KaplanMeier(
        time={"weeks": (0, 70)}, event="died", group={"arm": (0, 1)}, intervals=70
    ).fit(SimulatedFederation(who, **FREE))
    posterior, at = model.posterior_, 0
    for group, arm in zip(posterior.groups, (0.0, 1.0), strict=True):
        times = np.array(posterior.times[: group.shown])
        exact = survival(censored(who, arm), times)
        np.testing.assert_allclose(posterior.mean[at : at + group.shown], exact, atol=0.012)
        risks = [np.sum((who["arm"] == arm) & (who["weeks"] >= time)) for time in times]
        told = [0.0 if each is None else each.mean for each in group.at_risk]
        np.testing.assert_allclose(told, risks, atol=12.0)
        at += group.shown
    exact_test = stats.logrank(censored(who, 0.0), censored(who, 1.0))
    assert posterior.log_rank is not None
    assert posterior.log_rank.statistic == pytest.approx(exact_test.statistic**2, rel=0.2)
    assert posterior.log_rank.p_value == pytest.approx(exact_test.pvalue, abs=0.01)
    halves = posterior.medians(0.9)
    for row, effect in zip(halves, (1.0, 1.12), strict=True):
        assert row[1] < row[0] < row[2]
        assert row[0] == pytest.approx(effect * SCALE * np.log(2.0) ** (1.0 / SHAPE), abs=3.0)
    assert "Log-rank test" in str(model.summary()) and model.plot().has_data()
    with pytest.raises(ValueError, match="of groups"):
        model.plot(names=["arm 2"])


def test_a_median_later_than_the_curve_is_said_to_be_later() -> None:
    who = {"weeks": np.full(500, 69.0), "died": np.zeros(500)}
    task = KaplanMeierTask(time=WEEKS, event="died")
    posterior = SimulatedFederation(who, **FREE).learn(task).posterior
    assert isinstance(posterior, KaplanMeierPosterior)
    [row] = posterior.medians()
    assert np.isinf(row[[0, 2]]).all() and row[1] == posterior.times[-1]
    assert ("Median", "later (95% interval 70 to later)") in posterior.facts
    assert posterior.log_rank is None and posterior.groups[0].label == "all"


def test_nothing_is_shown_from_when_on_few_are_at_risk() -> None:
    who = patients(2000, np.random.default_rng(2))
    federation = SimulatedFederation(who, **FREE | {"epsilon": 3.0})
    shown = {}
    for smallest in (0, 150):
        task = TASK.model_copy(update={"smallest_cell": smallest})
        posterior = federation.learn(task).posterior
        assert isinstance(posterior, KaplanMeierPosterior)
        shown[smallest] = [group.shown for group in posterior.groups]
        if smallest:
            risks = [each for group in posterior.groups for each in group.at_risk if each]
            assert all(each.mean - 1.95 * each.sd >= smallest for each in risks)
    assert all(few < many for few, many in zip(shown[150], shown[0], strict=True))


def test_who_lacks_a_value_is_in_no_curve() -> None:
    who = patients(3000, np.random.default_rng(3))
    alone = {name: np.append(column, np.full(1000, np.nan)) for name, column in who.items()}
    alone["arm"][3000:] = 1.0
    posterior = SimulatedFederation(alone, **FREE).learn(TASK).posterior
    assert isinstance(posterior, KaplanMeierPosterior)
    first = posterior.groups[1].at_risk[0]
    assert first is not None and first.mean == pytest.approx(
        np.sum((who["arm"] == 1.0) & (who["weeks"] >= posterior.times[0])), abs=10.0
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "epsilon", "delta"),
    [
        (2000, 1.0, 1e-5),
        pytest.param(1000, 1.0, 1e-5, marks=pytest.mark.exhaustive),
        (2000, 2.0, 0.0),
    ],
)
def test_what_is_said_holds_as_often_as_it_says(clients: int, epsilon: float, delta: float) -> None:
    """Of 200 intervals at 90 % 160 hold, of as many bands 160, but with probability 1e-5 each.

    Both arms have one hazard: of 200 p-values 10 are below .05, and 23 or more are so with
    probability 1e-4; 40 are below .2, and 63 or more with probability 1e-4.
    """
    setting = Setting(
        population=clients, missing=3, dropouts=20, colluders=20, epsilon=epsilon, delta=delta
    )
    generator = np.random.default_rng(clients)
    inside, held, values = 0, 0, []
    for _ in range(200):
        records = np.column_stack(list(patients(clients, generator).values()))
        posterior = run(learner_for(TASK), records, setting, generator).posterior
        assert isinstance(posterior, KaplanMeierPosterior) and posterior.log_rank is not None
        values.append(posterior.log_rank.p_value)
        part = slice(0, posterior.groups[0].shown)
        truth = np.exp(-((np.array(posterior.times)[part] / SCALE) ** SHAPE))
        ends, bands = posterior.interval(0.9)[part], posterior.bands(0.9)[part]
        at = generator.integers(len(truth))
        inside += int(ends[at, 0] <= truth[at] <= ends[at, 1])
        held += int(np.all((bands[:, 0] <= truth) & (truth <= bands[:, 1])))
    assert inside >= 160 and held >= 160
    assert np.sum(np.array(values) < 0.05) < 23 and np.sum(np.array(values) < 0.2) < 63

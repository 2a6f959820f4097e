"""Learning a NumPyro model of an installed distribution, over noisy gradient sums."""

from pathlib import Path

import numpy as np
import pytest

from shoal_hosting.installed_models import digest_of, model_for
from shoal_learning.learners import learner_for
from shoal_learning.simulation import Federation, run
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.studies.variational import NumpyroPosterior, NumpyroTask
from tests.world.installed_models import install_examples

pytestmark = pytest.mark.slow

X, Z, Y = (ColumnBounds(name=name, lower=-2.0, upper=2.0) for name in ("x", "z", "y"))
AGE = ColumnBounds(name="age", lower=0.0, upper=100.0)
EMERGENCY = ColumnBounds(name="emergency", lower=0.0, upper=1.0)
DAYS = ColumnBounds(name="days", lower=0.0, upper=60.0)


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_examples(tmp_path / "site", monkeypatch)


def learned(task, records, epsilon, seed=1):
    compiled = model_for(task)
    federation = Federation(
        population=len(records), missing=0, dropouts=10, colluders=10, epsilon=epsilon, delta=1e-5
    )
    outcome = run(
        learner_for(task, find_model=model_for),
        records,
        federation,
        np.random.default_rng(seed),
        gradients=compiled.gradients,
    )
    return outcome.posterior


def test_a_regression_that_outliers_do_not_bend():
    generator = np.random.default_rng(3)
    features = generator.uniform(-2.0, 2.0, (3000, 2))
    target = 0.2 + features @ [0.6, -0.4] + 0.2 * generator.standard_t(4, 3000)
    target[:300] = 2.0  # a tenth of all devices sticks at its upper end
    task = NumpyroTask(
        entry_point="robust_regression",
        digest=digest_of("robust_regression"),
        unconstrained=4,
        columns=(X, Z, Y),
        normalised=True,
        rounds=60,
        batch=None,
        clip=4.0,
    )
    posterior = learned(task, np.column_stack([features, target]), epsilon=8.0)
    assert isinstance(posterior, NumpyroPosterior)
    assert posterior.names == ("slopes[0]", "slopes[1]", "constant", "spread")
    # bounds of equal width: slopes are the data's own. Least squares gives .54 and -.36.
    assert posterior.mean[:2] == pytest.approx([0.6, -0.4], abs=0.03)
    assert posterior.mean[2] == pytest.approx(0.1, abs=0.04)
    assert posterior.records == 3000 and posterior.columns == ("x", "z", "y")


def test_counts_in_the_datas_own_units():
    generator = np.random.default_rng(4)
    age, emergency = generator.uniform(20.0, 90.0, 3000), generator.integers(0, 2, 3000)
    mean = np.exp(1.0 + 0.1 * (age - 60.0) / 10.0 + 0.7 * emergency)
    days = generator.poisson(mean * generator.gamma(3.0, 1.0 / 3.0, 3000))
    task = NumpyroTask(
        entry_point="length_of_stay",
        digest=digest_of("length_of_stay"),
        unconstrained=4,
        columns=(AGE, EMERGENCY, DAYS),
        rounds=60,
        batch=None,
        clip=10.0,  # a stay's gradient is seldom longer: what is cut would bias `base`
    )
    posterior = learned(task, np.column_stack([age, emergency, days]), epsilon=8.0)
    assert posterior.names == ("base", "decade", "emergency", "concentration")
    found = dict(zip(posterior.names, posterior.mean, strict=True))
    assert found["emergency"] == pytest.approx(0.7, abs=0.15)
    assert found["base"] == pytest.approx(1.0, abs=0.15)
    assert found["concentration"] > 0.0


def test_a_learner_without_a_way_to_its_model_says_so():
    task = NumpyroTask(
        entry_point="absent", digest="0" * 64, unconstrained=1, columns=(X,), rounds=1, batch=None
    )
    with pytest.raises(ValueError, match="not at hand"):
        learner_for(task)
    with pytest.raises(ValueError, match="install its distribution"):
        learner_for(task, find_model=model_for)

"""Learning a NumPyro model of an installed distribution, over noisy gradient sums."""

from pathlib import Path

import numpy as np
import pytest

from shoal_kit.installed_models import digest_of, model_for
from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.variational import NumpyroTask
from shoal_studies.catalogue.variational.posterior import VariationalPosterior
from shoal_studies.registry import learner_for
from shoal_studies.simulation import Federation, run
from tests.world.installed_models import install_examples

pytestmark = pytest.mark.slow

X, Z, Y = (ColumnBounds(name=name, lower=-2.0, upper=2.0) for name in ("x", "z", "y"))


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_examples(tmp_path / "site", monkeypatch)


def learned(task, records, epsilon, seed=1):
    compiled = model_for(task.model, task.model_columns)
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
    assert isinstance(posterior, VariationalPosterior)
    assert posterior.names == ("slopes[0]", "slopes[1]", "constant", "spread")
    # bounds of equal width: slopes are the data's own. Least squares gives .54 and -.36.
    assert posterior.mean[:2] == pytest.approx([0.6, -0.4], abs=0.03)
    assert posterior.mean[2] == pytest.approx(0.1, abs=0.04)
    assert posterior.records == 3000 and posterior.columns == ("x", "z", "y")


def test_a_learner_without_a_way_to_its_model_says_so():
    task = NumpyroTask(
        entry_point="absent", digest="0" * 64, unconstrained=1, columns=(X,), rounds=1, batch=None
    )
    with pytest.raises(ValueError, match="not at hand"):
        learner_for(task)
    with pytest.raises(ValueError, match="install its distribution"):
        learner_for(task, find_model=model_for)

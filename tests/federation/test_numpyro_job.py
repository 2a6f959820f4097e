"""A NumPyro model that both sides have installed is learned over all services."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from shoal_kit.installed_models import digest_of, model_for
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.variational import NumpyroTask
from shoal_studies.catalogue.variational.posterior import VariationalPosterior
from shoal_studies.registry import learner_for
from shoal_studies.replay import replay
from tests.privacy.test_taint import rounds_of
from tests.world.batches import BATCH, CONSORTIUM, POLICY
from tests.world.federation import Federation
from tests.world.installed_models import install_examples
from tests.world.trust import SITES, Trust, make_trust

ROUNDS = 2


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"), **CONSORTIUM)


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NumpyroTask:
    install_examples(tmp_path / "site", monkeypatch)
    return NumpyroTask(
        entry_point="robust_regression",
        digest=digest_of("robust_regression"),
        unconstrained=3,
        columns=(
            ColumnBounds(name="age", lower=0.0, upper=120.0),
            ColumnBounds(name="pressure", lower=60.0, upper=200.0),
        ),
        normalised=True,
        rounds=ROUNDS,
        batch=BATCH,
    )


@pytest.fixture
async def federation(trust: Trust, tmp_path: Path, task: NumpyroTask) -> AsyncIterator[Federation]:
    allowed = {"models": (task.model.reference,)}
    policy = POLICY.model_copy(update=allowed)
    holders = {site: {"policy": policy} for site in SITES}
    async with Federation(trust, tmp_path, holders=holders) as running:
        yield running


async def test_a_numpyro_model_is_learned_by_all_services_in_batches(
    federation: Federation, task: NumpyroTask, trust: Trust
) -> None:
    report = await federation.learn(task=task)
    posterior = report.posterior
    assert isinstance(posterior, VariationalPosterior)
    assert posterior.names == ("slopes[0]", "constant", "spread")
    assert set(report.cohort_sizes) == {BATCH} and len(report.rounds) == ROUNDS
    assert np.all(np.isfinite(posterior.mean)) and posterior.mean[2] > 0.0
    # every point follows from the task and the sums that were released before
    released = await rounds_of(federation)
    sums = [ReleasedSum.of(*each) for each in released]
    learner = learner_for(task, find_model=model_for)
    for number, each in enumerate(released):
        assert learner.next(report.population_size, sums[:number]).query == each.spec.query
    assert learner.next(report.population_size, sums) == posterior
    # and a certificate is checked without the model
    encoded = await federation.after(federation.analyst.job(report.job).certificate())
    verified = verify_certificate(encoded, trust.consortium.signed_manifest.encode())
    assert verified.certificate.report.digest == report.digest
    assert replay(verified.certificate).outcome == "not possible"

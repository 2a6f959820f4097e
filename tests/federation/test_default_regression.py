"""The default linear regression within bounds, whose ball is paid for, over all services."""

from pathlib import Path

import numpy as np
import pytest

from shoal_learning.linear_regression import LinearRegression
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.studies.linear_regression import LinearRegressionTask
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, TASK, make_trust

DEFAULT = LinearRegressionTask(features=TASK.features, target=TASK.target)


async def test_the_default_method_is_learned_and_certified(
    tmp_path: Path,
) -> None:
    queries = DEFAULT.query_names()
    trust = make_trust(tmp_path / "trust", queries=queries)
    policy = HOLDER_POLICY.model_copy(update={"queries": queries})
    holders = {site: {"policy": policy} for site in SITES}
    async with Federation(trust, tmp_path, holders=holders) as federation:
        job = await federation.submit(task=DEFAULT)
        state = await federation.finish(job)
        assert state["phase"] == "finished", state
        encoded = await federation.after(federation.analyst.job(job).certificate())
        report = await federation.report(job)
    assert encoded is not None
    manifest = trust.consortium.signed_manifest.encode()
    certificate = verify_certificate(encoded, manifest).certificate
    specs = [each.spec.body for each in certificate.rounds]
    assert tuple(each.query.name for each in specs) == queries
    shares = LinearRegression(DEFAULT).shares()
    paid = np.array([each.mu**2 for each in specs])
    assert paid / report.privacy.mu**2 == pytest.approx(shares)
    assert specs[1].query.radius is not None
    assert 0 < report.posterior.records <= sum(SITES.values())  # seen through noise

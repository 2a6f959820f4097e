"""Moments over all services: one certificate answers several questions, at the price of one job."""

from pathlib import Path
from typing import Any

import numpy as np

from shoal.answers import Answers
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.moments import MomentsTask
from shoal_studies.learners import learner_for
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, TASK, make_trust

MOMENTS = MomentsTask(columns=TASK.columns)


async def test_a_certificate_answers_two_models_and_nobody_is_asked_or_charged_again(
    tmp_path: Path,
) -> None:
    queries = MOMENTS.query_names()
    trust = make_trust(tmp_path / "trust", queries=queries, maximum_epsilon=100.0)
    policy = HOLDER_POLICY.model_copy(update={"queries": queries, "maximum_epsilon": 100.0})
    holders: dict[str, dict[str, Any]] = {site: {"policy": policy} for site in SITES}
    async with Federation(trust, tmp_path, holders=holders) as federation:
        job = await federation.submit(task=MOMENTS, epsilon=80.0)
        state = await federation.finish(job)
        assert state["phase"] == "finished", state
        encoded = await federation.after(federation.analyst.job(job).certificate())
        report = await federation.report(job)
    assert encoded is not None
    manifest = trust.consortium.signed_manifest.encode()
    certificate = verify_certificate(encoded, manifest).certificate
    specs = [each.spec.body for each in certificate.rounds]
    assert tuple(each.query.name for each in specs) == queries
    sums = [ReleasedSum.of(each.spec.body, each.result.body) for each in certificate.rounds]
    assert learner_for(MOMENTS).next(sum(SITES.values()), sums) == report.posterior
    centres = [[column.centre for column in each.query.columns] for each in specs]
    assert centres[1] == centres[2] != centres[0]

    answers = Answers.of(certificate.report.body.posterior)
    age, pressure = (each.name for each in MOMENTS.columns)
    there, back = answers.linear_model(pressure, [age]), answers.linear_model(age, [pressure])
    assert (there.target, back.target) == (pressure, age)
    records = np.concatenate([trust.records(site).values for site in SITES])
    truth = np.polyfit(records[:, 0], records[:, 1], 1)[0]
    assert abs(there.mean[1] - truth) <= 4.0 * there.sd[1]
    assert report.privacy.epsilon <= 80.0 and len(report.rounds) == 3

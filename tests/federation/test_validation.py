"""Predictions scored at the holders over all services: one round, certified and replayed."""

from pathlib import Path

import pytest

from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.queries import PredictionScores
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.wire.errors import RefusedSpec
from shoal_studies.catalogue.validation import Site, ValidationPosterior, ValidationTask
from shoal_studies.learners import learner_for
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, TASK, make_trust

SCORED = ValidationTask(
    family="normal",
    features=TASK.features,
    target=TASK.target,
    site="age",  # of which records of this world have several levels
    sites=(
        Site(name="thirty", value=30.0, coefficients=(94.0, 0.5)),
        Site(name="older", value=67.0, coefficients=(150.0, 0.0)),
    ),
)


async def test_scores_are_released_once_certified_and_replayed(tmp_path: Path) -> None:
    queries = SCORED.query_names()
    trust = make_trust(tmp_path / "trust", queries=queries)
    policy = HOLDER_POLICY.model_copy(update={"queries": queries})
    async with Federation(
        trust, tmp_path, holders={site: {"policy": policy} for site in SITES}
    ) as federation:
        job = await federation.submit(task=SCORED)
        state = await federation.finish(job)
        assert state["phase"] == "finished", state
        encoded = await federation.after(federation.analyst.job(job).certificate())
        report = await federation.report(job)
    assert encoded is not None
    manifest = trust.consortium.signed_manifest.encode()
    [released] = verify_certificate(encoded, manifest).certificate.rounds
    query = released.spec.body.query
    assert isinstance(query, PredictionScores)
    assert query.points == (
        (124.0, 30.0),
        (150.0, 0.0),
    )  # at the middle of 0 to 120, for half of it
    clients = sum(SITES.values())
    sums = [ReleasedSum.of(released.spec.body, released.result.body)]
    assert learner_for(SCORED).next(clients, sums) == report.posterior
    assert isinstance(report.posterior, ValidationPosterior)
    assert [each.name for each in report.posterior.scores] == ["thirty", "older", "all sites"]
    terms = SCORED.terms(least=2, most=2)
    terms.check(query, number=0)
    for change in ({"points": ((124.0, 30.0),) * 2}, {"score_limit": 0.5}, {"bins": 6}):
        with pytest.raises(RefusedSpec):
            terms.check(query.model_copy(update=change), number=0)

"""Regressions in measured units over all services: every query, certified and replayed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import ReleaseCertificate
from shoal_protocol.queries import ClassScoreSum, HazardScoreSum, ScoreSum
from shoal_protocol.queries.columns import ColumnBounds, Log, Power, Term
from shoal_protocol.wire.errors import RefusedSpec
from shoal_studies.catalogue.multinomial_regression import MultinomialRegressionTask, TargetLevel
from shoal_studies.catalogue.piecewise_exponential import PiecewiseExponentialTask
from shoal_studies.catalogue.regression import RegressionTask
from shoal_studies.replay import replay
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, TASK, make_trust

NORMAL = RegressionTask(family="normal", features=TASK.features, target=TASK.target)
CLASSES = MultinomialRegressionTask(
    features=TASK.features,
    target=TASK.target.name,
    levels=tuple(TargetLevel(name=f"at {value:g}", value=value) for value in (120.0, 130.0, 140.0)),
)
HAZARDS = PiecewiseExponentialTask(  # of who is older than half a year
    features=(
        ColumnBounds(
            name="age squared",
            lower=0.0,
            upper=14400.0,
            term=Term(factors=(Power(variable="age", lower=0.0, upper=120.0, exponent=2),)),
        ),
    ),
    time=TASK.target,
    event="age",
    intervals=3,
)


def of_age(name: str, factor: Log | Power) -> ColumnBounds:
    return ColumnBounds.of_term(name, Term(factors=(factor,)))


WEIGHED = NORMAL.model_copy(
    update={
        "family": "gamma",
        "target": TASK.target.model_copy(update={"lower": 0.0}),
        "offset": of_age("log(age)", Log(variable="age", lower=1.0, upper=120.0)),
        "weights": of_age("age**2", Power(variable="age", lower=0.0, upper=120.0, exponent=2)),
    }
)


def with_another_point(certificate: ReleaseCertificate, number: int) -> ReleaseCertificate:
    """Return a certificate of which a round took scores elsewhere, as the job's terms allow."""
    rounds = list(certificate.rounds)
    signed = rounds[number].spec
    query: Any = signed.body.query
    moved = query.model_copy(
        update={"point": tuple(each + 0.01 * (1.0 + abs(each)) for each in query.point)}
    )
    spec = replace(signed, body=signed.body.model_copy(update={"query": moved}))
    rounds[number] = rounds[number].model_copy(update={"spec": spec})
    return certificate.model_copy(update={"rounds": tuple(rounds)})


@pytest.mark.parametrize(
    "task",
    [NORMAL, WEIGHED, CLASSES, HAZARDS],
    ids=["normal", "weighed", "multinomial", "hazards"],
)
async def test_a_regression_is_learned_in_five_rounds_and_certified(
    tmp_path: Path, task: RegressionTask | MultinomialRegressionTask | PiecewiseExponentialTask
) -> None:
    queries = task.query_names()
    trust = make_trust(tmp_path / "trust", queries=queries)
    policy = HOLDER_POLICY.model_copy(update={"queries": queries})
    holders: dict[str, dict[str, Any]] = {site: {"policy": policy} for site in SITES}
    async with Federation(trust, tmp_path, holders=holders) as federation:
        job = await federation.submit(task=task)
        state = await federation.finish(job)
        assert state["phase"] == "finished", state
        encoded = await federation.after(federation.analyst.job(job).certificate())
        report = await federation.report(job)
    assert encoded is not None
    manifest = trust.consortium.signed_manifest.encode()
    certificate = verify_certificate(encoded, manifest).certificate
    specs = [each.spec.body for each in certificate.rounds]
    assert set(each.query.name for each in specs) == set(task.query_names())
    assert len(specs) == 5
    assert report.posterior.verdict.kind in ("trustworthy", "doubtful", "prior")
    # centres and scales stay what the first round measured; points move
    features = [each.query.columns[: len(task.features)] for each in specs[1:]]
    assert all(each == features[0] for each in features)
    scores = (ScoreSum, ClassScoreSum, HazardScoreSum)
    points = [each.query.point for each in specs if isinstance(each.query, scores)]
    assert len(set(points)) == len(points)
    assert replay(certificate).outcome == "same"
    assert replay(with_another_point(certificate, 2)).detail.startswith("differs at round 2:")
    query = specs[-1].query
    changes: list[dict[str, Any]] = [{"grid_bits": 12}, {"radius": query.radius * 20.0}]
    if isinstance(query, ScoreSum):
        changes.append({"family": "logistic"})
    elif isinstance(query, HazardScoreSum):
        changes.append({"edges": (*query.edges[:-1], query.edges[-1] + 1.0)})
    else:
        changes.append({"classes": 2, "point": (0.0,) * 2 * (len(query.columns) - 1)})
    for change in changes:
        with pytest.raises(RefusedSpec):
            task.terms(least=2, most=2).check(query.model_copy(update=change), number=4)

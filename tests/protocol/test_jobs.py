"""Job requests and joins: what the policy does not allow is refused when it is asked for."""

from typing import Any, get_args

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.jobs.job_request import JobRequest, PrivacyDemand, check_job
from shoal_protocol.privacy.job_costs import gaussian_epsilon
from shoal_protocol.queries import QueryName
from shoal_protocol.wire.documents import decode, sign
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import MalformedDocument, RefusedJob
from shoal_studies.registry import Task
from shoal_studies.study_request import StudyRequest, check_study
from tests.world import examples
from tests.world.examples import (
    CONSORTIUM,
    JOB,
    POLICY,
    THRESHOLD_CONSORTIUM,
    THRESHOLD_JOB,
    asking,
    signing_key,
)

MANIFEST = CONSORTIUM.manifest


def changed(**changes: Any) -> StudyRequest:
    return StudyRequest.model_validate(JOB.model_dump() | changes)


def demand(**changes: Any) -> PrivacyDemand:
    return PrivacyDemand.model_validate(JOB.privacy.model_dump() | changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"minimum_population": 9}, "must be at least 8"),
        ({"privacy": demand(epsilon=4.01)}, "exceed"),
        ({"privacy": demand(epsilon=100.0)}, "exceed"),
        ({"privacy": demand(epsilon=4.0, delta=1.01e-6)}, "exceed"),
        ({"privacy": demand(delta=0.01)}, "exceed"),
        (
            {"privacy": demand(delta=0.0)},
            "manifest does not allow .* a delta above 0 .*--mechanism",
        ),
        ({"round_seconds": 3571}, "at most 3600"),
        ({"grace_seconds": 2**28}, "at most 3600"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_job_beyond_the_policy_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedJob, match=reason):
        check_job(changed(**changes), MANIFEST)


def test_a_job_may_share_by_threshold_only_where_the_policy_allows_it() -> None:
    check_job(THRESHOLD_JOB, THRESHOLD_CONSORTIUM.manifest)
    check_job(JOB, THRESHOLD_CONSORTIUM.manifest)
    with pytest.raises(RefusedJob, match="additive sharing only"):
        check_job(THRESHOLD_JOB, MANIFEST)
    for threshold, reason in ((2, "at least 3"), (4, "at most all")):
        job = changed(sharing={"scheme": "threshold", "threshold": threshold})
        policy = POLICY.model_copy(update={"minimum_threshold": 3})
        with pytest.raises(RefusedJob, match=reason):
            check_job(job, MANIFEST.model_copy(update={"policy": policy}))


def test_a_job_whose_task_needs_a_query_that_is_not_allowed_is_refused() -> None:
    policy = POLICY.model_copy(update={"queries": ("second_moment_matrix",)})
    narrow = MANIFEST.model_copy(update={"policy": policy})
    with pytest.raises(RefusedJob, match="second_moments"):
        check_job(JOB, narrow)
    check_job(asking(task=JOB.task.model_copy(update={"method": "plain"})), narrow)


ALL_QUERIES = POLICY.model_copy(update={"queries": get_args(QueryName)})
PLAIN = JOB.task.model_copy(update={"method": "plain"})
UNLIKE = {
    "another method's rounds": PLAIN,
    "another order of columns": JOB.task.model_copy(
        update={"features": (JOB.task.target,), "target": JOB.task.features[0]}
    ),
    "wider bounds": JOB.task.model_copy(
        update={"target": JOB.task.target.model_copy(update={"upper": 250.0})}
    ),
    "more records": JOB.task.model_copy(update={"records_per_client": 3}),
    "another grid": JOB.task.model_copy(update={"grid_bits": 13}),
    "another ball": JOB.task.model_copy(update={"method": "box_projection"}),
}


@pytest.mark.parametrize("other", UNLIKE.values(), ids=UNLIKE)
def test_terms_that_are_not_those_of_the_task_are_refused_by_who_reads_it(other: Task) -> None:
    check_study(JOB, MANIFEST)
    lying = JOB.model_copy(update={"terms": asking(task=other).terms})
    check_job(lying, examples.consortium(policy=ALL_QUERIES).manifest)  # by its terms it may be
    with pytest.raises(RefusedJob, match="not those of its task"):
        check_study(lying, examples.consortium(policy=ALL_QUERIES).manifest)


def test_who_holds_data_reads_a_request_whose_task_it_does_not_know() -> None:
    request = sign(JOB, "analyst", signing_key("analyst")).to_json()
    request["body"]["task"] = {"name": "something_new", "anything": [1, {"deep": None}]}
    encoded = canonical_json(request)
    assert decode(encoded, JobRequest).body.terms == JOB.terms
    with pytest.raises(MalformedDocument):
        decode(encoded, StudyRequest)
    request["body"]["task"] = "no object"
    with pytest.raises(MalformedDocument):
        decode(canonical_json(request), JobRequest)


def test_a_request_that_is_nested_too_deep_is_malformed_and_nothing_worse() -> None:
    """JSON may be nested deeper than a document can be written: nobody's key is needed for it."""
    request = sign(JOB, "analyst", signing_key("analyst")).to_json()
    for depth in (200, 300, 900, 100_000):
        nested = b"[" * depth + b"]" * depth
        request["body"]["task"] = {"name": "new", "anything": "HERE"}
        encoded = canonical_json(request).replace(b'"HERE"', nested)
        if depth == 200:
            decode(encoded, JobRequest)
            continue
        with pytest.raises(MalformedDocument):
            decode(encoded, JobRequest)


@given(st.floats(1e-9, 100.0), st.floats(1e-300, 0.99 / JOB.minimum_population))
def test_any_demand_is_accepted_or_refused_by_its_cost(epsilon: float, delta: float) -> None:
    asked = changed(privacy=demand(epsilon=epsilon, delta=delta))
    try:
        check_job(asked, MANIFEST)
    except RefusedJob:
        assert asked.privacy.cost.mu > POLICY.cap.mu
    else:
        cost = gaussian_epsilon(mu=asked.privacy.cost.mu, delta=POLICY.delta)
        assert cost <= POLICY.maximum_epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"maximum_population": 11}, "below minimum_population"),
        ({"minimum_population": 6}, "must exceed"),
        ({"privacy": {**JOB.privacy.model_dump(), "colluders": 9}}, "must exceed"),
        ({"minimum_population": 1}, "greater than"),
        ({"maximum_population": 10_000_001}, "less than"),
        ({"round_seconds": 0}, "greater than"),
        ({"grace_seconds": 0}, "greater than"),
        ({"privacy": {**JOB.privacy.model_dump(), "epsilon": 0.0}}, "greater than"),
        ({"privacy": {**JOB.privacy.model_dump(), "epsilon": 101.0}}, "less than"),
        ({"privacy": {**JOB.privacy.model_dump(), "delta": 1.0}}, "less than"),
        (
            {"privacy": {**JOB.privacy.model_dump(), "delta": 1.0 / JOB.minimum_population}},
            "below 1 / minimum_population: a larger one would allow to publish the records",
        ),
        ({"privacy": {**JOB.privacy.model_dump(), "delta": -0.1}}, "greater than"),
        ({"privacy": {**JOB.privacy.model_dump(), "dropouts": -1}}, "greater than"),
        ({"nonce": "00"}, "pattern"),
        ({"analyst": "An Analyst"}, "pattern"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_request_that_contradicts_itself_is_refused(changes: Any, reason: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=reason):
        changed(**changes)

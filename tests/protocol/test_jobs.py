"""Job requests and joins: what the policy does not allow is refused when it is asked for."""

from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.curves import gaussian_epsilon
from shoal_protocol.errors import RefusedJob
from shoal_protocol.jobs import JobRequest, PosteriorReport, PrivacyDemand, check_job
from shoal_protocol.membership import Join
from tests.protocol.examples import (
    CONSORTIUM,
    DOCUMENTS,
    JOB,
    POLICY,
    THRESHOLD_CONSORTIUM,
    THRESHOLD_JOB,
)

MANIFEST = CONSORTIUM.manifest


def changed(**changes: Any) -> JobRequest:
    return JobRequest.model_validate(JOB.model_dump() | changes)


def demand(**changes: Any) -> PrivacyDemand:
    return PrivacyDemand.model_validate(JOB.privacy.model_dump() | changes)


def test_a_job_within_the_policy_is_accepted() -> None:
    check_job(JOB, MANIFEST)


def test_a_job_may_ask_for_all_that_the_policy_allows() -> None:
    check_job(
        changed(
            privacy=demand(epsilon=POLICY.maximum_epsilon, delta=POLICY.delta),
            minimum_population=POLICY.minimum_cohort + JOB.privacy.dropouts,
            round_seconds=POLICY.maximum_round_seconds - JOB.grace_seconds,
        ),
        MANIFEST,
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"minimum_population": 9}, "must be at least 8"),
        ({"privacy": demand(epsilon=4.01)}, "exceed"),
        ({"privacy": demand(epsilon=100.0)}, "exceed"),
        ({"privacy": demand(epsilon=4.0, delta=1.01e-6)}, "exceed"),
        ({"privacy": demand(delta=0.1)}, "exceed"),
        (
            {"privacy": demand(delta=0.0)},
            "manifest does not allow .* a delta above 0 .*--mechanism",
        ),
        ({"round_seconds": 3571}, "at most 3600"),
        ({"grace_seconds": 2**30}, "at most 3600"),
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
    check_job(changed(task=JOB.task.model_copy(update={"method": "plain"})), narrow)


@given(st.floats(1e-9, 100.0), st.floats(1e-300, 0.999999))
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


def test_requests_that_differ_in_their_nonce_only_are_two_jobs() -> None:
    assert changed(nonce="00" * 16).digest != JOB.digest


@pytest.mark.parametrize("client", [-1, 2**32])
def test_a_join_names_a_client_index_of_32_bits(client: int) -> None:
    with pytest.raises(pydantic.ValidationError):
        Join(manifest=CONSORTIUM.digest, job=JOB.digest, client=client)


@pytest.mark.parametrize(
    "changes", [{"rounds": ()}, {"results": ()}, {"cohort_sizes": (11, 11)}, {"cohort_sizes": (0,)}]
)
def test_a_report_has_one_result_and_one_cohort_for_each_round(changes: dict[str, Any]) -> None:
    report = DOCUMENTS["posterior_report"].body
    with pytest.raises(pydantic.ValidationError):
        PosteriorReport.model_validate(report.model_dump() | changes)

"""What clients refuse of a job's batches: sizes, numbers and prices that were not promised."""

from datetime import timedelta
from typing import Any

import pydantic
import pytest
from pyroaring import BitMap

from shoal_protocol.jobs.job_request import check_job, check_round_of_job
from shoal_protocol.privacy.accounting import NOTHING, Cost
from shoal_protocol.rounds.batches import SPARE, make_spec
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.errors import RefusedJob, RefusedSpec
from shoal_studies.catalogue.variational import LogisticRegressionTask
from shoal_studies.study_request import StudyRequest
from tests.world import examples

BATCH, ROUNDS = 11, 12
POLICY = examples.POLICY.model_copy(update={"queries": ("gradient_sum",)})
CONSORTIUM = examples.consortium(policy=POLICY)
TASK = LogisticRegressionTask(
    features=examples.TASK.features, target=examples.TASK.target, rounds=ROUNDS, batch=BATCH
)


def job(**task: Any) -> StudyRequest:
    asked = examples.asking(manifest=CONSORTIUM.digest, task=TASK.model_copy(update=task))
    return StudyRequest.model_validate(asked.model_dump())


def spec(*, clients: int = BATCH, number: int = 0, share: float = 1 / ROUNDS) -> RoundSpec:
    request = job()
    return make_spec(
        manifest=CONSORTIUM,
        job=request.digest,
        number=number,
        query=TASK.gradient_query([0.0] * 2),
        mechanism=request.privacy.mechanism,
        cost=request.privacy.cap.part(share),
        population=BitMap(range(clients)),
        dropouts=request.privacy.dropouts,
        colluders=request.privacy.colluders,
        opened_at=examples.OPENED_AT,
        deadline=examples.OPENED_AT + timedelta(seconds=60),
        give_up_at=examples.OPENED_AT + timedelta(seconds=120),
        sharing=request.sharing,
    )


def check(round_: RoundSpec, spent: Cost = NOTHING) -> None:
    check_round_of_job(round_, job(), spent=spent)


def test_a_batch_of_the_tasks_size_at_its_price_is_what_was_promised() -> None:
    check_job(job(), CONSORTIUM.manifest)
    check(spec())
    check(spec(number=ROUNDS - 1))


@pytest.mark.parametrize("clients", [BATCH - 1, BATCH + 1])
def test_a_batch_of_another_size_is_refused(clients: int) -> None:
    with pytest.raises(RefusedSpec, match="smaller or larger than the job allows"):
        check(spec(clients=clients))


def test_a_round_beyond_the_jobs_last_is_refused() -> None:
    with pytest.raises(RefusedSpec, match="has no such round"):
        check(spec(number=ROUNDS))


def test_a_client_that_paid_the_jobs_price_is_asked_no_more() -> None:
    cap = job().privacy.cap
    check(spec(), spent=cap.part(1 - 1 / ROUNDS))
    with pytest.raises(RefusedSpec, match="cost more than the job may"):
        check(spec(), spent=cap.part(1 - 0.9 / ROUNDS))


def test_a_batch_must_hold_enough_honest_clients() -> None:
    with pytest.raises(pydantic.ValidationError, match="batch must exceed dropouts"):
        job(batch=examples.JOB.privacy.dropouts + examples.JOB.privacy.colluders + 1)


def test_a_batch_is_no_smaller_than_the_policys_cohort_and_no_larger_than_who_must_join() -> None:
    small = POLICY.minimum_cohort + examples.JOB.privacy.dropouts - 1
    with pytest.raises(RefusedJob, match="batch less dropouts must be at least"):
        check_job(job(batch=small), CONSORTIUM.manifest)
    with pytest.raises(RefusedJob, match="batch may be at most minimum_population"):
        check_job(job(batch=examples.JOB.minimum_population + 1), CONSORTIUM.manifest)


@pytest.mark.parametrize(("rounds", "spare"), [(9, 0), (10, 1), (19, 1), (500, 50)])
def test_a_tenth_of_the_rounds_may_be_lost(rounds: int, spare: int) -> None:
    assert job(rounds=rounds).terms.rounds // SPARE == spare

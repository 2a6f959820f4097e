"""Which rounds of a job are made before anybody joins, and that a later one can refuse the job."""

import dataclasses
import re
from contextlib import nullcontext
from typing import Any, get_args

import numpy as np
import pytest
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import NOTHING, Balances, Cap, compose
from shoal_protocol.queries import Moments, QueryName
from shoal_protocol.wire.errors import RefusedJob
from shoal_protocol.wire.service_errors import BudgetExceeded
from shoal_studies.registry import Task
from shoal_studies.study_request import StudyRequest
from shoal_trainer import jobs
from shoal_trainer.jobs import check_affordable, check_request, dry_run_specs, next_spec
from tests.world import examples
from tests.world.around_trainer import job

POLICY = examples.POLICY.model_copy(
    update={"maximum_epsilon": 30.0, "queries": get_args(QueryName)}
)
CONSORTIUM = examples.consortium(policy=POLICY)
CLIENTS = BitMap(range(12))
PROJECTION = job().task.model_copy(update={"method": "ball_projection", "grid_bits": 10})


def asked(task: Task, epsilon: float = 1.0) -> StudyRequest:
    privacy = job().privacy.model_copy(update={"epsilon": epsilon})
    return examples.asking(job(), manifest=CONSORTIUM.digest, task=task, privacy=privacy)


def test_all_rounds_that_are_made_cost_the_jobs_price_together_and_no_more() -> None:
    request = asked(PROJECTION)
    specs = dry_run_specs(request, CONSORTIUM, CLIENTS, now=examples.OPENED_AT)
    whole = compose([spec.cost for spec in specs])
    assert request.privacy.cap.allows(whole)
    assert whole.mu == pytest.approx(request.privacy.cost.mu)


def test_a_job_of_which_only_a_later_round_does_not_fit_is_refused_when_it_is_submitted() -> None:
    """The first round takes a fifth of the price, so its noise is larger than the second one's."""
    request = asked(PROJECTION, epsilon=18.0)
    learner = jobs.learner_for(request.task, find_model=jobs.model_for)
    wanted = learner.next(len(CLIENTS), [])
    assert isinstance(wanted, jobs.RequestedRound)
    now = examples.OPENED_AT
    next_spec(request, CONSORTIUM, CLIENTS, number=0, wanted=wanted, spent=NOTHING, now=now)
    with pytest.raises(RefusedJob, match="clients: the noise is too small against"):
        check_request(request, CONSORTIUM, now=examples.OPENED_AT.replace(hour=11))


@pytest.mark.parametrize("kind", [FloatingPointError, IndexError, np.linalg.LinAlgError])
def test_a_job_whose_method_fails_is_refused_without_a_librarys_words(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    class Failing:
        def next(self, *_: object) -> None:
            raise kind("input_value=17")

    monkeypatch.setattr(jobs, "learner_for", lambda *_, **__: Failing())
    with pytest.raises(RefusedJob, match="clients: the method could not compute") as refused:
        check_request(asked(PROJECTION), CONSORTIUM, now=examples.OPENED_AT.replace(hour=11))
    assert "17" not in str(refused.value)


def test_a_round_that_a_learner_wants_and_the_terms_do_not_allow_is_not_made() -> None:
    request = asked(PROJECTION)
    made = dry_run_specs(request, CONSORTIUM, CLIENTS, now=examples.OPENED_AT)
    sums = [jobs._even(spec) for spec in made[:1]]
    learner = jobs.learner_for(request.task, find_model=jobs.model_for)
    wanted = learner.next(len(CLIENTS), sums)
    assert isinstance(wanted, jobs.RequestedRound)
    assert isinstance(wanted.query, Moments)
    assert wanted.query.radius is not None
    other = wanted.query.model_copy(update={"radius": 1e3 * wanted.query.radius})
    arguments: dict[str, Any] = {"number": 1, "spent": NOTHING}
    for query, refused in ((wanted.query, False), (other, True)):
        step = dataclasses.replace(wanted, query=query)
        with pytest.raises(ValueError, match="range of the job") if refused else nullcontext():
            next_spec(
                request, CONSORTIUM, CLIENTS, wanted=step, now=examples.OPENED_AT, **arguments
            )


def test_a_job_that_too_few_can_pay_is_refused_with_the_largest_epsilon_that_they_can() -> None:
    enrolled, cap = CONSORTIUM.roster.enrolled_set, CONSORTIUM.manifest.policy.cap
    spent, rest = BitMap(sorted(enrolled)[2:]), cap.part(0.3)
    balances = Balances()
    balances.add(spent, cap.part(0.7))
    request = asked(PROJECTION, epsilon=25.0)
    with pytest.raises(BudgetExceeded, match="2 clients have budget left") as refusal:
        check_affordable(request, CONSORTIUM, balances)
    [epsilon] = re.findall(r"ask for epsilon = ([\d.]+) at the same delta", str(refusal.value))
    largest = Cap(epsilon=float(epsilon), delta=request.privacy.delta).whole
    assert 0.98 * rest.mu <= largest.mu <= rest.mu
    check_affordable(asked(PROJECTION, epsilon=float(epsilon)), CONSORTIUM, balances)
    balances.add(spent, rest)
    with pytest.raises(BudgetExceeded, match="ask for fewer clients"):
        check_affordable(request, CONSORTIUM, balances)

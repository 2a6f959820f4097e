"""Jobs from submission to report, over HTTP, with the other services played."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap
from structlog.testing import capture_logs

from shoal_protocol.keeping import HEADS_PATH
from shoal_protocol.privacy.accounting import Cost, compose
from shoal_protocol.privacy.job_costs import gaussian_epsilon
from shoal_protocol.rounds.attestations import PartialSumReference
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.vectors import encode_uint64
from shoal_studies.catalogue.linear_regression import LinearRegressionTask
from shoal_studies.contract import NoReliablePosterior, RequestedRound
from shoal_studies.posterior_report import PosteriorReport
from shoal_studies.registry import Posterior, learner_for
from shoal_studies.study_request import StudyRequest
from shoal_trainer import running as module
from shoal_trainer.assembly import Service
from tests.world import examples
from tests.world.around_trainer import CONSORTIUM, SERVICES, Federation, job, join, signed_job
from tests.world.clock import HandMovedClock
from tests.world.parties import client_of, post, problem_code
from tests.world.wire import Fault, Rule

JOB = job()
NOT_VALID = "round 0 failed: the aggregator's word on it is not valid (outcome_refused; "


async def get(service: Service, path: str, **headers: str) -> tuple[Any, bytes]:
    async with client_of(service.app) as http:
        response = await http.get(path, headers=headers)
    if response.status_code >= 400:
        return problem_code(response), response.content
    return response.status_code, response.content


async def state(service: Service, request: StudyRequest = JOB) -> Any:
    async with client_of(service.app) as http:
        return (await http.get(f"/v1/jobs/{request.digest}")).json()


async def joined(service: Service, request: StudyRequest = JOB, clients: int = 14) -> None:
    """Submit a job and let the first `clients` join."""
    assert await post(service, "/v1/jobs", signed_job(request)) == 201
    for client in range(clients):
        path = f"/v1/jobs/{request.digest}/memberships"
        assert await post(service, path, join(request.digest, client)) == 201


async def running(
    service: Service, clock: HandMovedClock, request: StudyRequest = JOB, clients: int = 14
) -> None:
    await joined(service, request, clients)
    clock.now = max(clock.now, request.join_deadline)
    await service.step()


async def report_of(service: Service, request: StudyRequest = JOB) -> PosteriorReport:
    status, encoded = await get(service, f"/v1/jobs/{request.digest}/result")
    assert status == 200
    signed = decode(encoded, PosteriorReport)
    CONSORTIUM.verify(signed)
    return signed.body


async def test_a_job_costs_what_its_rounds_cost_and_not_more_than_was_asked(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    await running(trainer, clock)
    privacy = (await report_of(trainer)).privacy
    specs = federation.rounds["aggregator"].values()
    spent = compose(spec.cost for spec in specs)
    assert privacy.mu == spent.mu
    assert math.isclose(privacy.mu, JOB.privacy.cost.mu, rel_tol=1e-9)
    assert privacy.epsilon == gaussian_epsilon(mu=spent.mu, delta=JOB.privacy.delta)
    assert privacy.epsilon <= JOB.privacy.epsilon + 1e-6
    assert np.isclose(min(spec.mu for spec in specs) ** 2 / privacy.mu**2, 0.2)


async def test_a_report_waits_for_keepers_and_its_posterior_is_not_computed_before(
    trainer: Service,
    clock: HandMovedClock,
    federation: Federation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed = []

    def wanted(job: module.RunningJob, *arguments: Any) -> Any:
        computed.append(job.is_over)
        return _wanted(job, *arguments)

    _wanted = module._wanted
    monkeypatch.setattr(module, "_wanted", wanted)
    silent = ("aggregator", "compute-1", "compute-2")
    cuts = [Rule(Fault.LOST, receiver=each, path=f"{HEADS_PATH}$") for each in silent]
    federation.wire.rules += cuts
    await running(trainer, clock)
    for _ in range(3):
        clock.move(6.0)
        await trainer.step()
    assert (await state(trainer))["phase"] == "running"
    assert sum(computed) == 0
    federation.wire.rules.clear()
    clock.move(6.0)
    await trainer.step()
    await report_of(trainer)
    assert sum(computed) == 1


async def test_a_round_is_on_the_ledger_when_it_is_announced(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    federation.decided = False
    await running(trainer, clock)
    (entry,) = (await ledger(trainer))["entries"]
    (spec,) = federation.rounds["compute-0"].values()
    assert (entry["job"], entry["round"], entry["mu"]) == (JOB.digest, spec.digest, spec.mu)
    assert entry["clients"] == 14
    federation.decided = True
    await trainer.step()
    first, _ = (await ledger(trainer))["entries"]
    assert first == entry


async def ledger(service: Service, query: str = "") -> Any:
    async with client_of(service.app) as http:
        return (await http.get(f"/v1/ledger{query}")).json()


async def test_clients_see_a_round_only_when_every_service_has_accepted_it(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    federation.decided, cut = False, federation.wire.cut("trainer", "compute-2")
    await running(trainer, clock)
    path = f"/v1/jobs/{JOB.digest}/rounds/0"
    assert (await get(trainer, path))[0] == 202
    federation.wire.rules.remove(cut)
    await trainer.step()
    status, encoded = await get(trainer, path)
    signed = decode(encoded, RoundSpec)
    CONSORTIUM.verify(signed)
    assert status == 200
    assert [list(federation.rounds[name]) for name in SERVICES] == [[signed.digest]] * 4
    nodes, request = CONSORTIUM.manifest.compute_nodes, signed_job(JOB)
    handed = {name: set(each) for name, each in federation.requests.items()}
    assert handed == {"aggregator": set(), **{node.name: {request} for node in nodes}}


class Failing:
    """A learner that asks its first round and cannot do anything with the sum."""

    def __init__(self, task: LinearRegressionTask, error: Exception) -> None:
        self._learner, self._error = learner_for(task), error

    def next(self, population: int, sums: Sequence[ReleasedSum]) -> RequestedRound | Posterior:
        if sums:
            raise self._error
        return self._learner.next(population, sums)


SECRET = "17 clients have it"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("the sums do not fit"), "the sums do not fit"),
        (NoReliablePosterior("ask with more"), "ask with more"),
        *(
            (kind(SECRET), "the method could not compute an answer from the task and the sums")
            for kind in (IndexError, FloatingPointError, OverflowError, np.linalg.LinAlgError)
        ),
    ],
)
async def test_a_method_that_fails_ends_the_job_and_what_it_did_not_spend_is_given_back(
    trainer: Service,
    clock: HandMovedClock,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reason: str,
) -> None:
    monkeypatch.setattr("shoal_trainer.running.learner_for", lambda task, **_: Failing(task, error))
    with capture_logs() as lines:
        await running(trainer, clock)
    shown = await state(trainer)
    assert shown["phase"] == "failed"
    assert shown["reason"].startswith(reason)
    assert "the method failed" in [each["event"] for each in lines]
    assert SECRET not in f"{lines}{shown}"
    first, cap = JOB.privacy.cap.part(0.2), CONSORTIUM.manifest.policy.cap
    client, rest = BitMap([3]), math.sqrt(cap.whole.mu**2 - first.mu**2)
    committed = trainer.resources.committed
    assert committed.affording(client, Cost.gaussian(0.999 * rest), cap) == client
    assert committed.affording(client, Cost.gaussian(1.001 * rest), cap) == BitMap()


@pytest.mark.parametrize("signer", ["compute-0", "trainer"])
async def test_nobody_but_the_aggregator_can_end_a_round(
    trainer: Service, clock: HandMovedClock, federation: Federation, signer: str
) -> None:
    federation.abandoned, federation.signer = True, signer
    await running(trainer, clock)
    assert (await state(trainer))["reason"].startswith(NOT_VALID + "wrong-signer")


REFERENCES = tuple(
    PartialSumReference(node=f"compute-{node}", digest="0" * 64) for node in range(examples.NODES)
)
TAMPERED: dict[str, tuple[dict[str, Any], str]] = {
    "bound to another manifest": ({"manifest": "0" * 64}, "wrong-manifest"),
    "of another round": ({"round": "0" * 64}, "wrong-round"),
    "over too few clients": ({"cohort_size": 11}, "wrong-cohort"),
    "over more clients than joined": ({"cohort_size": 15}, "wrong-cohort"),
    "of no node": ({"partial_sums": ()}, "wrong-cohort"),
    "lacking a node": ({"partial_sums": REFERENCES[:-1]}, "wrong-cohort"),
    "of one node thrice": ({"partial_sums": REFERENCES[:1] * 3}, "wrong-cohort"),
    "too short": ({"values": encode_uint64(np.zeros(2, np.uint64))}, "wrong-share"),
    "not of whole numbers": ({"values": "AAAA"}, "malformed-document"),
    "impossible": ({"values": encode_uint64(np.full(4, 2**62, np.uint64))}, "refused-result"),
    "not the total": ({"values": encode_uint64(np.ones(4, np.uint64))}, "refused-result"),
    "of other partial sums": ({"partial_sums": REFERENCES}, "refused-result"),
    "of another cohort": ({"cohort": "0" * 64}, "wrong-cohort"),
    "of another cohort size": ({"cohort_size": 13}, "wrong-cohort"),
}


@pytest.mark.parametrize(("changes", "code"), TAMPERED.values(), ids=TAMPERED.keys())
async def test_a_result_that_does_not_fit_the_round_is_never_used(
    trainer: Service,
    clock: HandMovedClock,
    federation: Federation,
    changes: dict[str, Any],
    code: str,
) -> None:
    federation.tamper = lambda result: result.model_copy(update=changes)
    await running(trainer, clock)
    shown = await state(trainer)
    assert shown["reason"].startswith(f"{NOT_VALID}{code}: ")
    assert shown["phase"] == "failed"
    assert shown["rounds"][0]["phase"] != "published"


async def test_a_result_that_another_party_signed_is_never_used(
    trainer: Service, clock: HandMovedClock, federation: Federation
) -> None:
    federation.signer = "compute-0"
    await running(trainer, clock)
    assert (await state(trainer))["reason"].startswith(NOT_VALID + "wrong-signer")

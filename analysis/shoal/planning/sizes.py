"""Measures the bytes that each protocol sends, on sample documents of realistic size.

HTTP heads and TLS do not count, nor do manifest and roster, which both protocols need.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from pyroaring import BitMap

from shoal.planning.study import Study
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.crowds.draws import (
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    LogEntry,
    Submission,
    SubmissionReceipt,
)
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.jobs.job_request import PrivacyDemand
from shoal_protocol.jobs.membership import Join
from shoal_protocol.privacy.accounting import price
from shoal_protocol.privacy.job_costs import noise_for
from shoal_protocol.queries import Query
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.received import envelope_size
from shoal_protocol.studies import Task
from shoal_protocol.trust.policy import LARGEST_POPULATION
from shoal_protocol.wire.documents import Document, Signed
from shoal_protocol.wire.encoding import encode_clients

_DIGEST: Final = "0" * 64
_SIGNATURE: Final = "0" * 128
_WHEN: Final = datetime(2026, 1, 1, tzinfo=UTC)
_NAME: Final = "trainer"
_HOLDER: Final = 1_000_000  # an index of seven digits


def of_a_round(study: Study, query: Query, *, population: int) -> tuple[int, int]:
    """Return what a data holder sends and receives in a round: its envelopes; the round's spec."""
    envelopes = sum(
        envelope_size(
            study.sharing.kind_for(holder=0, node=node, nodes=study.nodes), query.dimension
        )
        for node in study.sharing.members(holder=0, nodes=study.nodes)
    )
    population = min(population, LARGEST_POPULATION)
    dropouts, colluders = study.tolerated
    terms = {"population": population, "dropouts": dropouts, "colluders": colluders}
    sensitivity = query.design(study.cap.mechanism).sensitivity
    noise = noise_for(study.cap.mechanism, sensitivity=sensitivity, cost=study.cap.whole, **terms)
    cost = price(noise, sensitivity=sensitivity, **terms)
    every = max(1, min(study.clients, LARGEST_POPULATION) // population)
    spec = RoundSpec(
        manifest=_DIGEST,
        job=_DIGEST,
        number=0,
        query=query,
        dimension=query.dimension,
        modulus_bits=study.sharing.modulus_bits,
        sharing=study.sharing,
        noise=noise,
        population=encode_clients(BitMap(range(0, population * every, every))),
        population_size=population,
        dropouts=dropouts,
        colluders=colluders,
        minimum_cohort=population - dropouts,
        smallest_answer=1,
        compute_nodes=tuple(f"compute-{node}" for node in range(study.nodes)),
        opened_at=_WHEN,
        deadline=_WHEN + timedelta(hours=1),
        proceed_at=_WHEN + timedelta(hours=2),
        give_up_at=_WHEN + timedelta(hours=2),
        mu=cost.mu,
        epsilon=cost.stated_epsilon,
    )
    return envelopes, _size(spec)


def of_joining(study: Study, task: Task) -> tuple[int, int]:
    """Return what a data holder sends and receives to join: its join; the job's request."""
    dropouts, colluders = study.tolerated
    population = min(study.clients, LARGEST_POPULATION)
    request = StudyRequest(
        manifest=_DIGEST,
        nonce="0" * 32,
        analyst="analyst",
        task=task,
        terms=task.terms(least=population, most=population),
        privacy=PrivacyDemand(
            epsilon=study.epsilon, delta=study.delta, dropouts=dropouts, colluders=colluders
        ),
        sharing=study.sharing,
        minimum_population=population,
        maximum_population=population,
        join_deadline=_WHEN,
        round_seconds=3600,
        grace_seconds=3600,
    )
    join = Join(manifest=_DIGEST, job=_DIGEST, holder=_HOLDER)
    return _size(join, "holder"), _size(request)


def of_crowd_job(task: CrowdTask) -> int:
    """Return what one client receives once: a crowd job's request and opening."""
    request = CrowdJobRequest(
        manifest=_DIGEST,
        nonce="0" * 32,
        analyst="analyst",
        task=task,
        contributions=1_000_000,
        contributions_per_client=1,
        contributions_per_record=1,
        session_seconds=3600,
        closes_at=_WHEN,
    )
    opening = CrowdOpening(
        manifest=_DIGEST,
        job=_DIGEST,
        commitment=_DIGEST,
        instances=((0,) * task.dimension,) * task.instances,
        opened_at=_WHEN,
    )
    return _size(request) + _size(opening)


def of_contribution(task: CrowdTask) -> tuple[int, int]:
    """Return what one contribution sends and receives: nonce, submission; draw, receipt."""
    draw, submission, receipt = _exchange(task)
    nonce = len('{"nonce":""}') + len(_DIGEST)
    return nonce + _size(submission, "client"), _size(draw) + _size(receipt)


def _exchange(task: CrowdTask) -> tuple[Draw, Submission, SubmissionReceipt]:
    weights = _weights(task)
    draw = Draw(
        manifest=_DIGEST,
        job=_DIGEST,
        nonce=_DIGEST,
        instance=task.instances - 1,
        revision=1000,
        weights=weights,
        expires_at=_WHEN,
    )
    submission = Submission(
        manifest=_DIGEST,
        client=_HOLDER,
        draw=Signed(draw, _NAME, _SIGNATURE),
        weights=weights,
    )
    entry = LogEntry(
        job=_DIGEST,
        instance=task.instances - 1,
        revision=1000,
        previous="1" * 64,
        nonce=_DIGEST,
        weights=_DIGEST,
    )
    return draw, submission, SubmissionReceipt(manifest=_DIGEST, entry=entry)


def _weights(task: CrowdTask) -> tuple[int, ...]:
    """Return weights as long in digits as one half, negative, on the lattice."""
    return (-int(task.grid / 2.0),) * task.dimension


def _size(document: Document, signer: str = _NAME) -> int:
    return len(Signed(document, signer, _SIGNATURE).encode())

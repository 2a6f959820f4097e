"""Decides which jobs can run, when their rounds open and why jobs end; pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final

import numpy as np
from pyroaring import BitMap

from shoal_protocol.certificates.study_request import StudyRequest, check_study
from shoal_protocol.jobs.job_request import job_refusal
from shoal_protocol.privacy.balances import Balances
from shoal_protocol.rounds.asked_holders import AskedHolders
from shoal_protocol.rounds.batches import largest_part
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.limits import passed_message
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.errors import ProtocolError, RefusedJob
from shoal_protocol.wire.service_errors import BudgetExceeded
from shoal_trainer.dry_run import dry_run_specs, spread

DRY_RUN_SIZES: Final = 8  # between minimum_population and all who may join


class WrongJob(ProtocolError):
    """A join that names another job than the address it was sent to."""

    code = "wrong-job"
    title = "The join names another job"
    status = 409
    remedy = "Send it to the address of its own job."


class DocumentsDeleted(ProtocolError):
    """A document of a job whose documents are kept no longer."""

    code = "documents-deleted"
    title = "The job's documents are no longer kept"
    status = 410
    remedy = "Ask its analyst for the certificate: the consortium's `retention_days` are over."


class JobFailed(ProtocolError):
    """A job that has no posterior and never will."""

    code = "job-failed"
    title = "The job failed and has no posterior"
    status = 410
    remedy = "Mend what the detail names and submit a new job."


class JobFinished(ProtocolError):
    """A job that has no such round and never will."""

    code = "job-finished"
    title = "The job is finished and has no such round"
    status = 410
    remedy = "Ask for the job's result."


class CertificateIncomplete(ProtocolError):
    """A finished job whose certificate is not complete yet."""

    code = "certificate-incomplete"
    title = "The job is finished, and its certificate not complete yet"
    status = 409
    remedy = "Ask again later: the trainer goes on asking the Compute nodes that are missing."


def check_request(request: StudyRequest, consortium: Consortium, *, now: datetime) -> None:
    """Refuse a job that can never run; its signature was checked.

    The learner's rounds are made for several populations, the smallest and the largest included,
    so that noise, grid and modulus are known to fit before anybody joins. Later rounds get the sums
    that records spread evenly over their bounds would give.

    Raises:
        RefusedJob: the detail says what to change.
    """
    if request.join_deadline <= now:
        raise RefusedJob(passed_message("join_deadline", request.join_deadline, now))
    check_study(request, consortium.manifest)
    if reason := job_refusal(request, consortium.manifest.policy, now=now):
        raise RefusedJob(reason)
    clients = _who_may_join(request, consortium)
    largest = min(request.maximum_population, len(clients))
    for size in dry_run_sizes(request.minimum_population, largest):
        try:
            dry_run_specs(request, consortium, spread(clients, size), now=now)
        except ValueError as error:
            raise RefusedJob(f"with {size} clients: {error}") from error


def _who_may_join(request: StudyRequest, consortium: Consortium) -> BitMap:
    """Return the clients of the data holders that fit into the population, ascending.

    Raises:
        RefusedJob: of the largest of these a round could ask more than `colluders` clients,
            whoever of them joins.
    """
    roster, holders = consortium.roster, consortium.manifest.policy.colluding_holders
    everybody = AskedHolders.of(roster.enrolled_set, roster)
    fitting = np.asarray(everybody.holders.to_array())[
        everybody.counts <= request.maximum_population
    ]
    asked = AskedHolders.of(everybody.slots_of(BitMap(fitting)), roster)
    clients = asked.slots_of(asked.holders)
    if len(clients) < request.minimum_population:
        raise RefusedJob("fewer clients are enrolled than minimum_population")
    least = asked.largest(holders)
    if request.terms.batch is not None:
        least = largest_part(
            asked.counts.tolist(),
            holders=holders,
            size=request.terms.batch,
            population=request.minimum_population,
        )
    if request.privacy.colluders < least:
        raise RefusedJob(
            f"colluders must be at least {least}: so many clients the {holders} largest data "
            "holders may have in a round, and the consortium's manifest wants rounds to be "
            "private against them"
        )
    return clients


def dry_run_sizes(least: int, most: int) -> list[int]:
    """Return the sizes of a population that a dry run tries, evenly by their ratio.

    A round may fail at sizes in between alone: shares of the noise are rounded.
    """
    step = (most / least) ** (1 / (DRY_RUN_SIZES - 1))
    return sorted({round(least * step**each) for each in range(DRY_RUN_SIZES)})


def check_affordable(request: StudyRequest, consortium: Consortium, committed: Balances) -> None:
    """Refuse a job for which too few clients have budget left.

    Raises:
        BudgetExceeded
    """
    enrolled, cap = consortium.roster.enrolled_set, consortium.manifest.policy.cap
    able = len(committed.affording(enrolled, request.privacy.cost, cap))
    if able < request.minimum_population:
        raise BudgetExceeded(
            f"{able} clients have budget left for the job, {request.minimum_population} are needed"
        )


def may_open(spec: RoundSpec, missing: AbstractSet[str], *, now: datetime) -> bool:
    """Tell whether clients may be asked while these services have not accepted the round.

    A quarter of the clients' time is given to all of them; afterwards the Compute nodes that the
    sharing scheme can spare may be missing, lest a node that is lost for good keep rounds from
    beginning. The aggregator may not.
    """
    if now < spec.opened_at + (spec.deadline - spec.opened_at) / 4:
        return not missing
    spare = len(spec.compute_nodes) - spec.threshold
    return missing <= set(spec.compute_nodes) and len(missing) <= spare


def problem_text(problem: object) -> str:
    """Say why a party refused, from the problem document that it sent; trust nothing in it."""
    code, detail = "without a reason", ""
    if isinstance(problem, Mapping):
        kind, said = str(problem.get("type", "")), str(problem.get("detail", ""))
        if kind.startswith("urn:shoal:problem:"):
            code = _plain(kind.removeprefix("urn:shoal:problem:"), 60)
        detail = _plain(said, 200)
    return code + (f" ({detail})" if detail else "")


def _plain(text: str, length: int) -> str:
    return "".join(letter for letter in text[:length] if letter.isascii() and letter.isprintable())

"""Decides which jobs can run, when their rounds open and why jobs end; pure.

Specs are made as if records were spread evenly over their bounds, so that a job that can never run
is refused before anybody joins. No data is read.
"""

from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Context
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from shoal_kit.installed_models import ModelNotUsable, model_for
from shoal_protocol.jobs.job_request import check_round_of_job, job_refusal
from shoal_protocol.privacy.accounting import NOTHING, Balances, Cost, compose
from shoal_protocol.queries import GradientSum, Query
from shoal_protocol.rounds.batches import largest_part, make_spec, participations
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.rounds.round_spec import AskedHolders, RoundSpec
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.policy import passed_message
from shoal_protocol.wire.errors import ProtocolError, RefusedJob, RefusedSpec
from shoal_protocol.wire.service_errors import BudgetExceeded
from shoal_studies.contract import NoReliablePosterior, RequestedRound
from shoal_studies.registry import learner_for
from shoal_studies.study_request import (
    StudyRequest,
    check_study,
)

_HALVINGS: Final = 14  # of a price, to find the largest that can be paid


def next_spec(
    request: StudyRequest,
    consortium: Consortium,
    clients: BitMap,
    *,
    number: int,
    wanted: RequestedRound,
    spent: Cost,
    now: datetime,
) -> RoundSpec:
    """Return the job's next round, which asks `clients`; those before cost one of them `spent`.

    Shares of the job's mu^2, or of its pure epsilon, make the rounds compose to the job's price and
    not more.

    Raises:
        ValueError: the round cannot be made, is not of the job's terms, or would exceed the job's
            price or its time.
    """
    if wanted.batch != request.task.batch:
        raise ValueError("the method asks for another batch than its task has")
    deadline = now + timedelta(seconds=request.round_seconds)
    spec = make_spec(
        manifest=consortium,
        job=request.digest,
        number=number,
        query=wanted.query,
        mechanism=request.privacy.mechanism,
        cost=request.privacy.cap.part(wanted.share),
        population=clients,
        dropouts=request.privacy.dropouts,
        colluders=request.privacy.colluders,
        opened_at=now,
        deadline=deadline,
        give_up_at=deadline + timedelta(seconds=request.grace_seconds),
        sharing=request.sharing,
    )
    if spec.give_up_at > request.ends_by:
        raise ValueError("the job's time does not suffice for another round")
    if not request.privacy.cap.allows(compose([spent, spec.cost])):
        raise ValueError("the rounds would cost more than the job's epsilon and delta")
    try:
        check_round_of_job(spec, request, spent=spent)
    except RefusedSpec as error:
        raise ValueError(str(error)) from error
    return spec


_RECORDS: Final = 64


def dry_run_specs(
    request: StudyRequest, consortium: Consortium, population: BitMap, *, now: datetime
) -> list[RoundSpec]:
    """Return the specs of a job's rounds if these clients join and nobody leaves.

    Rounds alike to the one before are left out, but for the last that a client is asked in.

    Raises:
        ValueError: one of them cannot be made, or would exceed the job's price.
    """
    learner, size = learner_for(request.task, find_model=model_for), len(population)
    most = participations(request.terms.rounds, request.terms.batch, size)
    sums: list[ReleasedSum] = []
    specs: list[RoundSpec] = []
    spent = NOTHING
    while len(sums) < request.task.rounds:
        wanted = learner.next(size, sums)
        if not isinstance(wanted, RequestedRound):
            break
        is_alike = bool(sums) and wanted.query.name == sums[-1].query.name
        number = request.task.rounds - 1 if is_alike else len(sums)
        if is_alike:  # a client was asked as often as can be before
            spent = compose([NOTHING, *[specs[-1].cost] * (most - 1)])
        spec = next_spec(
            request,
            consortium,
            spread(population, wanted.batch or size),
            number=number,
            wanted=wanted,
            spent=spent,
            now=now,
        )
        specs.append(spec)
        if is_alike:
            break
        spent = compose([spent, spec.cost])
        sums.append(_even(spec))
    return specs


def spread(population: BitMap, size: int) -> BitMap:
    """Return so many of a population, evenly, so that each data holder has its part of them."""
    clients = np.asarray(population.to_array())
    return BitMap(clients[np.linspace(0, len(clients) - 1, size).astype(np.intp)])


def _even(spec: RoundSpec) -> ReleasedSum:
    """Return the sum of a round whose cohort is complete."""
    values = np.rint(_mean(spec.query) * spec.population_size).astype(np.int64)
    return ReleasedSum.of_values(spec, values, spec.population_size)


def _mean(query: Query) -> NDArray[np.float64]:
    """Return what one client contributes on average, shape (dimension,): zeros of gradients."""
    if isinstance(query, GradientSum):
        return np.zeros(query.dimension)
    columns = tuple(each.model_copy(update={"term": None}) for each in query.columns)
    query = query.model_copy(update={"columns": columns})  # what a term makes is spread evenly
    # Richtmyer's sequence, and hardly a row twice
    steps = np.sqrt(np.arange(2, len(query.column_names) + 2))
    places = np.modf(np.outer(np.arange(1, _RECORDS + 1), steps))[0]
    centres = np.array([column.centre for column in columns])
    scales = np.array([column.scale for column in columns])
    records = centres + scales * (2.0 * places - 1.0)
    one = np.ones((query.records_per_client, 1))
    mean: NDArray[np.float64] = np.mean([query.encode(one * each) for each in records], axis=0)
    return mean


_NO_ANSWER: Final = "the method could not compute an answer from the task and the sums so far"


def in_own_words(error: Exception) -> str:
    """Return what a method says of why it failed; a library's own words may quote numbers."""
    is_own = type(error) is ValueError or isinstance(error, NoReliablePosterior | ModelNotUsable)
    return str(error) if is_own else _NO_ANSWER


DRY_RUN_SIZES: Final = 8  # between minimum_population and all who may join


class DocumentsDeleted(ProtocolError):
    """A document of a job whose documents are kept no longer."""

    title = "The job's documents are no longer kept"
    status = 410
    remedy = "Ask its analyst for the certificate: the consortium's `retention_days` are over."


class JobFailed(ProtocolError):
    """A job that has no posterior and never will."""

    title = "The job failed and has no posterior"
    status = 410
    remedy = "Mend what the detail names and submit a new job."


class JobFinished(ProtocolError):
    """A job that has no such round and never will."""

    title = "The job is finished and has no such round"
    status = 410
    remedy = "Ask for the job's result."


class CertificateIncomplete(ProtocolError):
    """A finished job whose certificate is not complete yet."""

    title = "The job is finished, and its certificate not complete yet"
    status = 409
    remedy = "Ask again later: the trainer goes on asking the Compute nodes that are missing."


def check_deadline(request: StudyRequest, now: datetime) -> None:
    """Refuse a job that nobody can join any more.

    Raises:
        RefusedJob
    """
    if request.join_deadline <= now:
        raise RefusedJob(passed_message("join_deadline", request.join_deadline, now))


def check_request(request: StudyRequest, consortium: Consortium, *, now: datetime) -> None:
    """Refuse a job that can never run; its signature was checked.

    The learner's rounds are made for several populations, the smallest and the largest included,
    so that noise, grid and modulus are known to fit before anybody joins. Later rounds get the sums
    that records spread evenly over their bounds would give.

    Raises:
        RefusedJob: the detail says what to change.
    """
    check_deadline(request, now)
    check_study(request, consortium.manifest)
    if reason := job_refusal(request, consortium.manifest.policy, now=now):
        raise RefusedJob(reason)
    clients = _who_may_join(request, consortium)
    least, most = request.minimum_population, min(request.maximum_population, len(clients))
    # evenly by their ratio; a round may fail at sizes in between alone: shares of noise are rounded
    step = (most / least) ** (1 / (DRY_RUN_SIZES - 1))
    for size in sorted({round(least * step**each) for each in range(DRY_RUN_SIZES)}):
        try:
            dry_run_specs(request, consortium, spread(clients, size), now=now)
        except (ValueError, ArithmeticError, LookupError) as error:
            raise RefusedJob(f"with {size} clients: {in_own_words(error)}") from error


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


def check_affordable(request: StudyRequest, consortium: Consortium, committed: Balances) -> None:
    """Refuse a job for which too few clients have budget left, and say which epsilon would do.

    Raises:
        BudgetExceeded
    """
    enrolled, cap = consortium.roster.enrolled_set, consortium.manifest.policy.cap
    needed = request.minimum_population

    def able(epsilon: float) -> int:
        demand = request.privacy.model_copy(update={"epsilon": epsilon})
        return len(committed.affording(enrolled, demand.cost, cap))

    count = able(request.privacy.epsilon)
    if count >= needed:
        return
    affordable, dear = 0.0, request.privacy.epsilon
    for _ in range(_HALVINGS):
        middle = (affordable + dear) / 2.0
        if able(middle) >= needed:
            affordable = middle
        else:
            dear = middle
    shown = Context(prec=3, rounding=ROUND_FLOOR).create_decimal(affordable)
    advice = f"epsilon = {shown} at the same delta" if affordable else "fewer clients"
    raise BudgetExceeded(
        f"{count} clients have budget left for the job, {needed} are needed: ask for {advice}"
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

"""Describes jobs to analysts: their progress, posteriors and checks, and lists of them."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from shoal.jobs.job_check import ASSUMED, BEYOND, EpsilonLeft, ExpectedError, JobCheckReport
from shoal.jobs.job_states import JobsPage, ListedCrowd
from shoal_agent.console.sentences import Described, ahead, price, to_go
from shoal_command.certificate import span
from shoal_protocol.jobs.job_state import JobState
from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.trust.dictionary import Variable
from shoal_protocol.wire.phases import TAKES_SHARES, JobPhase
from shoal_studies.posterior_report import PosteriorReport

FEW_ROUNDS: Final = 4  # are shown one by one
MOST_NUMBERS: Final = 40
"""How many numbers of a posterior are shown of what a simulation says; --json has all."""
OPEN_PHASES: Final = (JobPhase.JOINING, JobPhase.RUNNING)


def progress(state: JobState, *, rounds: int, join_deadline: datetime, now: datetime) -> Described:
    """Describe a job's state: phase, joined clients, rounds with the time left to each deadline.

    `rounds` is how many the job has at most; of many, the newest are described.
    """
    until = ahead(join_deadline, now=now)
    is_joining = state.phase is JobPhase.JOINING
    facts = {
        "Job": state.job,
        "Phase": state.phase.value,
        "Joined": f"{state.joined:,} clients",
        "Left": f"{state.left:,} clients" if state.left else None,
        "Population": None
        if state.population_size is None
        else f"{state.population_size:,} clients",
        "Joining open until": until if is_joining else None,
        "Approval": state.approvals.in_words(f"until {until}") if is_joining else None,
        "Job ends by": ahead(state.ends_by, now=now)
        if state.ends_by is not None and state.phase in OPEN_PHASES
        else None,
        "Progress": state.rounds_in_words(rounds),
        "Reason": state.reason,
    }
    return {
        **{name: each for name, each in facts.items() if each},
        "Rounds": [
            {
                "round": str(each.number),
                "phase": each.phase.value + (f": {each.failure}" if each.failure else ""),
                "uploads close": to_go(each.deadline, now=now)
                if each.deadline is not None and each.phase in TAKES_SHARES
                else "closed",
                "asked": "" if each.asked is None else f"{each.asked:,}",
                "in the cohort": "" if each.cohort is None else f"{each.cohort:,}",
                "id": each.round,
            }
            for each in state.rounds[-FEW_ROUNDS:]
        ],
    }


def posterior(report: PosteriorReport) -> Described:
    """Describe a posterior: each number with its interval, then rounds, sharing, cohorts, price."""
    found = report.summary()
    asked = span([report.participations.least, report.participations.most])
    rounds = {"Rounds": f"{len(report.rounds):,} published; each client was asked in {asked}"}
    if report.lost_rounds:
        rounds["Lost rounds"] = f"{len(report.lost_rounds):,}, says the trainer"
    return {
        found.title: [dict(zip(found.headings, row, strict=True)) for row in found.rows],
        **dict(found.facts),
        **rounds,
        "Sharing": _sharing(report),
    }


def _sharing(report: PosteriorReport) -> str:
    """Say which Compute nodes were needed and, where some were lost, how many sums there are."""
    committee = report.sharing.committee
    if report.sharing.scheme == "additive":
        among = "" if committee is None else f", each data holder shares with {committee}"
        return f"additive: all Compute nodes were needed{among}"
    among = "" if committee is None else f" of each data holder's {committee}"
    said = f"threshold: any {report.sharing.threshold} Compute nodes{among} were enough"
    counts = list(zip(report.partial_sums, report.compute_nodes, strict=True))
    if all(sums == nodes for sums, nodes in counts):
        return said
    rests = ", ".join(f"{sums} of {nodes}" for sums, nodes in sorted(set(counts)))
    return f"{said}; results rest on the sums of {rests}"


def left_in_words(left: EpsilonLeft) -> str:
    """Say what one more job may cost."""
    return f"ε = {left.gaussian:.3g} by Gaussian noise, {left.pure:.3g} by Laplace noise"


def listed(page: JobsPage, crowds: Sequence[ListedCrowd]) -> Described:
    """Describe the trainer's jobs, the newest first, crowd jobs, and what clients have left."""
    jobs = [
        {
            "submitted, UTC": f"{each.submitted_at:%Y-%m-%d %H:%M}",
            "job": each.job,
            "analyst": each.analyst,
            "what": f"{each.task.replace('_', ' ')} of {', '.join(each.columns)}"
            + (f": {each.purpose}" if each.purpose else ""),
            "price": price(Cap(epsilon=each.epsilon, delta=each.delta)),
            "state": _joined(
                each.phase + (f": {each.reason}" if each.reason else ""),
                each.approvals.in_words("until joining closes"),
            ),
        }
        for each in page.jobs
    ]
    budgets = [
        {"clients": f"{each.clients:,}", "each has left": left_in_words(each.left)}
        for each in page.budgets
    ]
    return {
        "Jobs": jobs,
        "Crowd jobs": [
            {
                "closes, UTC": f"{each.closes_at:%Y-%m-%d %H:%M}",
                "crowd job": each.job,
                "analyst": each.analyst,
                "family": each.family,
                "price": f"ε = {each.epsilon:g} a contribution",
                "state": _joined(
                    f"{each.phase}: {each.contributions:,} of {each.wanted:,} contributions",
                    each.waits_in_words,
                ),
            }
            for each in crowds
        ],
        "Budgets": budgets,
    }


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def simulated(
    checked: JobCheckReport, variables: Iterable[Variable]
) -> tuple[ExpectedError, ...] | str:
    """Return what errors to expect, by a simulation, or why there was none."""
    try:
        return checked.expected_errors(variables)
    except ValueError as error:
        return f"The job was not simulated: {error}."


def check_facts(checked: JobCheckReport, errors: Sequence[ExpectedError] | str) -> dict[str, Any]:
    """Return what is known of a job before it is submitted, for JSON."""
    privacy = checked.request.privacy
    return {
        "would_run": checked.would_run,
        "advice": checked.advice,
        "price": {"epsilon": privacy.epsilon, "delta": privacy.delta, "mu": privacy.cost.mu},
        "left": checked.left.model_dump(),
        "rounds": checked.request.task.rounds,
        "answering": checked.answering,
        "services": checked.services,
        "holders": [asdict(each) for each in checked.holders],
        "expected_errors": errors
        if isinstance(errors, str)
        else [asdict(each) for each in errors] or None,
    }


def check(checked: JobCheckReport, errors: Sequence[ExpectedError] | str) -> Described:
    """Describe what is known of a job before it is submitted, with a row for each data holder.

    And one for each number of the posterior, if the job was simulated.
    """
    request = checked.request
    found: Described = {
        "Price": f"{price(request.privacy.cap)} for each client who joins",
        "Left for a job": left_in_words(checked.left),
        "Rounds": f"{request.task.rounds:,}",
        "Would answer": f"{checked.answering:,} clients, of {request.minimum_population:,} that "
        "are needed",
        "Reached just now": checked.reached,
        "Not known": BEYOND,
        "Data holders": [
            {
                "holder": str(each.holder),
                "clients": f"{each.slots:,}",
                "can pay": f"{each.able:,}",
                "would answer": "yes" if each.reason is None else f"no: {each.reason}",
            }
            for each in checked.holders
        ],
    }
    if isinstance(errors, str):
        return found | {"Errors to expect": errors}
    if errors:
        more = f" {len(errors):,} numbers in all." if len(errors) > MOST_NUMBERS else ""
        found["Where errors come from"] = ASSUMED + more
        found["Errors to expect"] = [
            {
                "of": each.name,
                "sd": f"{each.sd:.3g}",
                "95 % interval, to each side": f"{each.reach:.3g}",
                "in one job of ten": f"{each.large_reach:.3g} or more",
            }
            for each in errors[:MOST_NUMBERS]
        ]
    return found

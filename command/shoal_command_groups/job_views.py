"""Shows a job's progress and its posterior on a terminal."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, Final

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from shoal.jobs.expected_error import ASSUMED, ExpectedError
from shoal.jobs.job_check import BEYOND, JobCheckReport
from shoal.jobs.job_states import JobsPage, JobState, ListedCrowd
from shoal_command.rendering import plain
from shoal_command.round_groups import FEW_ROUNDS, span
from shoal_protocol.certificates.posterior_report import PosteriorReport
from shoal_protocol.wire.phases import JobPhase, Phase

MOST_NUMBERS: Final = 40
"""How many numbers of a posterior are shown of what a simulation says; --json has all."""
_WIDE: Final = 140  # columns of a terminal that have room for an id of 64 digits beside others
_TAKING_SHARES = frozenset({Phase.ANNOUNCED.value, Phase.COLLECTING.value})
_COLOURS = {
    "finished": "green",
    "published": "green",
    "failed": "red",
    "withdrawn": "red",
    "abandoned": "red",
}


def progress(
    state: JobState, *, rounds: int, join_deadline: datetime, now: datetime
) -> RenderableType:
    """Show a job's state: phase, joined clients, rounds with the time left to each deadline.

    `rounds` is how many the job has at most; of many, the newest are shown.
    """
    head = Table.grid(padding=(0, 2))
    head.add_row("Job", plain(state.job))
    head.add_row("Phase", _phase(state.phase))
    head.add_row("Joined", f"{state.joined:,} clients")
    if state.left:
        head.add_row("Left", f"{state.left:,} clients")
    if state.population_size is not None:
        head.add_row("Population", f"{state.population_size:,} clients")
    if state.phase is JobPhase.JOINING:
        head.add_row("Joining open until", _moment(join_deadline, now))
        if said := state.approvals.in_words(f"until {_moment(join_deadline, now)}"):
            head.add_row("Approval", said)
    if state.ends_by is not None and state.phase in (JobPhase.JOINING, JobPhase.RUNNING):
        head.add_row("Over by", _moment(state.ends_by, now))
    head.add_row("Rounds", state.rounds_in_words(rounds).replace(" rounds", ""))
    newest = state.rounds[-FEW_ROUNDS:]
    for each in newest:
        head.add_row(f"Round {each.number}", plain(each.round))
    if state.reason is not None:
        head.add_row("Reason", plain(state.reason))
    if not newest:
        return head
    table = Table("round", "phase", "uploads close", "asked", "in the cohort")
    for each in newest:
        closes = "closed"
        if each.deadline is not None and each.phase in _TAKING_SHARES:
            closes = until(each.deadline, now)
        counts = ["" if size is None else f"{size:,}" for size in (each.asked, each.cohort)]
        table.add_row(str(each.number), _phase(each.phase), closes, *counts)
    return Group(head, table)


def one_line(state: JobState, *, rounds: int, join_deadline: datetime, now: datetime) -> str:
    """Say a job's state in one line, for output that is no terminal; `rounds` as in `progress`."""
    facts = [f"{state.phase}: {state.joined:,} joined"]
    if state.phase is JobPhase.JOINING:
        facts.append(f"joining is open until {_moment(join_deadline, now)}")
        facts.extend(filter(None, [state.approvals.in_words("until then")]))
    if state.phase is JobPhase.RUNNING and state.ends_by is not None:
        facts.append(f"over by {_moment(state.ends_by, now)}")
    if state.rounds:
        newest = state.rounds[-1]
        facts.append(f"{state.rounds_in_words(rounds)}; round {newest.number} {newest.phase}")
    return "; ".join(facts)


def posterior(report: PosteriorReport) -> RenderableType:
    """Show a posterior: each number with its interval, then rounds, sharing, cohorts and price."""
    found = report.summary()
    table = Table(title=plain(found.title))
    for heading in found.headings:
        # Names and numbers are folded where they do not fit: one that is cut off tells nothing.
        justify: JustifyMethod = "right" if table.columns else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    for row in found.rows:
        table.add_row(*map(plain, row))
    if len(report.rounds) > FEW_ROUNDS:
        asked = span([report.participations.least, report.participations.most])
        rounds = [("Rounds", f"{len(report.rounds):,} published; each client was asked in {asked}")]
    else:
        rounds = [(f"Round {number}", each) for number, each in enumerate(report.rounds)]
    if report.lost_rounds:
        rounds.append(("Lost rounds", f"{len(report.lost_rounds):,}, says the trainer"))
    facts = Table.grid(padding=(0, 2))
    for what, fact in (*found.facts, *rounds, ("Sharing", _sharing(report))):
        facts.add_row(what, plain(fact))
    return Group(table, facts)


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
    told = counts if len(counts) <= FEW_ROUNDS else sorted(set(counts))
    rests = ", ".join(f"{sums} of {nodes}" for sums, nodes in told)
    return f"{said}; results rest on the sums of {rests}"


def _phase(phase: str) -> Text:
    return Text(plain(phase).plain, style=_COLOURS.get(phase, "cyan"))


def _moment(deadline: datetime, now: datetime) -> str:
    """Say when something ends at the latest, and how long that is from now."""
    return f"{deadline:%Y-%m-%d %H:%M:%S} UTC ({until(deadline, now)})"


def until(deadline: datetime, now: datetime) -> str:
    """Say how long it is until a deadline."""
    left = deadline - now
    if left <= timedelta(0):
        return "closed"
    seconds = int(left.total_seconds())
    if seconds >= 86_400:
        return f"in {seconds // 86_400} d {seconds % 86_400 // 3600} h"
    if seconds >= 3600:
        return f"in {seconds // 3600} h {seconds % 3600 // 60} min"
    return f"in {seconds // 60} min {seconds % 60} s"


def listed(page: JobsPage, crowds: Sequence[ListedCrowd], *, columns: int) -> RenderableType:
    """Show the trainer's jobs, the newest first, crowd jobs, and what clients have left.

    Ids are never cut: on a terminal of few `columns` they are folded in two.
    """
    table, of_crowds = Table("submitted, UTC"), Table("closes, UTC")
    for made, named in ((table, "job"), (of_crowds, "crowd job")):
        made.add_column(named, overflow="fold", min_width=64 if columns >= _WIDE else 32)
    for heading in ("analyst", "what", "epsilon", "state"):
        table.add_column(heading, overflow="fold")
    for each in page.jobs:
        what = f"{each.task.replace('_', ' ')} of {', '.join(each.columns)}"
        if each.purpose:
            what += f": {each.purpose}"
        price = f"{each.epsilon:g}" + (f" at delta {each.delta:g}" if each.delta else "")
        said = each.phase + (f": {each.reason}" if each.reason else "")
        if waits := each.approvals.in_words("until joining closes"):
            said += f"; {waits}"
        when = f"{each.submitted_at:%Y-%m-%d %H:%M}"
        table.add_row(*map(plain, (when, each.job, each.analyst, what, price, said)))
    by_gaussian = "epsilon left, Gaussian noise, at the policy's delta"
    left = Table("clients", by_gaussian, "epsilon left, Laplace noise")
    for budget in page.budgets:
        left.add_row(
            f"{budget.clients:,}", f"{budget.left.gaussian:.3g}", f"{budget.left.pure:.3g}"
        )
    if not crowds:
        return Group(table, left)
    for heading in ("analyst", "family", "epsilon", "state"):
        of_crowds.add_column(heading, overflow="fold")
    for crowd in crowds:
        when, price = f"{crowd.closes_at:%Y-%m-%d %H:%M}", f"{crowd.epsilon:g} a contribution"
        said = f"{crowd.phase}: {crowd.contributions:,} of {crowd.wanted:,} contributions"
        if crowd.waits_in_words:
            said += f"; {crowd.waits_in_words}"
        row = (when, crowd.job, crowd.analyst, crowd.family, price, said)
        of_crowds.add_row(*map(plain, row))
    return Group(table, of_crowds, left)


def check_facts(checked: JobCheckReport, errors: Sequence[ExpectedError] | None) -> dict[str, Any]:
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
        "expected_errors": None if errors is None else [asdict(each) for each in errors],
    }


def check(checked: JobCheckReport, errors: Sequence[ExpectedError] | None) -> RenderableType:
    """Show what is known of a job before it is submitted, with a line for each data holder.

    And one for each number of the posterior, if the job was simulated.
    """
    request, left = checked.request, checked.left
    head = Table.grid(padding=(0, 2))
    head.add_row("Price", plain(str(request.privacy.cap)))
    head.add_row(
        "Left for a job",
        f"epsilon {left.gaussian:.3g} at the policy's delta by Gaussian noise, "
        f"{left.pure:.3g} by Laplace noise",
    )
    head.add_row("Rounds", f"{request.task.rounds:,}")
    head.add_row(
        "Would answer",
        f"{checked.answering:,} clients, of {request.minimum_population:,} that are needed",
    )
    head.add_row("Reached just now", plain(checked.reached))
    table = Table("holder", "clients", "can pay", "would answer")
    for each in checked.holders:
        verdict = plain("yes" if each.reason is None else f"no: {each.reason}")
        table.add_row(str(each.holder), f"{each.slots:,}", f"{each.able:,}", verdict)
    if errors is None:
        return Group(head, table, BEYOND)
    expected = Table("expected of", "sd", "95 % interval, to each side")
    for error in errors[:MOST_NUMBERS]:
        expected.add_row(plain(error.name), f"{error.sd:.3g}", f"{error.reach:.3g}")
    more = f" {len(errors):,} numbers in all." if len(errors) > MOST_NUMBERS else ""
    return Group(head, table, BEYOND, expected, plain(ASSUMED + more))

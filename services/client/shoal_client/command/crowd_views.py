"""How a crowd job and its model look on a terminal; it asks nobody and reads no clock."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Column, Table

from shoal_client.command.job_views import until
from shoal_client.command.terminal import plain
from shoal_client.crowds.listing import CrowdOverview
from shoal_client.crowds.states import CrowdState
from shoal_protocol.draw_and_discard.documents import CrowdClosing, CrowdJobRequest
from shoal_protocol.draw_and_discard.model import CrowdModel
from shoal_protocol.phases import CrowdPhase

NOBODY: Final = (
    "nobody contributed: agents refuse a job whose family or columns their policy or records do "
    "not have, and end one at once for which no client or record has enough epsilon left; they say "
    "which in their logs and in `shoal agent status`"
)


def listed(crowds: Sequence[CrowdOverview]) -> Table:
    """Show jobs, one in a line: what each learns for whom, and where it stands."""
    table = Table(
        Column("job", overflow="fold"),
        "phase",
        "family",
        "analyst",
        "contributions",
        "closes (UTC)",
    )
    for each in crowds:
        family, analyst = _asked_by(each)
        state = each.state
        table.add_row(
            plain(each.job),
            each.phase,
            plain(family),
            plain(analyst),
            f"{state.contributions:,} of {state.wanted:,}",
            f"{state.closes_at:%Y-%m-%d %H:%M:%S}",
        )
    return table


def as_json(each: CrowdOverview) -> dict[str, Any]:
    """Return the same of one job as JSON has it."""
    family, analyst = _asked_by(each)
    shown = each.state.model_dump(
        mode="json", include={"job", "phase", "contributions", "wanted", "closes_at"}
    )
    return {**shown, "family": family, "analyst": analyst}


def asked(request: CrowdJobRequest) -> RenderableType:
    """Show what a job asks of whom, and what it costs a client and a record."""
    task = request.task
    facts = Table.grid(padding=(0, 2))
    facts.add_row("Analyst", plain(request.analyst))
    facts.add_row("Learns", plain(f"{task.family} model of {task.target.name}"))
    facts.add_row("Features", plain(", ".join(each.name for each in task.features)))
    facts.add_row(
        "Each contribution",
        f"epsilon {task.contribution_epsilon:g}, local and pure; {task.variant}",
    )
    facts.add_row(
        "At most",
        f"{request.contributions_per_client:,} of a client (epsilon {request.client_epsilon:g}), "
        f"{request.contributions_per_record:,} with a record (epsilon {request.record_epsilon:g})",
    )
    facts.add_row("Instances", f"{task.instances:,}")
    job = plain(f"Job {request.digest}")
    job.no_wrap, job.overflow = True, "ignore"  # it is to be pasted
    return Group(job, facts)


def progress(state: CrowdState, *, now: datetime) -> RenderableType:
    """Show where a job stands."""
    facts = Table.grid(padding=(0, 2))
    facts.add_row("Phase", state.phase)
    facts.add_row("Contributions", f"{state.contributions:,} of {state.wanted:,}")
    facts.add_row("Contributors", f"{state.contributors:,} clients")
    if not state.contributions:
        facts.add_row("If it stays so", NOBODY)
    if state.phase is CrowdPhase.OPEN:
        facts.add_row("Closes", f"{state.closes_at:%Y-%m-%d %H:%M:%S} UTC ({_left(state, now)})")
    if state.spread is not None:
        spread = ", ".join(f"{each:.3g}" for each in state.spread)
        facts.add_row("Spread", f"{spread} (variance over instances)")
    return facts


def one_line(state: CrowdState, *, now: datetime) -> str:
    """Say where a job stands in one line, for output that is no terminal."""
    said = (
        f"{state.phase}: {state.contributions:,} of {state.wanted:,} contributions, from "
        f"{state.contributors:,} clients"
    )
    return said if state.phase is CrowdPhase.CLOSED else f"{said}; closes {_left(state, now)}"


def unbroken(closing: CrowdClosing) -> str:
    """Say what was found by following the logs to a closing."""
    return (
        f"All {closing.contributions:,} contributions are in {len(closing.heads):,} unbroken logs, "
        "where the seed says that they belong, and lead to the instances of the closing."
    )


def learned(model: CrowdModel) -> RenderableType:
    """Show a model: its coefficients, what it cost, what it is not, and how to go on from it."""
    line = start_line(model)
    return plain(f"{model.summary()}\n\nTo go on from here, in [task] of the next job:\n{line}")


def start_line(model: CrowdModel) -> str:
    """Return the line of a crowd file by which a job of the same bounds begins with this model."""
    return f"start = [{', '.join(f'{each:.9g}' for each in model.as_start())}]"


def _left(state: CrowdState, now: datetime) -> str:
    return until(state.closes_at, now)


def _asked_by(each: CrowdOverview) -> tuple[str, str]:
    """Return the family and the analyst, as far as they can be verified."""
    if each.request is None:
        return "?", "?"
    return each.request.task.family, each.request.analyst

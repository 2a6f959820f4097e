"""`shoal redteam`: attacks a test federation of which it has all keys; prints what came of it.

Exit status of `run`: 0 all were stopped, or are documented as not stopped; 1 one got through;
2 one could not be carried out.
"""

import asyncio
import secrets
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from shoal_command.terminal import AsJson, tell, warn
from shoal_kit.clock import system_clock
from shoal_kit.peers.service_calls import Refused
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Verdict
from shoal_redteam.registry import chosen
from shoal_redteam.running import Report, run
from shoal_redteam.target import Target

app = typer.Typer(no_args_is_help=True, help="Attack a test federation of which you hold all keys.")


@app.callback()
def _group() -> None:
    """Attack a test federation of which you hold all keys."""


@app.command("run")
def run_attacks(
    directory: Annotated[
        Path | None, typer.Argument(help="A directory of `shoal quickstart` whose services are up.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Name of an attack to run; repeatable.")
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="List the attacks, and what should stop each.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play lying parties against running services; print what was tried and what stopped it.

    Never against a federation with real clients: it needs the directory that holds everybody's
    keys, and it spends its clients' budgets for ever. Exit status: 0 all were stopped, or are
    documented as not stopped; 1 one got through; 2 one could not be carried out.
    """
    attacks = chosen(only or [])
    if listed:
        about = [_about(attack) for attack in attacks]
        tell(about, as_json, about)
        return
    if directory is None:
        raise typer.BadParameter("name the directory of a test federation")
    try:
        report = asyncio.run(_run(directory, attacks))
    except CannotAttack as error:
        raise Refused(str(error)) from None
    tell(as_value(attacks, report), as_json, *in_words(attacks, report))
    raise typer.Exit(report.exit_status)


async def _run(directory: Path, attacks: list[Attack]) -> Report:
    target = Target.open(
        directory,
        clock=system_clock,
        timer=time.perf_counter,
        pause=asyncio.sleep,
        random_bytes=secrets.token_bytes,
    )
    warn(expense(target))
    console = Console(stderr=True, highlight=False)
    try:
        with console.status("Attacking ...") as status:

            def progress(attack: Attack, before: int) -> None:
                status.update(f"{before + 1} of {len(attacks)}: {attack.name}, {attack.liar} ...")
                if not console.is_terminal:
                    console.print(f"{before + 1} of {len(attacks)}: {attack.name}")

            return await run(attacks, target, progress=progress)
    finally:
        await target.close()


def expense(target: Target) -> str:
    """Say whose budgets the attacks spend."""
    sites = "; ".join(
        f"{site}: {_ranges(clients)}" for site, clients in target.by_site(target.crew).items()
    )
    return (
        "for a test federation only. The attacks spend, for ever, budget of these "
        f"{len(target.crew)} clients by their roster index: {sites}"
    )


def _ranges(clients: list[int]) -> str:
    """Word ascending indices: 0-4, 7."""
    runs: list[list[int]] = []
    for each in clients:
        if runs and each == runs[-1][-1] + 1:
            runs[-1].append(each)
        else:
            runs.append([each])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _about(attack: Attack) -> dict[str, str]:
    return {
        "attack": attack.name,
        "liar": attack.liar,
        "tries": attack.tries,
        "stopped_by": attack.stopped_by,
    }


def as_value(attacks: list[Attack], report: Report) -> dict[str, Any]:
    """Return the report as JSON."""
    return {
        "attacks": [
            {
                **_about(attack),
                "findings": [
                    {
                        "tried": each.tried,
                        "verdict": each.verdict.value,
                        "answered": each.answered,
                        "stopped_by": each.stopped_by,
                    }
                    for each in report.findings[attack.name]
                ],
            }
            for attack in attacks
        ],
        "counts": {verdict.value: report.count(verdict) for verdict in Verdict},
    }


def in_words(attacks: list[Attack], report: Report) -> tuple[list[dict[str, str]], str]:
    """Return every try, a row for each, and how many ended how."""
    rows = [
        {
            "attack": attack.name,
            "who lies": attack.liar,
            "what is tried": each.tried,
            "verdict": each.verdict.value,
            "what answered": each.answered,
            "what stopped it": each.stopped_by,
        }
        for attack in attacks
        for each in report.findings[attack.name]
    ]
    counts = ", ".join(f"{report.count(each)} {each.value}" for each in Verdict)
    attacked = len(report.findings)
    return rows, (
        f"{attacked} {'attack' if attacked == 1 else 'attacks'}, "
        f"{len(rows)} {'try' if len(rows) == 1 else 'tries'}: {counts}"
    )

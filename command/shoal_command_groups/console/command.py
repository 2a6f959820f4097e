"""`shoal console`: serves the analyst's console to her own machine alone."""

from typing import TYPE_CHECKING

from shoal.jobs.analyst import Analyst
from shoal_command.connection import ConsortiumDirectory, PartyDirectory
from shoal_command.own_console import Port, serve_console
from shoal_command.terminal import warn
from shoal_kit.clock import system_clock

if TYPE_CHECKING:
    from fastapi import FastAPI


def console(party: PartyDirectory, consortium: ConsortiumDirectory, port: Port = 8470) -> None:
    """Serve pages to your own browser until Ctrl-C: jobs, budgets, results and certificates.

    They sign with your key, which stays on this machine, and no other machine reaches them. Who
    signs in shows the token that is printed at the start, another one each time.
    """

    def made_for(token: str) -> "FastAPI":
        from shoal_command_groups.console.pages import console_of

        return console_of(
            Analyst.open(party, consortium, notice=warn), token=token, clock=system_clock
        )

    serve_console(made_for, port=port, extra="shoal[console]")

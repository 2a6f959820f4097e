"""`shoal agent console`: serves the data owner's console to the owner's own machine alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal_command.connection import AgentData, AgentDirectory, AgentUrl, own_agent
from shoal_command.own_console import Port, serve_console
from shoal_holder.keys import read_holder_key
from shoal_hosting.clock import system_clock

if TYPE_CHECKING:
    from fastapi import FastAPI


def console(
    directory: AgentDirectory,
    data: AgentData,
    url: AgentUrl,
    owner: Annotated[
        Path | None,
        typer.Option(
            help="Your owner's key file, to decide about jobs; without it pages only show."
        ),
    ] = None,
    port: Port = 8471,
) -> None:
    """Serve pages to your own browser until Ctrl-C: jobs that ask, ledger, what left, policy.

    Elsewhere than on the agent's machine, copies of its tls.crt and owner.token are enough: keep
    the owner's key there, for decisions are signed by this process. Who signs in shows the token
    that is printed at the start, another one each time.
    """
    endpoint = own_agent(directory, url, data)
    key = None if owner is None else read_holder_key(owner)

    def made_for(token: str) -> "FastAPI":
        from shoal_agent.console.own_agent import OwnAgent
        from shoal_agent.console.pages import console_of

        return console_of(OwnAgent(endpoint), token=token, clock=system_clock, owner_key=key)

    serve_console(made_for, port=port, extra="shoal-holder[agent]")

"""`shoal console`: serves the analyst's console to her own machine alone."""

import secrets
from functools import partial
from typing import Annotated, Final

import typer

from shoal.jobs.async_analyst import AsyncAnalyst, opened
from shoal_command.connection import ConsortiumDirectory, PartyDirectory
from shoal_command.terminal import say, warn
from shoal_hosting.clock import system_clock

HOST: Final = "127.0.0.1"


def console(
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    port: Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)] = 8470,
) -> None:
    """Serve pages to your own browser until Ctrl-C: jobs, budgets, results and certificates.

    They sign with your key, which stays on this machine, and no other machine reaches them. Who
    signs in shows the token that is printed at the start, another one each time.
    """
    try:  # no other command needs a web server, whose modules take a while to load
        from shoal_command_groups.console.pages import console_of
        from shoal_hosting.pages.console import START
        from shoal_hosting.server.logs import configure_logs
        from shoal_hosting.server.serving import serve
    except ModuleNotFoundError as error:
        raise ValueError(
            "the console needs the extra `console`: pip install 'shoal[console]'"
        ) from error
    opened(party, consortium)  # so that a mistake is said before anything is served
    token = secrets.token_urlsafe(24)
    configure_logs(level="warning")
    say(f"Your console: http://{HOST}:{port}{START}")
    say(f"Sign in with this token: {token}")
    say("Ctrl-C ends it.")
    app = console_of(
        partial(AsyncAnalyst.open, party, consortium, notice=warn), token=token, clock=system_clock
    )
    serve(app, host=HOST, port=port, tls=None)

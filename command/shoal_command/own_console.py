"""Runs the console of the person who gives the command, for her own browser."""

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from shoal_command.terminal import say

if TYPE_CHECKING:
    from fastapi import FastAPI

Port = Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)]


def serve_console(made_for: "Callable[[str], FastAPI]", *, port: int, extra: str) -> None:
    """Serve a console on this machine until Ctrl-C.

    `made_for` makes it for a token, which is printed, and which who signs in shows. `extra` is what
    to install where there is no web server.

    Raises:
        ValueError: there is none.
    """
    try:  # no other command needs a web server, whose modules take a while to load
        from shoal_kit.pages.console import HOST, START
        from shoal_kit.web.logs import configure_logs
        from shoal_kit.web.serving import serve
    except ModuleNotFoundError as error:
        raise ValueError(f"the console needs more packages: pip install '{extra}'") from error
    token = secrets.token_urlsafe(24)
    app = made_for(token)
    configure_logs(level="warning")
    say(f"Your console: http://{HOST}:{port}{START}")
    say(f"Sign in with this token: {token}")
    say("Ctrl-C ends it.")
    serve(app, host=HOST, port=port, tls=None)

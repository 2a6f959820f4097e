"""`shoal agent`: starts a data holder's agent; what the agent does is in `shoal_client.agent`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from shoal_client.command.connection import ConsortiumDirectory
from shoal_client.command.terminal import ExitStatus, fail

app = typer.Typer(no_args_is_help=True, help="Run a data holder's agent.")

_NEEDED = {
    "fastapi",
    "httptools",
    "prometheus_client",
    "starlette",
    "structlog",
    "uvicorn",
    "uvloop",
}


@app.callback()
def agent() -> None:
    """Run a data holder's agent."""


@app.command()
def run(
    party: Annotated[
        Path, typer.Option(envvar="SHOAL_PARTY", help="Directory with tls.crt, tls.key and pin.")
    ],
    consortium: ConsortiumDirectory,
    data: Annotated[
        Path, typer.Option(envvar="SHOAL_DATA", help="Directory for this agent alone, durable.")
    ],
    keys: Annotated[
        Path, typer.Option(envvar="SHOAL_AGENT_KEYS", help="File with the clients' private keys.")
    ],
    records: Annotated[
        Path, typer.Option(envvar="SHOAL_AGENT_RECORDS", help="CSV or Parquet file of records.")
    ],
    policy: Annotated[
        Path, typer.Option(envvar="SHOAL_AGENT_POLICY", help="TOML file: what you allow.")
    ],
    client_column: Annotated[
        str | None,
        typer.Option(
            envvar="SHOAL_AGENT_CLIENT_COLUMN", help="Column that says whose record a row is."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(envvar="SHOAL_HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="SHOAL_PORT", min=0, max=65_535, help="Port to listen on.")
    ] = 8440,
    poll_seconds: Annotated[
        float, typer.Option(envvar="SHOAL_AGENT_POLL_SECONDS", help="How often to ask for news.")
    ] = 1.0,
    processes: Annotated[
        int,
        typer.Option(envvar="SHOAL_AGENT_PROCESSES", min=0, help="Processes that prepare answers."),
    ] = 0,
    log_level: Annotated[
        str, typer.Option(envvar="SHOAL_LOG_LEVEL", help="debug, info, warning or error.")
    ] = "info",
) -> None:
    """Take part in the consortium's jobs with your own records, as far as your policy allows.

    Exit status 78: the agent will not start, and says why.
    """
    try:
        from shoal_client.agent.__main__ import main
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in _NEEDED:
            raise
        fail("the agent needs more packages: pip install 'shoal[agent]'", ExitStatus.MISTAKE)
    settings = {
        "SHOAL_PARTY": party,
        "SHOAL_CONSORTIUM": consortium,
        "SHOAL_DATA": data,
        "SHOAL_AGENT_KEYS": keys,
        "SHOAL_AGENT_RECORDS": records,
        "SHOAL_AGENT_POLICY": policy,
        "SHOAL_AGENT_CLIENT_COLUMN": client_column,
        "SHOAL_HOST": host,
        "SHOAL_PORT": port,
        "SHOAL_AGENT_POLL_SECONDS": poll_seconds,
        "SHOAL_AGENT_PROCESSES": processes,
        "SHOAL_LOG_LEVEL": log_level,
    }
    os.environ.update({name: str(value) for name, value in settings.items() if value is not None})
    main()

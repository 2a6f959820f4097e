"""`shoal agent`: makes and starts a data holder's agent; what it does is `shoal_client.agent`'s."""

import os
import secrets
import shlex
from pathlib import Path
from typing import Annotated

import typer
from nacl.signing import SigningKey

from shoal_client.certificates import self_signed
from shoal_client.command import agent_views
from shoal_client.command.agent_views import Left
from shoal_client.command.connection import ConsortiumDirectory, JobId, ask, checked_id, tell
from shoal_client.command.crowd_comparing import tell_fingerprints, write_evidence
from shoal_client.command.party import VALID_DAYS
from shoal_client.command.terminal import AsJson, ExitStatus, fail, now, say, say_json
from shoal_client.leaving_alone import leave_alone
from shoal_client.party_files import write_agent
from shoal_client.private_files import read_private
from shoal_client.site_files import CLIENT_KEYS, POLICY, RECORDS
from shoal_protocol.draw_and_discard.evidence import CrowdEvidence

app = typer.Typer(no_args_is_help=True, help="Make a data holder's agent, and run it.")

_NEEDED = {
    "fastapi",
    "httptools",
    "prometheus_client",
    "starlette",
    "structlog",
    "uvicorn",
    "uvloop",
}


@app.command()
def new(
    directory: Annotated[Path, typer.Argument(help="New directory for the agent's files.")],
    count: Annotated[int, typer.Option(min=1, max=10_000_000, help="Number of clients.")],
    host: Annotated[
        str, typer.Option(help="Host name or IP address that you reach the agent by.")
    ] = "127.0.0.1",
    san: Annotated[
        list[str] | None,
        typer.Option(help="Further host name or IP address for the certificate; repeatable."),
    ] = None,
    valid_days: Annotated[
        int, typer.Option(min=1, max=36525, help="Days that the certificate is valid.")
    ] = VALID_DAYS,
    as_json: AsJson = False,
) -> None:
    """Make clients' keys, a TLS certificate, and the enrolment to hand to the authority.

    One client, one key: line i of clients.key belongs to client i of the records, so never
    reorder either of them. Only clients.key.enrolment leaves the directory.
    """
    tls = self_signed("agent", [host, *(san or [])], now=now(), valid_days=valid_days)
    write_agent(directory, [SigningKey(secrets.token_bytes(32)) for _ in range(count)], tls)
    enrolment = directory / f"{CLIENT_KEYS}.enrolment"
    if as_json:
        say_json({"directory": str(directory), "enrolment": str(enrolment), "clients": count})
        return
    say(f"Made {count:,} clients' private keys in {directory}; keep it secret, and keep a copy.")
    say(f"Hand {enrolment} to the consortium's authority.")
    say("Compare the manifest's digest with the other parties, then pin it:")
    say(f"shoal party pin {shlex.quote(str(directory))} DIGEST --consortium CONSORTIUM")
    say("Put records.csv and policy.toml beside the keys; then `shoal agent run` starts the agent.")


@app.command()
def status(
    directory: Annotated[
        Path, typer.Option("--agent", help="The agent's directory, with its tls.crt.")
    ],
    url: Annotated[str, typer.Option(help="https://host:port of the agent.")],
    as_json: AsJson = False,
) -> None:
    """Show the jobs that your agent takes part in, in counts, and whether a trainer cheated it.

    Exit status 3: the closing of a crowd job does not bear out what the trainer had signed.
    """
    certificate = (directory / "tls.crt").read_text(encoding="ascii")
    found = ask(agent_views.Status, certificate, url, "/v1/status")
    if as_json:
        say_json(found.model_dump(mode="json"))
    else:
        agent_views.tell(found)
    if found.cheats:
        fail(f"the trainer cheated in {len(found.cheats)} crowd jobs", ExitStatus.REFUSED)


@app.command()
def leave(
    job: JobId,
    directory: Annotated[
        Path, typer.Option("--agent", help="The agent's directory, with its keys and tls.crt.")
    ],
    data: Annotated[Path, typer.Option(help="The agent's data directory.")],
    url: Annotated[
        str | None, typer.Option(help="https://host:port of the agent, if it is running.")
    ] = None,
    consortium: Annotated[
        Path | None,
        typer.Option(
            envvar="SHOAL_CONSORTIUM", help="The consortium directory, if the agent is not running."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Leave a job for good, with all your clients: none answers a round of it from now on.

    What the job could still cost comes free. What answered rounds cost stays charged, and what was
    sent may still be summed. An agent that is not running tells the trainer when it next runs.
    """
    job = checked_id(job, listed_by="shoal agent status --json")
    if url is not None:
        certificate = (directory / "tls.crt").read_text(encoding="ascii")
        token = read_private(data / "owner.token").decode("ascii").strip()
        left = tell(Left, certificate, url, f"/v1/jobs/{job}/leave", token=token)
    elif consortium is not None:
        found = leave_alone(directory, consortium, data, job)
        left = Left(job=job, clients=len(found.clients), answered_rounds=found.answered)
    else:
        fail("name the running agent by --url, or else --consortium", ExitStatus.MISTAKE)
    if as_json:
        say_json(left.model_dump(mode="json"))
        return
    say(f"{left.clients:,} clients have left the job; none of them answers a round of it any more.")
    if left.answered_rounds:
        say(
            f"They had answered {left.answered_rounds:,} rounds: what these cost stays charged, "
            "and what was sent may still be summed."
        )


@app.command()
def evidence(
    job: JobId,
    directory: Annotated[
        Path, typer.Option("--agent", help="The agent's directory, with its tls.crt.")
    ],
    data: Annotated[Path, typer.Option(help="The agent's data directory, with owner.token.")],
    url: Annotated[str, typer.Option(help="https://host:port of the agent.")],
    out: Annotated[Path, typer.Option(help="New file for `shoal crowd compare`.")],
    receipts: Annotated[
        bool,
        typer.Option(
            "--receipts",
            help="Draws and receipts too: they tell which contributions are yours.",
        ),
    ] = False,
) -> None:
    """Write what the trainer showed your agent of a crowd job, to be compared with what others saw.

    Opening and closing are public. Draws and receipts are there until a closing bore them out.
    """
    certificate = (directory / "tls.crt").read_text(encoding="ascii")
    token = read_private(data / "owner.token").decode("ascii").strip()
    path = f"/v1/crowds/{checked_id(job, listed_by='shoal agent status --json')}/evidence"
    shown = ask(CrowdEvidence, certificate, url, path, token=token, receipts=int(receipts))
    write_evidence(out, shown)
    tell_fingerprints(shown)


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
        Path | None,
        typer.Option(envvar="SHOAL_AGENT_KEYS", help="Private keys; or PARTY/clients.key."),
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(envvar="SHOAL_AGENT_RECORDS", help="CSV or Parquet; or PARTY/records.csv."),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(envvar="SHOAL_AGENT_POLICY", help="What you allow; or PARTY/policy.toml."),
    ] = None,
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
        "SHOAL_AGENT_KEYS": keys or party / CLIENT_KEYS,
        "SHOAL_AGENT_RECORDS": records or party / RECORDS,
        "SHOAL_AGENT_POLICY": policy or party / POLICY,
        "SHOAL_AGENT_CLIENT_COLUMN": client_column,
        "SHOAL_HOST": host,
        "SHOAL_PORT": port,
        "SHOAL_AGENT_POLL_SECONDS": poll_seconds,
        "SHOAL_AGENT_PROCESSES": processes,
        "SHOAL_LOG_LEVEL": log_level,
    }
    os.environ.update({name: str(value) for name, value in settings.items() if value is not None})
    main()

"""`shoal quickstart`: a federation on one machine; it makes files and prints how to start them."""

import secrets
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal_client import consortium_files
from shoal_client.command.party import VALID_DAYS
from shoal_client.command.policy import (
    Delta,
    MaximumEpsilon,
    MaximumLocalEpsilon,
    MaximumRoundSeconds,
    Mechanisms,
    MinimumColluders,
    MinimumThreshold,
    policy,
)
from shoal_client.command.terminal import AsJson, now, say, say_json, warn
from shoal_client.quickstart import Plan, Process, agents, exists, make, services
from shoal_protocol.reach import JOB_SECONDS, JOIN_SECONDS

_WARNING = (
    "for trying out only: this machine holds every key. In production every organisation makes "
    "its own party with `shoal party new` and hands over only its card."
)
_SITES = ("site-a=300", "site-b=300")  # as many as `shoal job example` asks for


def quickstart(
    directory: Annotated[Path, typer.Argument(help="Directory for all files.")],
    compute: Annotated[int, typer.Option(min=2, max=255, help="Number of Compute nodes.")] = 3,
    host: Annotated[str, typer.Option(help="Host that all services listen on.")] = "127.0.0.1",
    first_port: Annotated[int, typer.Option(min=1, max=65_000, help="First of the ports.")] = 8440,
    clients: Annotated[
        list[str] | None,
        typer.Option(
            help="SITE=COUNT: a data holder and how many clients it has; repeatable.",
            show_default=" ".join(_SITES),
        ),
    ] = None,
    url_template: Annotated[
        str | None,
        typer.Option(help="URL of each party, such as https://{name}:8443, instead of the host."),
    ] = None,
    san: Annotated[
        list[str] | None,
        typer.Option(help="Further host name or IP address for every certificate; repeatable."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the consortium.")] = "quickstart",
    minimum_cohort: Annotated[
        int, typer.Option(min=2, help="Smallest cohort that may be summed.")
    ] = 20,
    minimum_colluders: MinimumColluders = 1,
    maximum_epsilon: MaximumEpsilon = 10.0,
    delta: Delta = 1e-5,
    mechanism: Mechanisms = None,
    maximum_round_seconds: MaximumRoundSeconds = 86_400,
    threshold: MinimumThreshold = None,
    maximum_local_epsilon: MaximumLocalEpsilon = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Leave a federation that exists as it is.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a whole federation in one directory, for trying out, and print how to start it.

    In production every organisation makes its own party: see `shoal party new`.
    """
    if not (if_missing and exists(directory)):
        plan = Plan(
            consortium=name,
            compute_nodes=compute,
            clients=_sites(clients or list(_SITES)),
            url_template=url_template or f"https://{_bracketed(host)}:{{port}}",
            first_port=first_port,
            extra_hosts=san or [],
            policy=policy(
                minimum_cohort=minimum_cohort,
                minimum_colluders=minimum_colluders,
                maximum_epsilon=maximum_epsilon,
                delta=delta,
                mechanisms=mechanism,
                maximum_round_seconds=maximum_round_seconds,
                minimum_threshold=threshold,
                maximum_local_epsilon=maximum_local_epsilon,
                maximum_join_seconds=JOIN_SECONDS,
                maximum_job_seconds=JOB_SECONDS,
            ),
            valid_days=VALID_DAYS,
        )
        make(directory, plan, now=now(), random_bytes=secrets.token_bytes)
    consortium = consortium_files.open_chain(directory / "consortium")[-1]
    home = directory.resolve()
    started, later = services(home, consortium), agents(home)
    if as_json:
        say_json(
            {
                "manifest": consortium.digest,
                "processes": [_as_json(process) for process in started],
                "agents": [_as_json(process) for process in later],
            }
        )
        return
    warn(_WARNING)
    say(f"Federation in {directory}, manifest {consortium.digest}.")
    say("Start each of these in a terminal of its own:\n")
    _say_commands(started)
    say("Put records.csv and policy.toml into each site's directory, then start its agent:\n")
    _say_commands(later)
    say("Then submit a job:\n")
    who = shlex.join(
        ["--party", str(home / "parties" / "analyst"), "--consortium", str(home / "consortium")]
    )
    say(f"shoal job submit --wait {who} TASK.toml")
    if consortium.manifest.policy.maximum_local_epsilon is not None:
        say(
            "\nOr open a crowd job; of the services it needs only the trainer, and each site's "
            "policy.toml must have maximum_local_epsilon and crowd_families:\n"
        )
        say(f"shoal crowd open {who} CROWD.toml")


def _say_commands(processes: list[Process]) -> None:
    for process in processes:
        say(f"# {process.name} at {process.url}\n{process.command()}\n")


def _as_json(process: Process) -> dict[str, Any]:
    return {
        "name": process.name,
        "url": process.url,
        "module": process.module,
        "environment": dict(process.environment),
    }


def _sites(texts: list[str]) -> dict[str, int]:
    sites: dict[str, int] = {}
    for text in texts:
        site, _, count = text.partition("=")
        if not count.isdecimal() or site in sites:
            raise ValueError("--clients takes SITE=COUNT, each site once")
        sites[site] = int(count)
    return sites


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host

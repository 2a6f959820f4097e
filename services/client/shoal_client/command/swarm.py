"""`shoal swarm`: loads a test federation with simulated clients and prints what it bore."""

import asyncio
import dataclasses
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from shoal_client.command import swarm_crowd
from shoal_client.command.connection import ConsortiumDirectory, open_book
from shoal_client.command.swarm_views import drawn_anew, requests_table
from shoal_client.command.terminal import AsJson, now, plain, say, say_json, show, warn
from shoal_client.keys import read_client_keys
from shoal_client.site_files import lock_keys
from shoal_client.swarm.figures import JobFigures, SwarmFigures
from shoal_client.swarm.running import Plan, Swarm
from shoal_client.swarm.watching import Watch
from shoal_hosting.party import load_party

app = typer.Typer(no_args_is_help=True, help="Load a test federation with simulated clients.")

app.command("crowd")(swarm_crowd.crowd)

_WARNING = (
    "for a test federation only: the jobs spend these clients' budget at the services for ever, "
    "and their records are made up. `shoal quickstart my-test --clients swarm=1000` makes one."
)


@app.callback()
def swarm() -> None:
    """Load a test federation with simulated clients."""


@app.command()
def run(
    clients_key: Annotated[
        Path, typer.Option(help="Private keys of the simulated clients, which must be enrolled.")
    ],
    consortium: ConsortiumDirectory,
    analyst: Annotated[Path, typer.Option(help="Party directory of the analyst that asks.")],
    data: Annotated[Path, typer.Option(help="Directory for the clients' state, theirs alone.")],
    clients: Annotated[
        int | None, typer.Option(min=4, help="How many of the keys to use; or all.")
    ] = None,
    features: Annotated[
        int, typer.Option(min=1, max=200, help="Features of the regression; 9 make d = 66.")
    ] = 9,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs, one after another.")] = 1,
    epsilon: Annotated[float, typer.Option(help="What each job costs each client.")] = 1.0,
    dropouts: Annotated[
        int | None, typer.Option(min=0, help="Clients that may be missing; or 1 in 100.")
    ] = None,
    colluders: Annotated[
        int | None, typer.Option(min=0, help="Clients that may collude; or 1 in 100.")
    ] = None,
    bulk: Annotated[
        bool,
        typer.Option("--bulk/--single", help="Many envelopes in a request, or one in each."),
    ] = True,
    concurrency: Annotated[
        int, typer.Option(min=1, max=1000, help="Requests that are open at once.")
    ] = 8,
    processes: Annotated[
        int, typer.Option(min=0, help="Processes that prepare answers; 0: a thread.")
    ] = 0,
    join_seconds: Annotated[int, typer.Option(min=1, help="How long clients may join.")] = 3600,
    round_seconds: Annotated[int, typer.Option(min=1, help="How long they may answer.")] = 3600,
    grace_seconds: Annotated[int, typer.Option(min=1, help="How long nodes may take then.")] = 3600,
    as_json: AsJson = False,
) -> None:
    """Take part in jobs with many simulated clients and print rates, latencies and errors.

    The records are made up from the columns' bounds. Every message is real: sealed, signed and
    stored, over TLS. The services should run on other machines than the swarm, or they share its
    processors. Exit status 5: the job ended without a posterior.
    """
    warn(_WARNING)
    book = open_book(analyst, consortium)
    keys = read_client_keys(clients_key)
    if clients is not None and clients > len(keys):
        raise ValueError(f"{clients_key} holds {len(keys)} keys, fewer than {clients}")
    keys = keys[:clients]
    few = max(1, len(keys) // 100)
    plan = Plan(
        features=features,
        jobs=jobs,
        epsilon=epsilon,
        delta=book.current.manifest.policy.delta,
        dropouts=few if dropouts is None else dropouts,
        colluders=few if colluders is None else colluders,
        join_seconds=join_seconds,
        round_seconds=round_seconds,
        grace_seconds=grace_seconds,
        bulk=bulk,
        concurrency=concurrency,
    )
    with ExitStack() as resources:
        resources.enter_context(lock_keys(clients_key))
        pool = None
        if processes:
            pool = resources.enter_context(ProcessPoolExecutor(processes, get_context("spawn")))
        crowd = Swarm(
            plan=plan,
            keys=keys,
            analyst=load_party(analyst),
            book=book,
            data=data,
            clock=now,
            monotonic=time.monotonic,
            executor=pool,
        )
        resources.enter_context(drawn_anew(_Progress(crowd.watch, len(crowd.keys))))
        figures = asyncio.run(crowd.run())
    if as_json:
        say_json(as_value(figures))
    else:
        _say(figures)


def as_value(figures: SwarmFigures) -> dict[str, Any]:
    """Return the figures as a JSON value."""
    value = dataclasses.asdict(figures)
    for job, listed in zip(figures.jobs, value["jobs"], strict=True):
        listed["clients_per_second"] = job.clients_per_second
    return value | {"bytes_per_client": figures.bytes_per_client}


class _Progress:
    """What the swarm did so far, drawn anew several times a second."""

    def __init__(self, watch: Watch, clients: int) -> None:
        self._watch = watch
        self._clients = clients

    def __rich__(self) -> RenderableType:
        lines = []
        for job, joins in list(self._watch.joins.items()):
            lines.append(f"job {job[:12]}: {joins.done:,} of {self._clients:,} joined")
        for round_id, nodes in list(self._watch.uploads.items()):
            done = ", ".join(f"{span.done:,}" for _, span in sorted(nodes.items()))
            lines.append(f"round {round_id[:12]}: acknowledged by node {done}")
        return plain("\n".join(lines) or "Preparing ...")


def _say(figures: SwarmFigures) -> None:
    for job in figures.jobs:
        _say_job(job)
    show(requests_table(figures.requests))
    say(f"{figures.bytes_per_client:,.0f} bytes sent by a client in a job, without TLS")
    table = Table("node", "shares stored", "shares in a commit, mean")
    for name, node in figures.nodes.items():
        table.add_row(plain(name), f"{node.stored_shares:,}", f"{node.mean_batch:,.1f}")
    show(table)
    for what, count in sorted(figures.failures.items()):
        say(f"{count:,} times: {what}")


def _say_job(job: JobFigures) -> None:
    say(f"Job {job.job}")
    rates = ", ".join(f"{rate:,.0f}" for rate in job.uploads_per_second)
    facts = {
        "clients, joined, in the cohort": f"{job.clients:,}, {job.joined:,}, {job.cohort_size:,}",
        "acknowledged by every node": f"{job.complete:,}",
        "envelopes refused, sent again": f"{job.refused_envelopes:,}, {job.repaired_envelopes:,}",
        "joins a second": f"{job.joins_per_second:,.0f}",
        "uploads a second, by node": rates,
        "submitted to round, s": f"{job.submitted_to_round_seconds:,.1f}",
        "first upload to posterior, s": f"{job.first_upload_to_posterior_seconds:,.1f}",
        "submitted to posterior, s": f"{job.submitted_to_posterior_seconds:,.1f}",
        "clients a second, all the way": f"{job.clients_per_second:,.0f}",
    }
    table = Table(show_header=False)
    for what, figure in facts.items():
        table.add_row(what, figure)
    show(table)

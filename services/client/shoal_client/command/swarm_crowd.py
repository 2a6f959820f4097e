"""`shoal swarm crowd`: loads a test federation's trainer with a simulated crowd, and prints."""

import asyncio
import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any

import nacl.utils
import typer
from rich.console import RenderableType
from rich.table import Table

from shoal_client.async_analyst import AsyncAnalyst
from shoal_client.command.connection import ConsortiumDirectory, open_book
from shoal_client.command.swarm_views import drawn_anew, requests_table
from shoal_client.command.terminal import AsJson, now, plain, say, say_json, show, warn
from shoal_client.crowds.crowd import Crowd
from shoal_client.crowds.trainer import CrowdTrainer
from shoal_client.keys import read_client_keys
from shoal_client.site_files import lock_keys
from shoal_client.swarm.crowd_accounts import CrowdAccount, account_of
from shoal_client.swarm.crowds import CrowdFigures, CrowdSwarm
from shoal_client.swarm.lines import Line
from shoal_client.swarm.metering import Meter
from shoal_client.swarm.running import LOWER, UPPER, made_up_records
from shoal_hosting.party import load_party
from shoal_protocol.draw_and_discard.tasks import CrowdTask
from shoal_protocol.tasks import ColumnBounds

_WARNING = (
    "for a test federation only: the trainer counts these contributions for ever, and the records "
    "are made up. `shoal quickstart my-test --clients swarm=1000 --maximum-local-epsilon 1` makes "
    "one."
)
_SESSION_SECONDS = 600
_OPEN_SECONDS = 86_400
_CLOSES_WITHIN_SECONDS = 20


def crowd(
    clients_key: Annotated[
        Path, typer.Option(help="Private keys of the simulated phones, which must be enrolled.")
    ],
    consortium: ConsortiumDirectory,
    analyst: Annotated[Path, typer.Option(help="Party directory of the analyst that asks.")],
    clients: Annotated[
        int | None, typer.Option(min=1, help="How many of the keys to use; or all.")
    ] = None,
    features: Annotated[int, typer.Option(min=1, max=500, help="Features of the model.")] = 9,
    instances: Annotated[int, typer.Option(min=1, help="Instances of the model, k.")] = 20,
    epsilon: Annotated[float, typer.Option(help="What each contribution costs.")] = 1.0,
    together: Annotated[
        int, typer.Option(min=1, max=256, help="Phones that share a request, as behind an agent.")
    ] = 1,
    concurrency: Annotated[
        int, typer.Option(min=1, max=1000, help="Requests that are open at once.")
    ] = 16,
    as_json: AsJson = False,
) -> None:
    """Open a crowd job, let each simulated phone contribute once, and check every receipt.

    Draws, noise, signatures and receipts are real, over TLS; the phones keep no ledger. The trainer
    should run on another machine, or they share its processors.
    """
    warn(_WARNING)
    book = open_book(analyst, consortium)
    keys = read_client_keys(clients_key)
    if clients is not None and clients > len(keys):
        raise ValueError(f"{clients_key} holds {len(keys)} keys, fewer than {clients}")
    keys = keys[:clients]
    task = CrowdTask(
        family="linear",
        features=tuple(
            ColumnBounds(name=f"feature_{number}", lower=LOWER, upper=UPPER)
            for number in range(features)
        ),
        target=ColumnBounds(name="target", lower=LOWER, upper=UPPER),
        clip=0.01,
        learning_rate=0.01,
        epsilon=epsilon,
        instances=instances,
    )
    columns = (*task.features, task.target)
    party = load_party(analyst)

    async def run() -> tuple[CrowdFigures, CrowdAccount | None]:
        async with AsyncAnalyst(
            name=party.name, key=party.signing_key, book=book, clock=now
        ) as asking:
            job = await asking.crowds.open(
                asking.crowds.request(
                    task,
                    contributions=len(keys),
                    contributions_per_client=1,
                    contributions_per_record=1,
                    session_seconds=_SESSION_SECONDS,
                    open_seconds=_OPEN_SECONDS,
                )
            )
            swarm = CrowdSwarm(
                book=book,
                job=job,
                keys=keys,
                records=made_up_records(columns, len(keys), nacl.utils.random).values,
                monotonic=time.monotonic,
                together=together,
                concurrency=concurrency,
            )
            with drawn_anew(_Progress(swarm)):
                figures = await swarm.run()
            return figures, await _account(await asking.crowds.crowd(job), figures)

    with lock_keys(clients_key):
        figures, account = asyncio.run(run())
    if as_json:
        say_json(_as_value(figures, account))
    else:
        _say(figures, account)


async def _account(crowd: Crowd, figures: CrowdFigures) -> CrowdAccount | None:
    """Return the account of a closed job; None if it did not fill, and so is still open."""
    meter = Meter(crowd.consortium, time.monotonic, connections=1)
    line = Line(crowd.consortium.manifest.trainer, meter)
    trainer = CrowdTrainer(lambda: line)
    try:
        closing = await trainer.closing(crowd, wait_seconds=_CLOSES_WITHIN_SECONDS)
        if closing is None:
            return None
        return await account_of(trainer, crowd, closing.body, figures, now=now())
    finally:
        await meter.close()


def _as_value(figures: CrowdFigures, account: CrowdAccount | None) -> dict[str, Any]:
    return {
        "seconds": figures.seconds,
        "acknowledged": figures.acknowledged,
        "contributions_per_second": figures.contributions_per_second,
        "refused": figures.refused,
        "errors": figures.errors,
        "requests": {
            kind: dataclasses.asdict(requests) for kind, requests in figures.requests.items()
        },
        "account": None if account is None else dataclasses.asdict(account),
    }


class _Progress:
    """How many phones have their receipts, drawn anew several times a second."""

    def __init__(self, swarm: CrowdSwarm) -> None:
        self._swarm = swarm

    def __rich__(self) -> RenderableType:
        return plain(f"{self._swarm.done:,} of {len(self._swarm.keys):,} contributed")


def _say(figures: CrowdFigures, account: CrowdAccount | None) -> None:
    facts = {
        "contributions acknowledged": f"{figures.acknowledged:,}",
        "seconds": f"{figures.seconds:,.1f}",
        "contributions a second": f"{figures.contributions_per_second:,.0f}",
    }
    if account is not None:
        facts |= {
            "links in all chains": f"{account.linked:,}",
            "acknowledged and lost": f"{account.lost:,}",
            "counted twice": f"{account.counted_twice:,}",
            "draws that are not as the seed says": f"{account.misdrawn:,}",
            "draws of what no instance was": f"{account.forged:,}",
            "replacements of an instance": f"{account.fewest:,} to {account.most:,}",
        }
    table = Table(show_header=False)
    for what, figure in facts.items():
        table.add_row(what, figure)
    show(table)
    if account is None:
        warn("the job did not fill, and stays open: its chains could not be checked")
    show(requests_table(figures.requests))
    for what, count in sorted((figures.refused | figures.errors).items()):
        say(f"{count:,} times: {what}")

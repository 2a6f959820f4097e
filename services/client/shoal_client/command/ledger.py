"""`shoal ledger`: what jobs have cost so far, as the trainer and a data holder keep it."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import pydantic
import typer
from rich.table import Table

from shoal_client.command.connection import (
    ConsortiumDirectory,
    PartyDirectory,
    ask,
    ask_trainer,
    open_book,
)
from shoal_client.command.terminal import AsJson, plain, say, say_json, show
from shoal_client.private_files import read_private
from shoal_protocol.ledger import LedgerEntry

app = typer.Typer(no_args_is_help=True, help="Show what was spent of the privacy budget.")

_JOB_DIGITS = 12  # enough to tell jobs apart


class _TrainerLine(LedgerEntry):
    model_config = pydantic.ConfigDict(extra="ignore")

    cumulative_mu: float
    cumulative_epsilon: float | None  # None is infinite
    delta: float


class _TrainerLedger(pydantic.BaseModel):
    entries: list[_TrainerLine]


class _AgentEntry(pydantic.BaseModel):
    entry: int
    job: str
    number: int
    round: str
    client: int
    mu: float


class _Spread(pydantic.BaseModel):
    least: float
    median: float
    most: float


class _Spent(pydantic.BaseModel):
    clients: int
    delta: float
    epsilon: _Spread
    maximum_epsilon: float


class _AgentPage(pydantic.BaseModel):
    spent: _Spent
    entries: list[_AgentEntry]
    next: int | None


@app.command()
def trainer(
    party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show every round that the trainer ever announced and what it cost.

    The cumulative epsilon is that of the client of the round's population who has spent most.
    """
    ledger = ask_trainer(_TrainerLedger, open_book(party, consortium), "/v1/ledger")
    if as_json:
        say_json(ledger.model_dump(mode="json"))
        return
    table = Table("", "kind", "job", "clients", "mu", "cumulative epsilon", "at delta")
    for each in ledger.entries:
        table.add_row(
            str(each.number),
            each.kind,
            each.job[:_JOB_DIGITS],
            f"{each.clients:,}",
            f"{each.mu:.4g}",
            _number(each.cumulative_epsilon),
            f"{each.delta:.3g}",
        )
    show(table)


@app.command()
def agent(
    directory: Annotated[
        Path, typer.Option("--agent", help="The agent's directory, with its tls.crt.")
    ],
    data: Annotated[Path, typer.Option(help="The agent's data directory, with owner.token.")],
    url: Annotated[str, typer.Option(help="https://host:port of the agent.")],
    as_json: AsJson = False,
) -> None:
    """Show what each round cost your own clients, from your own agent's ledger."""
    certificate = (directory / "tls.crt").read_text(encoding="ascii")
    token = read_private(data / "owner.token").decode("ascii").strip()
    page = ask(_AgentPage, certificate, url, "/v1/ledger", token=token, after=0)
    entries = [*page.entries]
    while page.next is not None:
        page = ask(_AgentPage, certificate, url, "/v1/ledger", token=token, after=page.next)
        entries += page.entries
    spent = page.spent
    if as_json:
        listed = [each.model_dump(mode="json") for each in entries]
        say_json({"spent": spent.model_dump(mode="json"), "entries": listed})
        return
    table = Table("job", "round", "clients", "mu")
    rounds = Counter((each.job, each.number, each.mu) for each in entries)
    for (job, number, mu), clients in rounds.items():
        table.add_row(plain(job[:_JOB_DIGITS]), str(number), f"{clients:,}", f"{mu:.4g}")
    show(table)
    say(
        f"Epsilon of {spent.clients:,} clients at delta {spent.delta:.3g}: least "
        f"{spent.epsilon.least:.4g}, median {spent.epsilon.median:.4g}, most "
        f"{spent.epsilon.most:.4g}; you allow {spent.maximum_epsilon:.4g}."
    )


def _number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"

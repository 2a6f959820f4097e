"""`shoal ledger`: what jobs have cost so far, as the trainer and a data holder keep it."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

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

app = typer.Typer(no_args_is_help=True, help="Show what was spent of the privacy budget.")

_PAGE = 10_000


@app.command()
def trainer(
    party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show every round that the trainer ever announced and what it cost.

    The cumulative epsilon is that of the client of the round's population who has spent most.
    """
    entries = ask_trainer(open_book(party, consortium), "/v1/ledger")["entries"]
    if as_json:
        say_json({"entries": entries})
        return
    table = Table("job", "round", "clients", "mu", "cumulative epsilon", "at delta")
    for each in entries:
        table.add_row(
            plain(str(each["job"])[:12]),
            str(int(each["number"])),
            f"{each['population_size']:,}",
            f"{each['mu']:.4g}",
            f"{each['cumulative_epsilon']:.4g}",
            f"{each['delta']:.3g}",
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
    entries: list[dict[str, Any]] = []
    after: int | None = 0
    spent: dict[str, Any] = {}
    while after is not None:
        page = ask(certificate, url, "/v1/ledger", token=token, after=after, count=_PAGE)
        entries += page["entries"]
        spent, after = page["spent"], page["next"]
    if as_json:
        say_json({"spent": spent, "entries": entries})
        return
    table = Table("job", "round", "clients", "mu")
    for (job, number, mu), clients in Counter(
        (str(each["job"]), int(each["number"]), float(each["mu"])) for each in entries
    ).items():
        table.add_row(plain(job[:12]), str(number), f"{clients:,}", f"{mu:.4g}")
    show(table)
    epsilon = spent["epsilon"]
    say(
        f"Epsilon of {spent['clients']:,} clients at delta {spent['delta']:.3g}: least "
        f"{epsilon['least']:.4g}, median {epsilon['median']:.4g}, most {epsilon['most']:.4g}; "
        f"you allow {spent['maximum_epsilon']:.4g}."
    )

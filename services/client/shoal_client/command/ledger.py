"""`shoal ledger`: what was spent so far, as the trainer and a data holder keep it, and whether
a ledger is whole."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.table import Table

from shoal_client.command.connection import (
    ConsortiumDirectory,
    PartyDirectory,
    ask,
    ask_trainer,
    open_book,
)
from shoal_client.command.inputs import read_file, read_standard_input
from shoal_client.command.ledger_pages import (
    AgentPage,
    ChainPage,
    CrowdSpending,
    Exported,
    HeldBudget,
    Line,
    RecordsLeft,
    Spent,
    TrainerLine,
    TrainerPage,
    verified,
)
from shoal_client.command.terminal import AsJson, ExitStatus, fail, plain, say, say_json, show
from shoal_client.private_files import read_private
from shoal_protocol.certificates import ReleaseCertificate
from shoal_protocol.documents import decode
from shoal_protocol.errors import MalformedDocument, ProtocolError
from shoal_protocol.ledger import (
    Chain,
    LedgerEntry,
    check_anchors,
    counted,
    in_words,
)

app = typer.Typer(no_args_is_help=True, help="Show what was spent of the privacy budget.")

_MOST: Final = 2_000  # entries in one answer: the agent has other work than to list more at once
_DIGITS = 12  # enough to tell digests apart
_CHAIN = ("", "kind", "job", "round", "clients", "mu", "pure epsilon", "digest")


@app.command()
def trainer(
    party: PartyDirectory, consortium: ConsortiumDirectory, as_json: AsJson = False
) -> None:
    """Show every round that the trainer charged, or gave back because it never began.

    The epsilon so far is that of the client of the round's population who has spent most. The
    chain of entries is checked; `shoal ledger verify` checks what --json printed again.
    """
    book = open_book(party, consortium)
    lines: list[TrainerLine] = []
    chain = Chain()
    following: int | None = 0
    while following is not None:
        page = ask_trainer(TrainerPage, book, "/v1/ledger", after=following)
        for line in page.entries:
            chain.follow(line.entry())
        lines += page.entries
        following = page.next if page.entries else None
    if as_json:
        say_json(_exported(lines, chain))
        return
    table = Table(*_CHAIN, "epsilon so far", "at delta")
    for each in lines:
        table.add_row(*_cells(each), _number(each.cumulative_epsilon), f"{each.delta:.3g}")
    show(table)
    say(_unbroken(chain))


@app.command()
def agent(
    directory: Annotated[
        Path, typer.Option("--agent", help="The agent's directory, with its tls.crt.")
    ],
    data: Annotated[Path, typer.Option(help="The agent's data directory, with owner.token.")],
    url: Annotated[str, typer.Option(help="https://host:port of the agent.")],
    every: Annotated[
        bool, typer.Option("--all", help="Each contribution to a crowd, too, not their sums only.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what each round and crowd job cost your own clients, from your own agent's ledger.

    One entry is of the clients who were answered for together, or of one contribution to a crowd;
    --json shows all of them and each client's. Jobs of either kind use up one cap, but not alike:
    the last lines say what each has left.
    """
    certificate = (directory / "tls.crt").read_text(encoding="ascii")
    token = read_private(data / "owner.token").decode("ascii").strip()
    count = _MOST if as_json else 1
    page = ask(AgentPage, certificate, url, "/v1/ledger", token=token, after=0, count=count)
    spent, clients = page.spent, [*page.entries]
    while as_json and page.next is not None:
        page = ask(
            AgentPage, certificate, url, "/v1/ledger", token=token, after=page.next, count=count
        )
        clients += page.entries
    lines: list[Line] = []
    following: int | None = 0
    while following is not None:
        part = ask(
            ChainPage,
            *(certificate, url, "/v1/ledger/chain"),
            token=token,
            after=following,
            count=_MOST,
        )
        lines, following = lines + part.entries, part.next
    chain = verified(lines)
    if as_json:
        say_json(
            {
                **_exported(lines, chain),
                "spent": spent.model_dump(mode="json"),
                "crowds": [each.model_dump(mode="json") for each in page.crowds],
                "held": [each.model_dump(mode="json") for each in page.held],
                "clients": [each.model_dump(mode="json") for each in clients],
            }
        )
        return
    _show_entries(lines, [] if every else page.crowds)
    _show_held(page.held)
    say(
        f"{len({each.round for each in lines}):,} rounds and contributions to crowds were charged, "
        f"{sum(each.clients for each in lines):,} times to a client."
    )
    say(
        f"Epsilon of {spent.clients:,} clients at delta {spent.delta:.3g}: least "
        f"{_number(spent.epsilon.least)}, median {_number(spent.epsilon.median)}, most "
        f"{_number(spent.epsilon.most)}; you allow {spent.maximum_epsilon:.4g}."
    )
    say(_left(spent))
    say(_unbroken(chain))


def _show_entries(lines: Sequence[Line], crowds: Sequence[CrowdSpending]) -> None:
    """Show entries one by one, but those of `crowds` by job."""
    summed = {each.job for each in crowds}
    table = Table(*_CHAIN)
    for each in lines:
        if each.job not in summed:
            table.add_row(*_cells(each))
    if table.row_count or not crowds:
        show(table)
    if crowds:
        sums = Table("crowd job", "contributions", "clients", "pure epsilon each")
        for crowd in crowds:
            counts = (f"{crowd.contributions:,}", f"{crowd.clients:,}")
            sums.add_row(plain(crowd.job[:_DIGITS]), *counts, _number(crowd.epsilon))
        show(sums)


def _show_held(held: Sequence[HeldBudget]) -> None:
    """Show what open jobs hold, in all; `shoal agent leave` lets it go."""
    if held:
        table = Table("open job", "clients", "mu in all", "pure epsilon in all", "held until")
        for each in held:
            epsilon = "none" if each.epsilon is None else _number(each.epsilon)
            until = f"{each.until:%Y-%m-%d %H:%M} UTC"
            table.add_row(plain(each.job), f"{each.clients:,}", f"{each.mu:.4g}", epsilon, until)
        show(table)


@app.command()
def verify(
    file: Annotated[
        Path, typer.Argument(help="What a ledger command printed with --json; - reads it here.")
    ],
    certificate: Annotated[
        Path | None,
        typer.Option(help="A release certificate, to see whether the ledger was set back."),
    ] = None,
) -> None:
    """Check that a ledger is one unbroken chain and, with a certificate, that none of it is gone.

    A ledger that was cut off at its end, or set back to a backup, is a whole chain still: a
    release that it was charged for shows it. The certificate itself is checked by
    `shoal certificate verify`. It anchors the ledgers of the trainer and the Compute nodes only:
    of a data holder's ledger nobody else holds an entry. What was printed beside the entries, such
    as the epsilon so far, is not part of the chain and is not checked.

    It asks nobody. Exit status 1: the ledger does not hold, or it or the certificate cannot be
    read; 2: wrong usage.
    """
    content = read_standard_input() if str(file) == "-" else read_file(file)
    try:
        value = json.loads(content)
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not JSON (line {error.lineno})") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not JSON: it is not UTF-8") from None
    ledger = Exported.model_validate(value)
    anchors = None if certificate is None else _read_anchors(certificate)
    try:
        chain = ledger.whole()
        if anchors is not None:
            kept = [entry for entry in anchors if entry.ledger == chain.ledger]
            if not kept:
                raise ValueError(
                    f"{certificate} holds no entry of this ledger, so it shows nothing: a "
                    "certificate has entries of the trainer's and the Compute nodes' ledgers only"
                )
            check_anchors([each.entry() for each in ledger.entries], kept)
            say(f"What the release holds of the ledger, {counted(len(kept))}, is in it unchanged.")
    except MalformedDocument as error:
        fail(f"the ledger does not hold: {error}", ExitStatus.MISTAKE)
    say(_unbroken(chain))
    if ledger.entries:
        say("Sums and clients printed beside the entries are not in the chain: not checked.")


def _read_anchors(certificate: Path) -> list[LedgerEntry]:
    try:
        release = decode(read_file(certificate), ReleaseCertificate).body
    except ProtocolError as error:
        fail(f"{certificate} is no release certificate. {error}", ExitStatus.MISTAKE)
    return [entry for each in release.rounds for entry in each.ledger_entries]


def _exported(lines: Sequence[Line], chain: Chain) -> dict[str, Any]:
    """Return a verified ledger as `verify` takes it."""
    entries = [each.model_dump(mode="json", by_alias=True) for each in lines]
    return {"entries": entries, "head": chain.head._asdict()}


def _cells(line: Line) -> tuple[str, ...]:
    """Return the cells of an entry, all of which were checked to be what they seem."""
    return (
        str(line.number),
        line.kind,
        line.job[:_DIGITS],
        line.round[:_DIGITS],
        f"{line.clients:,}",
        f"{line.mu:.4g}",
        "none" if line.epsilon is None else _number(line.epsilon),
        line.shown_digest[:_DIGITS],
    )


def _number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"


def _left(spent: Spent) -> str:
    pure, gaussian = spent.left.pure, spent.left.gaussian
    return (
        "Left to the client with the least: "
        + (f"epsilon {pure:.4g} for pure jobs, " if pure else "nothing for pure jobs, ")
        + (f"epsilon {gaussian:.4g} at delta {spent.delta:.3g}" if gaussian else "nothing")
        + " for Gaussian jobs. What open jobs may still ask for is counted as spent."
        + _left_to_records(spent.left_to_records)
    )


def _left_to_records(left: RecordsLeft | None) -> str:
    if left is None:
        return " Crowd jobs are not allowed."
    return (
        f" For crowd jobs, of the epsilon {left.maximum:.4g} that you allow one record: "
        f"{left.least:.4g} to those of the client with the least, {left.most:.4g} with the most, "
        "and to no client more than it has for pure jobs."
    )


def _unbroken(chain: Chain) -> str:
    return "The ledger is empty." if chain.ledger is None else in_words(chain.ledger, chain.head)

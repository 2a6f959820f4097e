"""`shoal ledger`: shows what was charged, and whether a ledger is whole."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from shoal_agent.console.sentences import in_epsilon
from shoal_agent.status import (
    AgentPage,
    ChainPage,
    Exported,
    Line,
    Spent,
    TrainerPage,
    verified,
)
from shoal_command.connection import (
    AgentData,
    AgentDirectory,
    AgentUrl,
    PartyDirectory,
    ServiceData,
    own_agent,
    own_service,
    read_file,
)
from shoal_command.terminal import AsJson, ExitStatus, fail, say, tell
from shoal_holder.journal import checked
from shoal_protocol.certificates.release_certificate import read_certificate
from shoal_protocol.journal import Shown
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.job_costs import epsilon_at
from shoal_protocol.privacy.ledger import Chain, LedgerEntry, counted
from shoal_protocol.privacy.ledger_checks import check_anchors, in_words
from shoal_protocol.wire.encoding import decode_clients
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

app = typer.Typer(no_args_is_help=True, help="Show what was spent of the privacy budget.")

_MOST: Final = 2_000  # entries in one answer: the agent has other work than to list more at once


@app.command()
def trainer(
    party: PartyDirectory,
    data: ServiceData,
    as_json: AsJson = False,
) -> None:
    """Show every round that your own trainer charged, or gave back because it never began.

    Jobs that their analysts withdrew are named below: what they charged stays. The epsilon so far
    is that of the client of the round's population who has spent most. The chain of entries is
    checked; `shoal ledger verify` checks what --json printed again.
    """
    pages = list(own_service(party, data).pages(TrainerPage, "/v1/ledger"))
    lines, withdrawn = [line for page in pages for line in page.entries], pages[-1].withdrawn
    chain = verified(lines)
    entries = [
        {
            **_cells(each, each.delta),
            "epsilon so far": math.inf
            if each.cumulative_epsilon is None
            else each.cumulative_epsilon,
            "at delta": each.delta,
        }
        for each in lines
    ]
    tell(
        {**_exported(lines, chain), "withdrawn": withdrawn},
        as_json,
        {"entries": entries},
        _unbroken(chain),
        *(f"Withdrawn by its analyst: job {each}." for each in withdrawn),
    )


@app.command()
def agent(
    directory: AgentDirectory,
    data: AgentData,
    url: AgentUrl,
    every: Annotated[
        bool, typer.Option("--all", help="Each contribution to a crowd, too, not their sums only.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what each round and crowd job cost your own clients, from your own agent's journal.

    One entry is of the clients who were answered for together, or of one contribution to a crowd;
    --json shows all of them. Jobs of either kind use up one cap, but not alike:
    the last lines say what each has left.
    """
    service = own_agent(directory, url, data)
    page = service.ask(AgentPage, "/v1/ledger")
    chain_pages = service.pages(ChainPage, "/v1/ledger/chain", count=_MOST)
    entries = [entry for each in chain_pages for entry in each.entries]
    head = checked(entries)
    summed = {crowd.job for crowd in page.crowds if not every}
    charged = [found for each in entries if (found := _charged(each, page.spent.delta))]
    tell(
        {
            "entries": entries,
            "head": head._asdict(),
            "spent": page.spent,
            "crowds": page.crowds,
            "reserved": page.reserved,
        },
        as_json,
        {
            "entries": [each for each in charged if each["job"] not in summed],
            "crowd_jobs": [] if every else page.crowds,
            "reserved_by_open_jobs": [
                {
                    **{name: getattr(each, name) for name in ("job", "slots", "until")},
                    "epsilon": in_epsilon(each, page.spent.delta),
                }
                for each in page.reserved
            ],
        },
        *_sentences(page.spent, charged),
        f"The journal is one unbroken chain of {counted(head.number)}, whose last is {head.hash}.",
    )


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
    content = read_file(file)
    try:
        ledger = Exported.model_validate(json.loads(content))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    anchors = None if certificate is None else _anchors(certificate)
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
        say("Sums printed beside the entries are not in the chain: not checked.")


def _anchors(certificate: Path) -> list[LedgerEntry]:
    try:
        release = read_certificate(read_file(certificate))
    except ProtocolError as error:
        fail(f"{certificate} is no release certificate. {error}", ExitStatus.MISTAKE)
    return [entry for each in release.rounds for entry in each.ledger_entries]


def _exported(lines: Sequence[Line], chain: Chain) -> dict[str, Any]:
    """Return a verified ledger as `verify` takes it."""
    return {"entries": lines, "head": chain.head._asdict()}


def _cells(line: Line, delta: float) -> dict[str, Any]:
    return {
        "": line.number,
        **{name: getattr(line, name) for name in ("kind", "job", "round", "clients")},
        "epsilon": in_epsilon(line, delta),
        "digest": line.shown_digest,
    }


def _charged(entry: Shown, delta: float) -> dict[str, Any] | None:
    """Return the cells of an entry of a data holder's journal; None if it charges nobody."""
    said = entry.statement
    if said is None or said.kind not in ("answer", "charge", "contribution"):
        return None
    of = said.document
    return {
        "": entry.number,
        "kind": said.kind,
        "job": of["job"],
        "round": of.get("round", said.subject),
        "clients": len(decode_clients(of["slots"])),
        "epsilon": epsilon_at(delta, Cost.stated(of["mu"], of["epsilon"])),
        "hash": entry.hash,
    }


def _number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"


def _sentences(spent: Spent, charged: Sequence[dict[str, Any]]) -> list[str]:
    pure, gaussian, crowds = spent.left.pure, spent.left.gaussian, spent.left_for_crowds
    return [
        f"{len({each['round'] for each in charged}):,} rounds and contributions to crowds were "
        f"charged, {sum(each['clients'] for each in charged):,} times to a client.",
        f"Every epsilon here is at delta {spent.delta:.3g}, but for pure jobs and crowd jobs, "
        "which need none. They do not add up: what is left says what one more job may cost.",
        f"Epsilon of {spent.clients:,} clients at delta {spent.delta:.3g}: least "
        f"{_number(spent.epsilon.least)}, median {_number(spent.epsilon.median)}, most "
        f"{_number(spent.epsilon.most)}; you allow {spent.maximum_epsilon:.4g}.",
        "Left to the client with the least: "
        + (f"epsilon {pure:.4g} for pure jobs, " if pure else "nothing for pure jobs, ")
        + (f"epsilon {gaussian:.4g} at delta {spent.delta:.3g}" if gaussian else "nothing")
        + " for Gaussian jobs. What open jobs may still ask for is counted as spent.",
        "Crowd jobs are not allowed."
        if crowds is None
        else f"For crowd jobs you allow each client epsilon {crowds.maximum:.4g}. Left: "
        f"{crowds.least:.4g} at the client with the least, {crowds.most:.4g} at the client with "
        "the most, and never more than the client has for pure jobs.",
    ]


def _unbroken(chain: Chain) -> str:
    return "The ledger is empty." if chain.ledger is None else in_words(chain.ledger, chain.head)

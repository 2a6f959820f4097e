"""`shoal ledger`: shows what was charged, and whether a data holder's ledger is whole."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import pydantic
import typer

from shoal_agent.console.sentences import in_epsilon
from shoal_agent.status import (
    AgentPage,
    ChainPage,
    Exported,
    Line,
    Spent,
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
from shoal_protocol.privacy.ledger import Chain, in_words
from shoal_protocol.wire.encoding import Clients, Count, Delta, Digest, Loss, Place
from shoal_protocol.wire.errors import MalformedDocument

app = typer.Typer(no_args_is_help=True, help="Show what was spent of the privacy budget.")


class TrainerLine(pydantic.BaseModel):
    """A charge or a return in the trainer's journal, and what its clients had spent by then."""

    number: Place
    hash: Digest
    kind: str
    round: Digest
    job: Digest
    job_rounds: Place
    clients: Clients
    mu: Loss
    epsilon: Loss | None  # None is infinite, here and below
    cumulative_mu: Loss
    cumulative_epsilon: Loss | None
    delta: Delta


class TrainerPage(pydantic.BaseModel):
    """A part of what the trainer charged."""

    entries: list[TrainerLine]
    next: Count | None
    withdrawn: list[str]


_MOST: Final = 2_000  # entries in one answer: the agent has other work than to list more at once


@app.command()
def trainer(
    party: PartyDirectory,
    data: ServiceData,
    as_json: AsJson = False,
) -> None:
    """Show every round that your own trainer charged, or gave back because it never began.

    Jobs that their analysts withdrew are named below: what they charged stays. The epsilon so far
    is that of the client of the round's population who has spent most. Numbers and hashes are those
    of the trainer's journal, which it checks when it starts.
    """
    pages = list(own_service(party, data).pages(TrainerPage, "/v1/ledger"))
    lines, withdrawn = [line for page in pages for line in page.entries], pages[-1].withdrawn
    entries = [
        {
            **_cells(each, each.delta),
            "epsilon so far": math.inf
            if each.cumulative_epsilon is None
            else each.cumulative_epsilon,
            "at delta": each.delta,
            "hash": each.hash,
        }
        for each in lines
    ]
    tell(
        {"entries": lines, "withdrawn": withdrawn},
        as_json,
        {"entries": entries},
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
    """Show what each round and crowd job cost your own clients, from your own agent's ledger.

    One entry is of the clients who were answered for together, or of one contribution to a crowd;
    --json shows all of them. Jobs of either kind use up one cap, but not alike:
    the last lines say what each has left.
    """
    service = own_agent(directory, url, data)
    page = service.ask(AgentPage, "/v1/ledger")
    chain_pages = service.pages(ChainPage, "/v1/ledger/chain", count=_MOST)
    lines = [line for each in chain_pages for line in each.entries]
    chain = verified(lines)
    summed = [] if every else page.crowds
    tell(
        {
            "entries": lines,
            "head": chain.head._asdict(),
            "spent": page.spent,
            "crowds": page.crowds,
            "reserved": page.reserved,
        },
        as_json,
        {
            "entries": [
                _cells(each, page.spent.delta) | {"digest": each.shown_digest}
                for each in lines
                if each.job not in {crowd.job for crowd in summed}
            ],
            "crowd_jobs": summed,
            "reserved_by_open_jobs": [
                {
                    **{name: getattr(each, name) for name in ("job", "slots", "until")},
                    "epsilon": in_epsilon(each, page.spent.delta),
                }
                for each in page.reserved
            ],
        },
        *_sentences(page.spent, lines),
        _unbroken(chain),
    )


@app.command()
def verify(
    file: Annotated[
        Path,
        typer.Argument(help="What `shoal ledger agent` printed with --json; - reads it here."),
    ],
) -> None:
    """Check that a data holder's ledger is one unbroken chain.

    It asks nobody. Exit status 1: the ledger does not hold or cannot be read; 2: wrong usage.
    """
    content = read_file(file)
    try:
        ledger = Exported.model_validate(json.loads(content))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    try:
        chain = ledger.whole()
    except MalformedDocument as error:
        fail(f"the ledger does not hold: {error}", ExitStatus.MISTAKE)
    say(_unbroken(chain))


def _cells(line: Line | TrainerLine, delta: float) -> dict[str, Any]:
    return {
        "": line.number,
        **{name: getattr(line, name) for name in ("kind", "job", "round", "clients")},
        "epsilon": in_epsilon(line, delta),
    }


def _number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"


def _sentences(spent: Spent, lines: Sequence[Line]) -> list[str]:
    pure, gaussian, crowds = spent.left.pure, spent.left.gaussian, spent.left_for_crowds
    return [
        f"{len({each.round for each in lines}):,} rounds and contributions to crowds were charged, "
        f"{sum(each.clients for each in lines):,} times to a client.",
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

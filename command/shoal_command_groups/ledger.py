"""`shoal ledger`: shows what was charged, and whether a data holder's journal is whole."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import pydantic
import typer

from shoal_agent.console.sentences import crowds as crowd_rows
from shoal_agent.console.sentences import in_epsilon
from shoal_agent.status import (
    AgentPage,
    ChainPage,
    HolderStatus,
    Spent,
    checked_journal,
)
from shoal_command.connection import (
    AgentData,
    AgentDirectory,
    AgentUrl,
    PartyDirectory,
    ServiceData,
    own_agent,
    own_service,
)
from shoal_command.terminal import AsJson, tell
from shoal_protocol.journal import Shown, counted
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.job_costs import epsilon_at
from shoal_protocol.wire.encoding import (
    Count,
    Delta,
    Loss,
    decode_clients,
)

app = typer.Typer(no_args_is_help=True, help="Show what was spent of the privacy budget.")


class ServiceLine(pydantic.BaseModel, extra="allow"):
    """A charge or a return in a service's journal, as far as something is computed of it."""

    mu: Loss
    epsilon: Loss | None  # None is infinite


class ServicePage(pydantic.BaseModel):
    """A part of what a service charged."""

    entries: list[ServiceLine]
    next: Count | None
    withdrawn: list[str]
    delta: Delta


_SHOWN: Final = ("number", "kind", "job", "round", "clients", "hash")
_MOST: Final = 2_000  # entries in one answer: the agent has other work than to list more at once


@app.command()
def service(
    party: PartyDirectory,
    data: ServiceData,
    as_json: AsJson = False,
) -> None:
    """Show every round that your own trainer or Compute node charged, or gave back.

    Jobs that their analysts withdrew are named below: what they charged stays. Numbers and hashes
    are those of the service's journal, which it checks when it starts.
    """
    pages = list(own_service(party, data).pages(ServicePage, "/v1/ledger"))
    lines, last = [line for page in pages for line in page.entries], pages[-1]
    entries = [
        {
            **{name: getattr(each, name) for name in _SHOWN},
            "epsilon": in_epsilon(each, last.delta),
        }
        for each in lines
    ]
    tell(
        {"entries": lines, "withdrawn": last.withdrawn, "delta": last.delta},
        as_json,
        {"entries": entries},
        f"Every epsilon is at delta {last.delta:g}.",
        *(f"Withdrawn by its analyst: job {each}." for each in last.withdrawn),
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
    --json shows all of them. Pure and Gaussian jobs use up one cap, but not alike:
    the last lines say what each has left.
    """
    service = own_agent(directory, url, data)
    page = service.ask(AgentPage, "/v1/ledger")
    crowds = service.ask(HolderStatus, "/v1/status").crowds
    chain_pages = service.pages(ChainPage, "/v1/ledger/chain", count=_MOST)
    entries = [entry for each in chain_pages for entry in each.entries]
    head = checked_journal(entries)
    summed = {each.job for each in crowds if not every}
    charged = [found for each in entries if (found := _charged(each, page.spent.delta))]
    tell(
        {
            "entries": entries,
            "head": head._asdict(),
            "spent": page.spent,
            "crowds": crowds,
            "reserved": page.reserved,
        },
        as_json,
        {
            "entries": [each for each in charged if each["job"] not in summed],
            "crowd_jobs": [] if every else crowd_rows(crowds),
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
    pure, gaussian = spent.left.pure, spent.left.gaussian
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
    ]

"""`shoal round account`: what became of each client of a round, from what all parties signed."""

import asyncio
from typing import Annotated, Any

import typer
from rich.table import Table

from shoal_client.command.connection import (
    ASK_WITHIN_SECONDS,
    ConsortiumDirectory,
    PartyDirectory,
    checked_round,
    open_book,
)
from shoal_client.command.terminal import AsJson, Refused, asking, plain, say, say_json, show, warn
from shoal_client.peer import OK
from shoal_hosting.exchange import LARGEST_ANSWER_BYTES, Connection, Unavailable
from shoal_hosting.manifest_book import ManifestBook
from shoal_protocol.accounts import Account, account_of
from shoal_protocol.attestations import (
    Abandonment,
    AbandonmentReason,
    Holdings,
    PartialSum,
    Result,
    Vote,
)
from shoal_protocol.documents import Signed, from_json
from shoal_protocol.errors import MalformedDocument, ProtocolError
from shoal_protocol.manifest import Consortium, ServiceParty
from shoal_protocol.rounds import RoundSpec

app = typer.Typer(no_args_is_help=True, help="Look into one round.")

_KINDS = (Holdings, Vote, PartialSum, Result, Abandonment)


@app.callback()
def _group() -> None:
    """Look into one round."""


@app.command()
def account(
    round_id: Annotated[str, typer.Argument(help="The round's id.", metavar="ROUND")],
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    as_json: AsJson = False,
    clients: Annotated[bool, typer.Option("--clients", help="List every client.")] = False,
) -> None:
    """Ask all nodes and the aggregator what they signed, and say what became of the clients.

    Whoever holds the consortium's manifest can run this: it believes signatures only.

    Exit status: 0 told, whatever became of the round, also where some did not answer; 1 an id or a
    directory is wrong; 2 wrong usage; 3 no Compute node that answers knows the round.
    """
    book, round_id = open_book(party, consortium), checked_round(round_id)
    with asking("all Compute nodes and the aggregator"):
        spec, of_round, documents = asyncio.run(_gather(book, round_id))
    found = account_of(spec, of_round, documents)
    sums = _summed(spec, of_round, documents)
    if as_json:
        listed = list(spec.body.clients()) if clients else []
        say_json(_as_json(found, listed) | {"partial_sums": sums})
        return
    _show(found)
    _show_sums(sums)
    if clients:
        table = Table("client", "what became of it")
        for client in spec.body.clients():
            table.add_row(str(client), found.of(client))
        show(table)


async def _gather(
    book: ManifestBook, round_id: str
) -> tuple[Signed[RoundSpec], Consortium, list[Signed[Any]]]:
    manifest, base = book.current.manifest, f"/v1/rounds/{round_id}"
    spec: Signed[RoundSpec] | None = None
    documents: list[Signed[Any]] = []
    for node in manifest.compute_nodes:
        for value in await _ask(node, f"{base}/spec") if spec is None else []:
            spec = _spec(book, value, round_id)
        documents += _decoded(await _ask(node, f"{base}/documents"), node.name)
    for what in ("result", "abandonment", "partial-sums", "wrong-sums"):
        aggregator = manifest.aggregator
        documents += _decoded(await _ask(aggregator, f"{base}/{what}"), aggregator.name)
    if spec is None:
        raise Refused("no Compute node that answers knows a round of this id")
    return spec, book.get(spec.body.manifest), documents


async def _ask(party: ServiceParty, path: str) -> list[Any]:
    """Return the documents that a party shows: none if it has none, or does not answer."""
    async with Connection(
        party.url, party.certificate, answer_seconds=ASK_WITHIN_SECONDS
    ) as connection:
        try:
            reply = await connection.ask("GET", path, limit_bytes=LARGEST_ANSWER_BYTES)
            value = reply.json() if reply.status == OK else {}
        except (Unavailable, MalformedDocument) as error:
            warn(f"{party.name} does not show what it signed: {error}")
            return []
    if isinstance(value, dict) and isinstance(value.get("documents"), list):
        return list(value["documents"])
    return [value] if value else []


def _spec(book: ManifestBook, value: Any, round_id: str) -> Signed[RoundSpec] | None:
    try:
        signed = from_json(value, RoundSpec)
        book.get(signed.body.manifest).verify(signed)
    except ProtocolError:
        return None
    return signed if signed.digest == round_id else None


def _decoded(values: list[Any], party: str) -> list[Signed[Any]]:
    documents = []
    for value in values:
        try:
            documents.append(from_json(value, *_KINDS))
        except ProtocolError:
            warn(f"{party} shows a document that is none")
    return documents


def _counts(found: Account) -> dict[str, int]:
    left_out = {
        f"left out: no share at {', '.join(nodes)}": len(clients)
        for nodes, clients in found.lacking.items()
    }
    counts = {
        "in the cohort": len(found.cohort),
        **left_out,
        "left out: its shares are of different answers": len(found.differing),
        "left out: the holdings that would say why are not shown": len(found.unexplained),
        found.of_not_released: len(found.not_released),
    }
    return {what: count for what, count in counts.items() if count}


def _said(reason: AbandonmentReason) -> str:
    return f"{reason.code} ({reason.detail})" if reason.detail else reason.code


def _summed(
    spec: Signed[RoundSpec], of_round: Consortium, documents: list[Signed[Any]]
) -> dict[str, list[str]]:
    """Return the nodes whose partial sums the aggregator's result names, and the others."""
    for signed in documents:
        if isinstance(signed.body, Result) and signed.body.round == spec.digest:
            try:
                of_round.verify(signed)
            except ProtocolError:
                continue  # it is counted with the documents that do not verify
            used = {each.node for each in signed.body.partial_sums}
            nodes = spec.body.compute_nodes
            return {
                "used": [name for name in nodes if name in used],
                "not_used": [name for name in nodes if name not in used],
            }
    return {"used": [], "not_used": []}


def _show_sums(sums: dict[str, list[str]]) -> None:
    if sums["used"]:
        without = f"; none of {', '.join(sums['not_used'])}" if sums["not_used"] else ""
        say(f"The result rests on the partial sums of {', '.join(sums['used'])}{without}.")


def _show(found: Account) -> None:
    because = f": {_said(found.reason)}" if found.reason else ""
    say(f"The round is {found.outcome}{because}.")
    for name, reason in found.abandoned_by.items():
        say(f"{name} gave up: {_said(reason)}.")
    table = Table("clients", "what became of them")
    for what, count in _counts(found).items():
        table.add_row(f"{count:,}", plain(what))
    show(table)
    for each in found.misconduct:
        say(f"Misconduct of {each.party}: {each.what}.")
    if found.refused:
        say(f"{found.refused} documents do not verify, or are not of this round.")


def _as_json(found: Account, population: list[int]) -> dict[str, Any]:
    return {
        "outcome": found.outcome,
        "reason": found.reason.model_dump(mode="json") if found.reason else None,
        "abandoned_by": {
            name: reason.model_dump(mode="json") for name, reason in found.abandoned_by.items()
        },
        "counts": _counts(found),
        "misconduct": [{"party": each.party, "what": each.what} for each in found.misconduct],
        "refused_documents": found.refused,
        "clients": {str(client): found.of(client) for client in population},
    }

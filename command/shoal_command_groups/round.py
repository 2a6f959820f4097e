"""`shoal round account`: says what became of each client of a round."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import typer

from shoal.jobs.round_documents import gather
from shoal_command.connection import ConsortiumDirectory, PartyDirectory, checked_id, open_book
from shoal_command.terminal import AsJson, tell, warn
from shoal_protocol.rounds.round_audit import Account, account_of

app = typer.Typer(no_args_is_help=True, help="Look into one round.")


@app.command()
def account(
    round_id: Annotated[str, typer.Argument(help="The round's id.", metavar="ROUND")],
    party: PartyDirectory,
    consortium: ConsortiumDirectory,
    clients: Annotated[bool, typer.Option("--clients", help="List every client.")] = False,
    as_json: AsJson = False,
) -> None:
    """Ask all nodes and the aggregator what they signed, and say what became of the clients.

    Whoever holds the consortium's manifest can run this: it believes signatures only.

    Exit status: 0 told, whatever became of the round, also where some did not answer; 1 an id or a
    directory is wrong; 2 wrong usage; 3 no Compute node that answers knows the round.
    """
    round_id = checked_id(round_id, of="round", listed_by="shoal job watch")
    book = open_book(party, consortium)
    spec, documents = asyncio.run(gather(book, round_id, warn))
    found = account_of(spec, book.get(spec.body.manifest), documents)
    not_used = [name for name in spec.body.compute_nodes if name not in found.summed]
    sums = {"used": list(found.summed), "not_used": not_used if found.summed else []}
    listed = list(spec.body.clients()) if clients else []
    counts = found.counts()
    tell(
        {
            "outcome": found.outcome,
            "reason": found.reason,
            "abandoned_by": found.abandoned_by,
            "counts": counts,
            "misconduct": [{"party": each.party, "what": each.what} for each in found.misconduct],
            "refused_documents": found.refused,
            "clients": {str(client): found.of(client) for client in listed},
            "partial_sums": sums,
        },
        as_json,
        {
            "": [{"clients": count, "what became of them": what} for what, count in counts.items()],
            "every client": [{"client": each, "outcome": found.of(each)} for each in listed] or {},
        },
        *_sentences(found, sums),
    )


def _sentences(found: Account, sums: dict[str, list[str]]) -> Iterator[str]:
    because = f": {found.reason}" if found.reason else ""
    yield f"The round is {found.outcome}{because}."
    for name, reason in found.abandoned_by.items():
        yield f"{name} gave up: {reason}."
    for each in found.misconduct:
        yield f"Misconduct of {each.party}: {each.what}."
    if found.refused:
        yield f"{found.refused} documents do not verify, or are not of this round."
    if sums["used"]:
        without = f"; none of {', '.join(sums['not_used'])}" if sums["not_used"] else ""
        yield f"The result rests on the partial sums of {', '.join(sums['used'])}{without}."

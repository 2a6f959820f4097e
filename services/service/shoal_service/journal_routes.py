"""The HTTP routes of a journal: everybody is shown its chain, the operator what it charged."""

from collections.abc import Callable, Sequence

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from shoal_kit.web.openapi import After, answers, having
from shoal_service.replies import Count, document, shown
from shoal_service.service import Resources
from shoal_service.storage.charges import Ledger
from shoal_service.storage.journal import Journal


def journal_routes(journal: Journal) -> APIRouter:
    """Return GET /v1/journal."""
    router = APIRouter()

    @router.get("/v1/journal", **answers(having("entries", "next")))
    async def show_journal(after: After = 0, count: Count = 100) -> Response:
        """Show entries of the journal in order, beyond the number `after`: hashes, and statements.

        Statements are shown of public kinds alone.
        """
        return document(await journal.shown(after, count))

    return router


def ledger_routes(
    own: Resources, ledger: Ledger, withdrawn: Callable[[Connection], Sequence[str]]
) -> APIRouter:
    """Return GET /v1/ledger; `withdrawn` returns the jobs that their analysts withdrew."""
    router, run = APIRouter(), own.storage.run

    @router.get(
        "/v1/ledger",
        dependencies=own.for_the_operator,
        **answers(having("entries", "next", "withdrawn", "delta")),
    )
    async def show_ledger(after: After = 0, count: Count = 1000) -> Response:
        """List the rounds ever charged or given back and what they cost, but the first `after`.

        `next` is what to ask `after` next, null if there was no more than that. `withdrawn` are all
        jobs that their analysts withdrew. `delta` is the present policy's.
        """
        entries = await run(ledger.page, after=after, count=count)
        page = {
            "entries": entries,
            "next": after + count if len(entries) == count else None,
            "withdrawn": await run(withdrawn),
            "delta": own.book.current.manifest.policy.delta,
        }
        return shown(page)

    return router

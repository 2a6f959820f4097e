"""The HTTP routes of a journal: everybody is shown its chain, the operator what it charged."""

from collections.abc import Callable, Sequence

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from shoal_kit.web.openapi import ANY, After, answers, having, signed
from shoal_protocol.keeping import HEADS_PATH, KeptHeads
from shoal_service.keepers import Keepers
from shoal_service.replies import Count, document, shown
from shoal_service.service import Resources
from shoal_service.storage.charges import Ledger


def journal_routes(keepers: Keepers) -> APIRouter:
    """Return GET /v1/journal and POST /v1/journal/heads."""
    router = APIRouter()

    @router.get("/v1/journal", **answers(having("entries", "next")))
    async def show_journal(after: After = 0, count: Count = 100) -> Response:
        """Show entries of the journal in order, beyond the number `after`: hashes, and statements.

        Statements are shown of public kinds alone.
        """
        return document(await keepers.journal.shown(after, count))

    @router.post(HEADS_PATH, **answers(signed(KeptHeads), takes=ANY))
    async def tell_heads(request: Request) -> Response:
        """Tell, signed, what is kept here of journals; a newer head that comes along is kept."""
        return document(await keepers.keeper.answer(await request.body()))

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

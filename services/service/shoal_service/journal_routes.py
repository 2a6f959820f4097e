"""The HTTP route by which a service shows its journal to everybody."""

from fastapi import APIRouter, Response

from shoal_kit.web.openapi import After, answers, having
from shoal_service.replies import Count, document
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

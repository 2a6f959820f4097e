"""The HTTP routes by which a service shows its manifest and is handed the next version."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from shoal_hosting.manifest_book import ManifestBook
from shoal_protocol.errors import StorageUnavailable
from shoal_protocol.manifest import Consortium
from shoal_protocol.manifest_bundle import bundle, unbundle

MANIFEST_LIMIT_BYTES: Final = 128 << 20  # with the roster: 43 bytes for each enrolled client


def manifest_routes(
    book: ManifestBook, *, accepted: Callable[[], Awaitable[None]] | None = None
) -> APIRouter:
    """Return GET and PUT /v1/manifest, and GET /v1/manifests/{sequence} for each accepted version.

    A version is acknowledged after `accepted`, which may hand it to other processes, has returned.

    Anyone may relay a version; the signature decides.

    Versions are judged one by one, for judging takes several times a body's size in memory.
    """
    router = APIRouter()
    judging = asyncio.Lock()
    encoding = asyncio.Lock()
    latest: dict[str, bytes] = {}  # the bundle asked for last: a large roster takes long to encode

    async def encoded(consortium: Consortium) -> Response:
        async with encoding:
            if consortium.digest not in latest:
                content = await run_in_threadpool(bundle, consortium)
                latest.clear()
                latest[consortium.digest] = content
            return Response(latest[consortium.digest], media_type="application/json")

    def accept(body: bytes) -> Consortium:
        try:
            return book.accept(*unbundle(body))
        except OSError as error:
            raise StorageUnavailable("the manifest could not be stored") from error

    @router.get("/v1/manifest")
    async def show_manifest() -> Response:
        return await encoded(book.current)

    @router.get("/v1/manifests/{sequence}")
    async def show_version(sequence: int) -> Response:
        return await encoded(book.version(sequence))

    @router.put("/v1/manifest")
    async def put_manifest(request: Request) -> dict[str, Any]:
        body = await request.body()
        async with judging:
            consortium = await run_in_threadpool(accept, body)
        if accepted is not None:
            await accepted()
        return {"manifest": consortium.digest, "sequence": consortium.manifest.sequence}

    return router

"""The HTTP routes by which a service shows its manifest and is handed the next version."""

import asyncio
import base64
import binascii
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from shoal_hosting.manifest_book import ManifestBook
from shoal_protocol.encoding import canonical_json, parse_canonical_json
from shoal_protocol.errors import MalformedDocument, StorageUnavailable
from shoal_protocol.manifest import Consortium

MANIFEST_LIMIT_BYTES: Final = 128 << 20  # with the roster: 43 bytes for each enrolled client


def bundle(consortium: Consortium) -> bytes:
    """Return the body that hands a manifest version with its roster to a service."""
    roster = base64.b64encode(consortium.roster.encode()).decode()
    return canonical_json({"manifest": consortium.signed_manifest.to_json(), "roster": roster})


def _unbundle(body: bytes) -> tuple[bytes, bytes]:
    value: Any = parse_canonical_json(body)
    if not isinstance(value, dict) or value.keys() != {"manifest", "roster"}:
        raise MalformedDocument("the body has the fields manifest and roster")
    try:
        roster = base64.b64decode(value["roster"], validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise MalformedDocument("roster must be base64") from error
    return canonical_json(value["manifest"]), roster


def manifest_routes(book: ManifestBook) -> APIRouter:
    """Return GET and PUT /v1/manifest, and GET /v1/manifests/{sequence} for each accepted version.

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
            return book.accept(*_unbundle(body))
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
        return {"manifest": consortium.digest, "sequence": consortium.manifest.sequence}

    return router

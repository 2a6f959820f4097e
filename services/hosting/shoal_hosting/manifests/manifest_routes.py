"""The HTTP routes by which a service shows its manifest and is handed the next version."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_hosting.manifests.manifest_intake import ManifestIntake
from shoal_hosting.server.openapi import (
    BINARY,
    IN_PATH,
    JSON,
    OCTETS,
    SIGNED,
    TEXT,
    answers,
    having,
    signed,
    with_optional,
)
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.succession import TooFewWitnesses, WrongProof
from shoal_protocol.wire.errors import UnknownManifest

MANIFEST_PATH: Final = "/v1/manifest"
SIGNED_MANIFEST: Final = with_optional(signed(Manifest), log_proof=TEXT)
MANIFEST_LIMIT_BYTES: Final = 256 << 20  # with the roster: 32 bytes for each enrolled client


def manifest_routes(
    book: ManifestBook, *, accepted: Callable[[], Awaitable[None]] | None = None
) -> APIRouter:
    """Return GET and PUT /v1/manifest, and GET of each accepted version and of each roster.

    A version is acknowledged after `accepted`, which may hand it to other processes, has returned.

    Anyone may relay a version; the signature decides.
    """
    router = APIRouter()
    intake = ManifestIntake(book)

    def shown(consortium: Consortium) -> Response:
        return Response(consortium.signed_manifest.encode(), media_type=JSON)

    @router.get(MANIFEST_PATH, **answers(SIGNED_MANIFEST))
    async def show_manifest() -> Response:
        """Serve the signed manifest in force."""
        return shown(book.current)

    @router.get("/v1/manifests/{sequence}", **answers(SIGNED_MANIFEST, UnknownManifest))
    async def show_version(sequence: int) -> Response:
        """Serve an accepted version of the signed manifest."""
        return shown(book.version(sequence))

    @router.get("/v1/rosters/{digest}", **answers(BINARY, UnknownManifest, as_type=OCTETS))
    async def show_roster(digest: Annotated[str, IN_PATH]) -> Response:
        """Serve the roster that an accepted version names by this digest."""
        return Response(book.roster(digest).encode(), media_type=OCTETS)

    @router.put(
        MANIFEST_PATH,
        **answers(
            having("manifest", "sequence"),
            *SIGNED,
            TooFewWitnesses,
            WrongProof,
            takes=BINARY,
            as_body=OCTETS,
        ),
    )
    async def put_manifest(request: Request) -> Response:
        """Take the next version: its signed manifest behind its length, then its roster."""
        consortium = await intake.take(request.stream())
        if accepted is not None:
            await accepted()
        return JSONResponse(
            {"manifest": consortium.digest, "sequence": consortium.manifest.sequence}
        )

    return router

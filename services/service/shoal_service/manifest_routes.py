"""The HTTP routes by which a service shows its manifest and is handed the next version."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Final

import structlog
from fastapi import APIRouter, Request, Response

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.web.openapi import (
    BINARY,
    IN_PATH,
    OCTETS,
    TEXT,
    answers,
    having,
    signed,
)
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.manifest_bundle import LENGTH_BYTES, manifest_length
from shoal_protocol.trust.succession import announced
from shoal_protocol.wire.errors import (
    MalformedDocument,
)
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.replies import document, shown

log = structlog.get_logger()


async def _split(stream: AsyncIterator[bytes]) -> tuple[bytes, AsyncIterator[bytes]]:
    """Return the signed manifest at the beginning of a body, and the roster's parts as they arrive.

    Raises:
        MalformedDocument: the body does not begin with a manifest behind its length.
    """
    head, end = b"", LENGTH_BYTES
    async for part in stream:
        head += part
        if len(head) >= LENGTH_BYTES:
            end = LENGTH_BYTES + manifest_length(head[:LENGTH_BYTES])
        if len(head) >= end > LENGTH_BYTES:
            return head[LENGTH_BYTES:end], _followed(head[end:], stream)
    raise MalformedDocument("the body ends before the manifest is complete")


async def _followed(first: bytes, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for part in stream:
        yield part


class ManifestIntake:
    """Takes versions in and has the book accept them. For one event loop.

    Anyone may send one: a small signed manifest, then exactly its roster. The manifest's signatures
    are verified before the roster is read. Rosters are checked one by one, because a check takes
    several times a roster's size in memory.
    """

    def __init__(self, book: ManifestBook) -> None:
        self._book = book
        self._judging = asyncio.Lock()

    async def take(self, stream: AsyncIterator[bytes]) -> Consortium:
        """Return the version, which is in force, or was known; it is read to its end.

        Raises:
            MalformedDocument, WrongManifest, BadSignature, TooFewSignatures: as
                `following_version`, as soon as it is clear.
            StorageUnavailable: it could not be stored.
        """
        signed_manifest, parts = await _split(stream)
        known = await asyncio.to_thread(self._book.known, signed_manifest)
        if known is not None:
            async for _ in parts:
                continue  # what follows is not needed: the version is known
            return known
        following = await asyncio.to_thread(announced, self._book.current, signed_manifest)
        roster = bytearray()
        async for part in parts:
            roster += part
            if len(roster) > following.body.roster.size_bytes:
                raise MalformedDocument("more follows the roster")
        try:
            async with self._judging:
                return await asyncio.to_thread(self._accept, signed_manifest, bytes(roster))
        except OSError as error:
            raise StorageUnavailable("the manifest could not be stored") from error

    def _accept(self, signed_manifest: bytes, roster: bytes) -> Consortium:
        accepted = self._book.accept(signed_manifest, roster)
        if accepted.manifest.emergency is not None:
            log.warning(
                "this version of the manifest was signed in an emergency, without a quorum of the "
                "Compute nodes",
                sequence=accepted.manifest.sequence,
            )
        return accepted


MANIFEST_PATH: Final = "/v1/manifest"
_BARE: Final = signed(Manifest)
SIGNED_MANIFEST: Final = {**_BARE, "properties": {**_BARE["properties"], "countersignatures": TEXT}}
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

    @router.get(MANIFEST_PATH, **answers(SIGNED_MANIFEST))
    async def show_manifest() -> Response:
        """Serve the signed manifest in force."""
        return document(book.current.signed_manifest.encode())

    @router.get("/v1/manifests/{sequence}", **answers(SIGNED_MANIFEST))
    async def show_version(sequence: int) -> Response:
        """Serve an accepted version of the signed manifest."""
        return document(book.version(sequence).signed_manifest.encode())

    @router.get("/v1/rosters/{digest}", **answers(BINARY, as_type=OCTETS))
    async def show_roster(digest: Annotated[str, IN_PATH]) -> Response:
        """Serve the roster that an accepted version names by this digest."""
        return document(book.roster(digest).encode(), media_type=OCTETS)

    @router.put(
        MANIFEST_PATH,
        **answers(
            having("manifest", "sequence"),
            takes=BINARY,
            as_body=OCTETS,
        ),
    )
    async def put_manifest(request: Request) -> Response:
        """Take the next version: its signed manifest behind its length, then its roster."""
        consortium = await intake.take(request.stream())
        if accepted is not None:
            await accepted()
        return shown({"manifest": consortium.digest, "sequence": consortium.manifest.sequence})

    return router

"""The HTTP routes by which a service shows its manifest and is handed the next version."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Annotated, Final

import structlog
from fastapi import APIRouter, Request, Response

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.web.openapi import (
    BINARY,
    IN_PATH,
    OCTETS,
    SIGNED,
    TEXT,
    answers,
    having,
    signed,
)
from shoal_protocol.trust.manifest import Consortium, Manifest
from shoal_protocol.trust.manifest_bundle import LENGTH_BYTES, manifest_length
from shoal_protocol.trust.roster import RosterReference, roster_digest
from shoal_protocol.trust.succession import announced
from shoal_protocol.wire.errors import (
    MalformedDocument,
    NotReady,
    TooFewSignatures,
    UnknownManifest,
)
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.replies import document, shown

log = structlog.get_logger()

MOST_AT_ONCE: Final = 4
GRACE_SECONDS: Final = 5.0


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


@dataclass(eq=False)
class _Upload:
    """A roster that is being received."""

    patience: asyncio.Timeout
    began: float
    received_bytes: int = 0


class ManifestIntake:
    """Takes versions in as streams and has the book accept them. For one event loop.

    Anyone may send one: a small signed manifest, then exactly its roster. So the authority's
    signature is verified before the roster is read, and the roster is only hashed until it is
    complete and its digest is right.

    Up to `MOST_AT_ONCE` rosters are received to disk; they are checked one by one, because a check
    takes several times a roster's size in memory. When another one arrives, the slowest gives way
    after `GRACE_SECONDS`: a sender that has only the next manifest can begin any number of uploads,
    and must not keep out one that also has the roster.
    """

    def __init__(self, book: ManifestBook) -> None:
        self._book = book
        self._judging = asyncio.Lock()
        self._coming: dict[_Upload, None] = {}

    async def take(self, stream: AsyncIterator[bytes]) -> Consortium:
        """Return the version, which is in force, or was known; it is read to its end.

        Raises:
            MalformedDocument, WrongManifest, BadSignature, TooFewSignatures: as
                `following_version`, as soon as it is clear.
            NotReady: too many others come.
            StorageUnavailable: it could not be stored.
        """
        signed_manifest, parts = await _split(stream)
        known = await asyncio.to_thread(self._book.known, signed_manifest)
        if known is not None:
            async for _ in parts:
                continue  # what follows is not needed: the version is known
            return known
        following = await asyncio.to_thread(announced, self._book.current, signed_manifest)
        try:
            async with asyncio.timeout(None) as patience:
                return await self._take_roster(
                    parts, signed_manifest, following.body.roster, patience
                )
        except TimeoutError:
            raise NotReady("another roster comes faster") from None
        except OSError as error:
            raise StorageUnavailable("the manifest could not be stored") from error

    async def _take_roster(
        self,
        parts: AsyncIterator[bytes],
        signed_manifest: bytes,
        named: RosterReference,
        patience: asyncio.Timeout,
    ) -> Consortium:
        upload = _Upload(patience, asyncio.get_running_loop().time())
        digest = roster_digest()

        def add(part: bytes) -> None:
            digest.update(part)
            file.write(part)

        self._book.directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=self._book.directory) as file:
            with self._place_for(upload):
                async for part in parts:
                    upload.received_bytes += len(part)
                    if upload.received_bytes > named.size_bytes:
                        raise MalformedDocument("more follows the roster")
                    await asyncio.to_thread(add, part)
                if digest.hexdigest() != named.digest:
                    raise MalformedDocument(
                        "the roster is not whole, or not the one that the manifest names"
                    )
            async with self._judging:
                return await asyncio.to_thread(self._accept, signed_manifest, file)

    def _accept(self, signed_manifest: bytes, file: IO[bytes]) -> Consortium:
        file.seek(0)
        accepted = self._book.accept(signed_manifest, file.read())
        if accepted.manifest.emergency is not None:
            log.warning(
                "this version of the manifest was signed in an emergency, without a quorum of the "
                "Compute nodes",
                sequence=accepted.manifest.sequence,
            )
        return accepted

    @contextmanager
    def _place_for(self, upload: _Upload) -> Iterator[None]:
        if len(self._coming) >= MOST_AT_ONCE:
            now = asyncio.get_running_loop().time()
            slow = [each for each in self._coming if now >= each.began + GRACE_SECONDS]
            if not slow:
                raise NotReady("too many rosters come at once")
            slowest = min(slow, key=lambda each: each.received_bytes / max(now - each.began, 1.0))
            del self._coming[slowest]
            slowest.patience.reschedule(now)
        self._coming[upload] = None
        try:
            yield
        finally:
            self._coming.pop(upload, None)


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

    @router.get("/v1/manifests/{sequence}", **answers(SIGNED_MANIFEST, UnknownManifest))
    async def show_version(sequence: int) -> Response:
        """Serve an accepted version of the signed manifest."""
        return document(book.version(sequence).signed_manifest.encode())

    @router.get("/v1/rosters/{digest}", **answers(BINARY, UnknownManifest, as_type=OCTETS))
    async def show_roster(digest: Annotated[str, IN_PATH]) -> Response:
        """Serve the roster that an accepted version names by this digest."""
        return document(book.roster(digest).encode(), media_type=OCTETS)

    @router.put(
        MANIFEST_PATH,
        **answers(
            having("manifest", "sequence"),
            *SIGNED,
            TooFewSignatures,
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

"""Brings two services to the same version of the manifest, over a connection that anyone may hold.

Manifests and rosters are public, and authenticate themselves along the authority's chain. So it
does not matter who carries them: whoever answers in a service's place learns nothing that is not
public, and can have nothing accepted that the authority did not sign. It may only keep a version
back, as anyone can who cuts the line.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.peers.exchange import Connection, Reply, Unavailable
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.manifest_bundle import bundle
from shoal_protocol.trust.succession import announced
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import UnknownManifest

_SMALL_BYTES: Final = 1 << 20


async def exchange(connection: Connection, book: ManifestBook) -> bool:
    """Take the versions that follow ours, or hand over those that the service lacks.

    Returns:
        Whether anything changed on either side.

    Raises:
        Unavailable: it does not answer, or does not take a version.
        ProtocolError: what it sends is no version that follows.
        OSError: a version could not be stored.
    """

    def get(path: str, limit_bytes: int) -> Awaitable[Reply]:
        return connection.ask("GET", path, limit_bytes=limit_bytes)

    here = book.current.manifest.sequence
    shown = await _read(get, "/v1/manifest", _SMALL_BYTES)
    there = here - 1 if shown is None else decode(shown, Manifest).body.sequence
    if there > here:
        await follow(get, book)
    for sequence in range(there + 1, here + 1):
        try:
            version = book.version(sequence)
        except UnknownManifest:  # older than the one that this party pinned
            return False
        reply = await connection.ask("PUT", "/v1/manifest", bundle(version))
        if reply.status != HTTPStatus.OK:
            raise Unavailable("it does not take the manifest")
    return there != here


async def follow(get: Callable[[str, int], Awaitable[Reply]], book: ManifestBook) -> None:
    """Accept the versions that follow ours one after another, until there is none.

    `get` returns the answer at a path, of so many bytes at most.

    Raises:
        Unavailable, ProtocolError, OSError: as `exchange`; not where there is no further version.
    """
    while True:
        current = book.current
        signed = await _read(get, f"/v1/manifests/{current.manifest.sequence + 1}", _SMALL_BYTES)
        if signed is None:
            return
        named = announced(current, signed).body.roster
        roster: bytes | None = current.roster.encode()
        if named.digest != current.manifest.roster.digest:
            roster = await _read(get, f"/v1/rosters/{named.digest}", named.size_bytes)
        if roster is None:
            raise Unavailable("it does not show the roster")
        book.accept(signed, roster)


async def _read(
    get: Callable[[str, int], Awaitable[Reply]], path: str, limit_bytes: int
) -> bytes | None:
    """Return what is at a path; None: there is nothing."""
    reply = await get(path, limit_bytes)
    if reply.status == HTTPStatus.NOT_FOUND:
        return None
    if reply.status != HTTPStatus.OK:
        raise Unavailable("it shows no manifest")
    return reply.body

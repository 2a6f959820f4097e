"""Whoever answers in a service's place while manifests are compared has nothing accepted."""

from pathlib import Path

import httpx
import pytest
from nacl.signing import SigningKey

from shoal_kit.manifest_book import ManifestBook
from shoal_kit.manifest_exchange import exchange
from shoal_kit.peers.exchange import Connection
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Consortium
from shoal_protocol.trust.manifest_bundle import bundle
from shoal_protocol.wire.documents import sign
from shoal_protocol.wire.errors import BadSignature
from tests.kit.test_manifest_book import SECOND, THIRD
from tests.world.examples import CONSORTIUM

THIEF = SigningKey(b"thief".ljust(32, b"."))


def anybody(*versions: Consortium, signed_by: SigningKey | None = None) -> Connection:
    """Return a connection to who shows these versions, perhaps signed by a key of their own."""

    def answer(request: httpx.Request) -> httpx.Response:
        taken.append((request.method, request.content))
        shown = {each.manifest.sequence: each.signed_manifest for each in versions}
        if signed_by is not None:
            shown = {n: sign(each.body, AUTHORITY_NAME, signed_by) for n, each in shown.items()}
        *_, last = request.url.path.split("/")
        if request.method == "PUT":
            return httpx.Response(200, json={})
        if last == "manifest":
            return httpx.Response(200, content=shown[max(shown)].encode())
        if last.isdigit():
            found = shown.get(int(last))
            content = None if found is None else found.encode()
            return httpx.Response(404 if found is None else 200, content=content)
        rosters = {each.roster.digest: each.roster.encode() for each in versions}
        return httpx.Response(200, content=rosters[last])

    taken: list[tuple[str, bytes]] = []
    connection = Connection("https://x.example", None, transport=httpx.MockTransport(answer))
    connection.taken = taken  # type: ignore[attr-defined]
    return connection


async def test_versions_are_taken_from_anybody_as_the_authority_signed_them(tmp_path: Path) -> None:
    book = ManifestBook(CONSORTIUM, tmp_path)
    assert await exchange(anybody(CONSORTIUM, SECOND, THIRD), book)
    assert book.current.digest == THIRD.digest
    assert not await exchange(anybody(CONSORTIUM, SECOND, THIRD), book)


async def test_who_lags_behind_is_handed_what_is_public_and_no_more(tmp_path: Path) -> None:
    book = ManifestBook(CONSORTIUM, tmp_path)
    await exchange(anybody(CONSORTIUM, SECOND, THIRD), book)
    lagging = anybody(CONSORTIUM)
    assert await exchange(lagging, book)
    put = [content for method, content in lagging.taken if method == "PUT"]  # type: ignore[attr-defined]
    assert put == [bundle(SECOND), bundle(THIRD)]


async def test_a_version_that_another_key_signed_is_refused(tmp_path: Path) -> None:
    book = ManifestBook(CONSORTIUM, tmp_path)
    with pytest.raises(BadSignature):
        await exchange(anybody(SECOND, signed_by=THIEF), book)
    assert book.current.digest == CONSORTIUM.digest

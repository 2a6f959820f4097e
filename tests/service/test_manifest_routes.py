"""A manifest version costs a service little until the authority's signature has borne it out."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from nacl.signing import SigningKey
from prometheus_client import CollectorRegistry

from shoal_kit import manifest_book
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.web.application import create_application
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Manifest
from shoal_protocol.trust.manifest_bundle import LARGEST_MANIFEST_BYTES, framed
from shoal_protocol.trust.roster import Roster, RosterReference
from shoal_protocol.trust.roster_changes import with_enrolled
from shoal_protocol.wire.documents import Signed, sign
from shoal_service.manifest_routes import (
    MANIFEST_LIMIT_BYTES,
    MANIFEST_PATH,
    manifest_routes,
)
from tests.world import examples, parties
from tests.world.examples import CONSORTIUM

LARGER = with_enrolled(
    CONSORTIUM.roster,
    [(SigningKey(number.to_bytes(32, "big")).verify_key, 1) for number in range(1, 2001)],
)


def next_manifest(roster: Roster = LARGER, signer: str = AUTHORITY_NAME) -> Signed[Manifest]:
    """Return the version that follows, with another roster."""
    named = RosterReference.of(roster)
    changes = {"sequence": 2, "previous": CONSORTIUM.digest, "roster": named}
    body = CONSORTIUM.manifest.model_copy(update=changes)
    return sign(body, AUTHORITY_NAME, examples.signing_key(signer))


NEXT = next_manifest()
STRANGERS = sign(
    examples.manifest(consortium="other"), AUTHORITY_NAME, examples.signing_key("stranger")
).encode()
BODY = framed(NEXT.encode(), LARGER.encode())
HEAD_BYTES = len(BODY) - len(LARGER.encode())


async def ready() -> None:
    """Always ready."""


def make_app(directory: Path) -> tuple[FastAPI, ManifestBook]:
    book = parties.book(directory)
    app = create_application(
        "t",
        ready=ready,
        registry=CollectorRegistry(),
        body_limit_bytes_by_ending={MANIFEST_PATH: MANIFEST_LIMIT_BYTES},
        bodies_in_memory_bytes=1 << 20,
    )
    app.include_router(manifest_routes(book))
    return app, book


class Upload:
    """A PUT of which the test hands over each part."""

    def __init__(self, app: FastAPI) -> None:
        self.status, self.code, self.taken = 0, "", 0
        self.closes = False
        self._parts: asyncio.Queue[tuple[bytes | None, bool]] = asyncio.Queue()
        scope = {"type": "http", "method": "PUT", "path": MANIFEST_PATH, "query_string": b""}
        headers = [(b"content-length", str(MANIFEST_LIMIT_BYTES).encode())]
        self.task = asyncio.ensure_future(
            app(scope | {"headers": headers}, self._receive, self._send)
        )

    async def _receive(self) -> dict[str, Any]:
        part, more = await self._parts.get()
        if part is None:
            return {"type": "http.disconnect"}
        self.taken += len(part)
        return {"type": "http.request", "body": part, "more_body": more}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.closes = (b"connection", b"close") in message["headers"]
        elif self.status >= 400:
            self.code = message["body"].split(b"urn:shoal:problem:")[1].split(b'"')[0].decode()

    def hand(self, part: bytes | None, *, more: bool = True) -> None:
        self._parts.put_nowait((part, more))

    async def end(self, part: bytes = b"") -> int:
        self.hand(part, more=False)
        await self.task
        return self.status


async def until(condition: Callable[[], bool]) -> None:
    """Let all go on until something has happened."""
    for _ in range(60_000):  # a failure, where it would be a hang
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it does not happen")


def files_below(directory: Path) -> list[Path]:
    return [each for each in directory.rglob("*") if each.is_file()]


def pieces(content: bytes, size: int = 4096) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def test_a_version_is_taken_and_shown_in_two_parts(tmp_path: Path) -> None:
    app, book = make_app(tmp_path)
    async with parties.client_of(app) as client:
        answer = await client.put(MANIFEST_PATH, content=BODY)
        assert answer.json() == {"manifest": NEXT.digest, "sequence": 2}
        assert book.current.digest == NEXT.digest
        for path in (MANIFEST_PATH, "/v1/manifests/2"):
            assert (await client.get(path)).content == NEXT.encode()
        assert (await client.get("/v1/manifests/3")).status_code == 404
        for roster in (CONSORTIUM.roster, LARGER):
            assert (await client.get(f"/v1/rosters/{roster.digest}")).content == roster.encode()
        answer = await client.get(f"/v1/rosters/{'0' * 64}")
        assert parties.problem_code(answer) == "unknown-manifest"
        again = await client.put(MANIFEST_PATH, content=BODY)
        assert (again.status_code, book.current.digest) == (200, NEXT.digest)
    assert LARGER.encode() is LARGER.encode()  # however often it is asked for


@pytest.mark.parametrize(
    ("junk", "code"),
    [
        (b"\xff" * 4096, "malformed-document"),
        (bytes(4096), "malformed-document"),
        (b"{" * 4096, "malformed-document"),
        ((LARGEST_MANIFEST_BYTES + 1).to_bytes(4, "little") + bytes(4092), "malformed-document"),
        ((2000).to_bytes(4, "little") + b"{" * 4092, "malformed-document"),
        (framed(next_manifest(signer="trainer").encode(), bytes(4096)), "bad-signature"),
        (framed(STRANGERS, bytes(4096)), "wrong-manifest"),
    ],
    ids=["ones", "zeros", "braces", "too long", "no manifest", "forged", "a stranger's"],
)
async def test_what_no_authority_signed_is_refused_after_the_first_kilobytes(
    tmp_path: Path, junk: bytes, code: str
) -> None:
    app, book = make_app(tmp_path)
    upload = Upload(app)
    upload.hand(junk)
    for _ in range(100):  # it comes on and on
        upload.hand(bytes(4096))
    await upload.task
    assert (upload.code, upload.closes) == (code, True)
    assert upload.taken == len(junk)
    assert book.current.digest == CONSORTIUM.digest
    assert files_below(tmp_path) == []


def changed(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    "content",
    [
        BODY[:-1],
        BODY[:HEAD_BYTES],
        BODY + b"x",
        changed(BODY, -1 % len(BODY)),
        changed(BODY, HEAD_BYTES + 14),
        BODY[: HEAD_BYTES - 1],
        BODY[:3],
        b"",
    ],
    ids=["short", "none", "long", "last bit", "length", "cut manifest", "cut length", "empty"],
)
@pytest.mark.parametrize("size", [1 << 20, 1000])
async def test_a_roster_that_is_not_exactly_the_manifest_s_is_refused(
    tmp_path: Path, content: bytes, size: int
) -> None:
    app, book = make_app(tmp_path)
    upload = Upload(app)
    for piece in pieces(content, size):
        upload.hand(piece)
    assert await upload.end() == 422
    assert book.current.digest == CONSORTIUM.digest
    assert not (tmp_path / "history").exists()
    again = Upload(app)
    assert await again.end(BODY) == 200  # and keeps nobody from the right one


async def test_junk_behind_the_right_manifest_is_bounded_as_all_bodies_are(tmp_path: Path) -> None:
    named = RosterReference(digest="0" * 64, holders=1 << 16, ranges=0, clients=0)
    changes = {"sequence": 2, "previous": CONSORTIUM.digest, "roster": named}
    body = CONSORTIUM.manifest.model_copy(update=changes)
    app, book = make_app(tmp_path)
    upload = Upload(app)
    upload.hand(framed(sign(body, AUTHORITY_NAME, examples.AUTHORITY).encode(), b""))
    for _ in range(32):
        upload.hand(bytes(64 << 10))
    await upload.task
    assert (upload.code, upload.closes) == ("not-ready", True)
    assert upload.taken < (1 << 20) // 2 + (128 << 10)
    assert book.current.digest == CONSORTIUM.digest


async def test_who_sends_slowly_keeps_nobody_from_the_right_roster(tmp_path: Path) -> None:
    app, book = make_app(tmp_path)
    slow = [Upload(app) for _ in range(8)]
    for each in slow:
        each.hand(BODY[: HEAD_BYTES + 50_000])
    await until(lambda: all(each.taken for each in slow))
    assert await Upload(app).end(BODY) == 200
    for each in slow:
        each.hand(None)
        await each.task
    assert book.current.digest == NEXT.digest


PROGRAM = """
import asyncio, sys
from pathlib import Path
from tests.service.test_manifest_routes import BODY, HEAD_BYTES, Upload, make_app

async def main():
    app, _ = make_app(Path(sys.argv[1]))
    upload = Upload(app)
    upload.hand(BODY[: HEAD_BYTES + 50_000])
    while upload.taken < HEAD_BYTES + 50_000:
        await asyncio.sleep(0.01)
    print("coming", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_kill_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"coming\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert list(tmp_path.rglob("*")) == []

    async def again() -> int:
        app, _ = make_app(tmp_path)
        return await Upload(app).end(BODY)

    assert asyncio.run(again()) == 200


async def test_a_full_disk_is_said_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, book = make_app(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(manifest_book, "replace", full)
        upload = Upload(app)
        assert (await upload.end(BODY), upload.code) == (503, "storage-unavailable")
    assert book.current.digest == CONSORTIUM.digest
    assert await Upload(app).end(BODY) == 200

"""A service on a real loopback port that answers every request with a lie, and whom it lies to."""

import asyncio
import gzip
import ssl
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.trust.manifest import Consortium, Manifest, ServiceParty
from shoal_protocol.wire.documents import sign
from tests.command.test_consortium_building import AUTHORITY
from tests.command.test_consortium_building import consortium as new_consortium
from tests.world.tls_identities import Identity, make_identity

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
UNFOLDED_BYTES = 32 << 20
REPEATED = 4000
SILENT_SECONDS = 60.0


@dataclass(frozen=True)
class Lie:
    """An answer: how it begins, and what follows `REPEATED` times if the other side listens on."""

    name: str
    beginning: bytes
    then: bytes = b""
    pause_seconds: float = 0.0
    hangs_up: bool = False
    is_silent: bool = False
    is_deaf: bool = False


def whole(fields: bytes, body: bytes) -> bytes:
    """Return an answer with a body and its length."""
    return OK + fields + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _folded(window_bits: int, content: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, window_bits)
    return compressor.compress(content) + compressor.flush()


def bombs() -> list[Lie]:
    """Return small answers that unfold to `UNFOLDED_BYTES` where they are decoded."""
    content = bytes(UNFOLDED_BYTES)
    once = gzip.compress(content, 9)
    zlibbed, raw = _folded(15, content), _folded(-15, content)
    made = {
        "gzip": (b"gzip", once),
        "gzip twice": (b"gzip, gzip", gzip.compress(once, 9)),
        "gzip in two fields": (b"gzip\r\nContent-Encoding: gzip", gzip.compress(once, 9)),
        "gzip after identity": (b"identity, gzip", once),
        "gzip in capitals": (b"GZIP", once),
        "deflate": (b"deflate", zlibbed),
        "deflate, raw": (b"deflate", raw),
        "deflate of gzip": (b"gzip, deflate", _folded(15, once)),
        "deflate of deflate, raw": (b"deflate, deflate", _folded(-15, raw)),
    }
    return [
        Lie(name, whole(b"Content-Encoding: " + encoding + b"\r\n", body))
        for name, (encoding, body) in made.items()
    ]


def other_lies() -> list[Lie]:
    """Return what else no service has reason to answer, at full speed."""
    head = OK + b"Content-Length: 2\r\n"
    chunked, chunks = OK + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n{}\r\n0\r\n\r\n"

    def of_length(length: bytes) -> bytes:
        return OK + b"Content-Length: " + length + b"\r\n\r\n"

    return [
        Lie("brotli", whole(b"Content-Encoding: br\r\n", bytes(99))),
        Lie("zstandard", whole(b"Content-Encoding: zstd\r\n", bytes(99))),
        Lie("an encoding of its own", whole(b"Content-Encoding: own\r\n", b"{}")),
        Lie("a length beyond what comes", head + b"\r\n{", hangs_up=True),
        Lie("a length beyond every bound", of_length(b"999999999999"), b"x" * 9999),
        Lie("a length beyond belief", of_length(b"9" * 99), b"x" * 9999),
        Lie("two lengths", head + b"Content-Length: 3\r\n\r\n{}"),
        Lie("a length below nothing", of_length(b"-1") + b"{}"),
        Lie("encoded chunks", OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunks),
        Lie("chunks without end", chunked, b"2000\r\n" + b"x" * 0x2000 + b"\r\n"),
        Lie("chunks of one byte", chunked, b"1\r\nx\r\n" * 1000),
        Lie("a chunk of a size without end", chunked, b"0" * 1000),
        Lie("a chunk of no size", chunked + b"\r\n" * 9),
        Lie("a chunk below nothing", chunked + b"-2\r\n{}\r\n0\r\n\r\n"),
        Lie("a chunk that is longer than it says", chunked + b"1\r\n{}\r\n0\r\n\r\n"),
        Lie("trailers without end", chunked + b"0\r\n", b"X: y\r\n" * 99),
        Lie("a head without end", OK, b"X-More: of it\r\n" * 99),
        Lie("a line without end", OK + b"X: ", b"y" * 999),
        Lie("a status line without end", b"HTTP/1.1 200 ", b"O" * 999),
        Lie("another protocol", b"HTTP/1.1 101 Switched\r\nUpgrade: x\r\n\r\n", b"x" * 99),
        Lie("a field without a name", head + b": x\r\n\r\n{}"),
        Lie("no HTTP", b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        Lie("nothing", b"", hangs_up=True),
        Lie(
            "somewhere else",
            b"HTTP/1.1 307 Elsewhere\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
        ),
    ]


def drips() -> list[Lie]:
    """Return answers that only a deadline ends."""
    chunked = OK + b"Transfer-Encoding: chunked\r\n\r\n"
    return [
        Lie("103s without end", b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 99),
        Lie("100s without end", b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 99),
        Lie("dripping head", OK, b"X: y\r\n", pause_seconds=0.02),
        Lie("dripping status line", b"HTTP/1.1 200 ", b"O", pause_seconds=0.02),
        Lie("dripping body", OK + b"Content-Length: 900000\r\n\r\n", b"x", pause_seconds=0.02),
        Lie("dripping chunks", chunked, b"1\r\nx\r\n", pause_seconds=0.02),
        Lie("silence", b"", is_silent=True),
    ]


@dataclass
class Hostile:
    """The service: where it is, what it answers, and how often it was reached."""

    url: str
    certificate: str
    lie: Lie
    heads: list[bytes] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    connections: int = 0
    heard_out: int = 0
    """How often somebody listened to all of a lie that has a sequel."""

    @property
    def party(self) -> ServiceParty:
        """Return it as a manifest lists it."""
        trainer = new_consortium().manifest.trainer
        return trainer.model_copy(update={"url": self.url, "certificate": self.certificate})

    @cached_property
    def consortium(self) -> Consortium:
        """Return a consortium whose services are all this one."""
        first = new_consortium(5)
        manifest = first.manifest

        def here(party: ServiceParty) -> ServiceParty:
            return party.model_copy(update={"url": self.url, "certificate": self.certificate})

        moved = {name: getattr(manifest, name) for name in Manifest.model_fields} | {
            "compute_nodes": tuple(here(node) for node in manifest.compute_nodes),
            "aggregator": here(manifest.aggregator),
            "trainer": here(manifest.trainer),
        }
        signed = sign(Manifest.model_validate(moved), "authority", AUTHORITY)
        return Consortium.pinned(signed.encode(), first.roster.encode(), digest=signed.digest)

    def book(self, directory: Path) -> ManifestBook:
        """Return a book with that consortium."""
        return ManifestBook(self.consortium, directory)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer every request on a connection, if the lie ends."""
        self.connections += 1
        self.writers.append(writer)
        lie = self.lie
        try:
            while True:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                self.asked.set()
                if lie.is_deaf:
                    writer.transport.pause_reading()  # type: ignore[attr-defined]
                await self._write(writer, lie.beginning)
                for _ in range(REPEATED if lie.then else 0):
                    await self._write(writer, lie.then)
                    await asyncio.sleep(lie.pause_seconds)
                if lie.is_silent:
                    leaving = asyncio.ensure_future(reader.read())
                    await asyncio.wait({leaving}, timeout=SILENT_SECONDS)
                if lie.then or (lie.is_silent and not reader.at_eof()):
                    self.heard_out += 1
                if lie.is_deaf:
                    await asyncio.Event().wait()
                if lie.hangs_up or lie.then or lie.is_silent:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the other side has hung up
        finally:
            writer.transport.abort()

    async def _write(self, writer: asyncio.StreamWriter, content: bytes) -> None:
        writer.write(content)
        await writer.drain()


@contextmanager
def hostile(lie: Lie, identity: Identity | None = None) -> Iterator[Hostile]:
    """Serve from a thread of its own, so that it answers whoever waits, and however."""
    identity = identity or make_identity()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as directory:
        tls.load_cert_chain(*identity.write(Path(directory)))
    service = Hostile("", identity.pem, lie)
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it is hung up on all the time
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    starting = asyncio.start_server(
        service.answer, "127.0.0.1", 0, ssl=tls, ssl_shutdown_timeout=0.1
    )
    server = asyncio.run_coroutine_threadsafe(starting, loop).result()
    service.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def stop() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        closed = [writer.wait_closed() for writer in service.writers]
        await asyncio.gather(*closed, return_exceptions=True)
        async with asyncio.timeout(60):
            await server.wait_closed()  # for connections, too, but not in Python 3.11
            while getattr(server, "_active_count", 0):  # noqa: ASYNC110 - no event says so
                await asyncio.sleep(0.01)

    try:
        yield service
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

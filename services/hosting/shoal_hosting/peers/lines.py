"""Speaks HTTP/1.1 with one party over kept-alive TLS connections, and streams answers' bodies.

Bodies are passed on as they are on the wire, without decoding. Answers in a form that no service
sends are refused.
"""

import asyncio
import base64
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, cast

import httpx

from shoal_hosting.peers.answer_heads import AnswerHead, decoded_head, encoded_head
from shoal_hosting.settings import PROXY, Proxy, proxy_in

CONNECT_SECONDS: Final = 10.0
LARGEST_HEAD_BYTES: Final = 16 << 10
UNREAD_BYTES: Final = 256 << 10  # of an answer that wait to be read; then its sender waits
_PIECE_BYTES: Final = 256 << 10  # of a request that are encrypted at once
_IDLE_SECONDS: Final = 60.0  # less than the server's: a request never meets a closing line
_CLOSE_SECONDS: Final = 1.0
_ADDRESSES: Final = 4  # of a host, of which each has its share of the time to connect
_PORT: Final = 443
_OWN_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# Each chunk costs work, even a small one: so many may come, and one more for each so many bytes.
_CHUNKS: Final = 1024
_BYTES_PER_CHUNK: Final = 1024
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,8}")


class Lines(httpx.AsyncBaseTransport):
    """An httpx transport over up to `connections` connections, whose peers `tls` verifies.

    Raises httpx's errors: `ConnectError`, `ReadError` where a connection ends too early, and
    `RemoteProtocolError` where a peer does not speak as services do.
    """

    def __init__(self, tls: ssl.SSLContext, *, connections: int) -> None:
        """Open no connection yet."""
        self._tls = tls
        self._free = asyncio.Semaphore(connections)
        self._idle: list[_Line] = []
        self._open: set[_Line] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the answer's head; the body is read from its stream."""
        head, content = encoded_head(request), await request.aread()
        await self._free.acquire()
        line = None
        try:
            line = self._idle_line() or await _connect(request.url, self._tls)
            self._open.add(line)
            await line.send(head, content)
            answer = await line.head(request.method)
        except BaseException:
            self._end(line)
            raise
        return httpx.Response(
            answer.status, headers=answer.fields, stream=_Body(self, line, answer)
        )

    def _idle_line(self) -> "_Line | None":
        while self._idle:
            line = self._idle.pop()
            if line.is_fit():
                return line
            self._drop(line)
        return None

    def _drop(self, line: "_Line") -> None:
        self._open.discard(line)
        line.abort()

    def _end(self, line: "_Line | None", *, whole: bool = False) -> None:
        """Take a line back; one whose answer was read to its end may be used again."""
        if line is not None:
            if whole and line.rest():
                self._idle.append(line)
            else:
                self._drop(line)
        self._free.release()

    async def aclose(self) -> None:
        """Close all connections, and wait until they are: the event loop may end next."""
        lines = list(self._open)
        self._idle.clear()
        self._open.clear()
        await asyncio.gather(*(line.close() for line in lines))


class _Body(httpx.AsyncByteStream):
    """An answer's body, piece by piece; when it is closed, its line is free."""

    def __init__(self, lines: Lines, line: "_Line", answer: AnswerHead) -> None:
        self._lines, self._line, self._answer = lines, line, answer
        self._closed = self._read = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._line.body(self._answer.length):
            yield part
        self._read = True

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._lines._end(self._line, whole=self._read and self._answer.stays)


class _Line(asyncio.Protocol):
    """One connection: bytes received and not read yet, and the task that waits for more."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._news: asyncio.Future[None] | None = None
        self._ended = self._paused = self._idle = self._cut = False
        self._writable, self._lost = asyncio.Event(), asyncio.Event()
        self._writable.set()
        self._idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._idle:  # no request is open
            self._transport.abort()
            return
        self._received += data
        self._writable.set()  # an answer ends sending
        if len(self._received) > UNREAD_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended = True
        self._lost.set()
        self._writable.set()
        self._wake()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _more(self) -> None:
        """Wait for more than there is.

        Raises:
            httpx.ReadError: nothing will come.
        """
        if self._ended:
            raise httpx.ReadError("the connection ended before the answer did")
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def rest(self) -> bool:
        """Tell whether the line can take another request: nothing is left of this one."""
        self._idle, self._idle_since = True, asyncio.get_running_loop().time()
        return not (self._received or self._ended or self._cut)

    def is_fit(self) -> bool:
        """Stop resting; tell whether the line is still usable for a request."""
        self._idle = False
        rested = asyncio.get_running_loop().time() - self._idle_since
        return not (self._ended or self._transport.is_closing()) and rested < _IDLE_SECONDS

    async def send(self, head: bytes, content: bytes) -> None:
        """Send a request, or as much of it as the peer takes before it answers."""
        if len(content) <= _PIECE_BYTES:
            self._transport.write(head + content)
            return
        self._transport.write(head)
        for start in range(0, len(content), _PIECE_BYTES):
            await self._writable.wait()
            if self._received or self._ended:
                self._cut = True  # the answer is there, and wants no more
                return
            self._transport.write(memoryview(content)[start : start + _PIECE_BYTES])

    async def head(self, method: str) -> AnswerHead:
        """Return what the head of the answer to a request says."""
        return decoded_head(await self._head(), method)

    async def _head(self) -> bytes:
        searched = 0
        while (end := self._received.find(b"\r\n\r\n", searched)) < 0:
            searched = max(0, len(self._received) - 3)
            if searched > LARGEST_HEAD_BYTES:
                break
            await self._more()
        if not 0 < end <= LARGEST_HEAD_BYTES:
            raise httpx.RemoteProtocolError("the answer's head is none, or too long")
        head = bytes(self._received[:end])
        del self._received[: end + 4]
        return head

    async def tunnelled(self) -> None:
        """Read a proxy's answer to CONNECT.

        Raises:
            ConnectionError: it does not lead to the party.
            httpx.ReadError: it hangs up.
            httpx.RemoteProtocolError: its answer has no head that is short enough.
        """
        status = re.match(rb"HTTP/1\.[01] (\d{3})\b", await self._head())
        if status is None or status[1] != b"200":
            said = status[1].decode() if status else "its answer is none of HTTP/1"
            raise ConnectionError(f"the proxy that {PROXY} names refuses: {said}")
        self._received.clear()  # the party says nothing before it is greeted

    async def body(self, length: int | None) -> AsyncIterator[bytes]:
        """Yield a body of so many bytes; of chunks where there is no length."""
        if length is not None:
            async for part in self._sized(length):
                yield part
            return
        chunks = received = 0
        while size := await self._chunk_size():
            chunks, received = chunks + 1, received + size
            if chunks > _CHUNKS + received // _BYTES_PER_CHUNK:
                raise httpx.RemoteProtocolError("the answer comes in too many chunks")
            async for part in self._sized(size):
                yield part
            await self._line_end()
        await self._line_end()  # no service sends trailers

    async def _sized(self, left: int) -> AsyncIterator[bytes]:
        while left:
            if not self._received:
                await self._more()
            part = bytes(memoryview(self._received)[:left])
            del self._received[:left]
            left -= len(part)
            yield part

    async def _chunk_size(self) -> int:
        while (end := self._received.find(b"\r\n")) < 0 and len(self._received) < 10:
            await self._more()
        digits = bytes(self._received[: max(end, 0)])
        if not _CHUNK_SIZE.fullmatch(digits):
            raise httpx.RemoteProtocolError("the answer has a chunk without a size")
        del self._received[: end + 2]
        return int(digits, 16)

    async def _line_end(self) -> None:
        while len(self._received) < 2:
            await self._more()
        if self._received[:2] != b"\r\n":
            raise httpx.RemoteProtocolError("the answer has a chunk of another size than it says")
        del self._received[:2]

    def abort(self) -> None:
        """Let go of the connection at once."""
        self._transport.abort()

    async def close(self) -> None:
        """Close TLS and the connection, and wait for that a moment."""
        self._transport.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._lost.wait()
        self._transport.abort()  # if the other side does not say goodbye


async def _connect(url: httpx.URL, tls: ssl.SSLContext) -> _Line:
    """Open a connection, through the proxy if there is one and the host is another machine.

    Raises:
        httpx.ConnectError: nobody answers, or not with what `tls` trusts.
    """
    try:
        proxy = None if url.host in _OWN_MACHINE else proxy_in(os.environ)
        if proxy is None:
            return await _directly(url, tls)
        async with asyncio.timeout(CONNECT_SECONDS):
            return await _through(proxy, url, tls)
    except httpx.ConnectError:
        raise
    except (OSError, ValueError, httpx.TransportError) as error:
        raise httpx.ConnectError(str(error) or "no connection through the proxy in time") from error


async def _through(proxy: Proxy, url: httpx.URL, tls: ssl.SSLContext) -> _Line:
    """Connect through a forward proxy. TLS is with the party: the proxy sees host and port only."""
    loop = asyncio.get_running_loop()
    try:
        transport, line = await loop.create_connection(_Line, proxy.host, proxy.port)
    except UnicodeError:
        raise ConnectionError(f"the proxy that {PROXY} names has no host name") from None
    except OSError as error:
        said = f"the proxy that {PROXY} names is not reached: {error.strerror or 'no address'}"
        raise ConnectionError(said) from None
    name = url.raw_host.decode("ascii")  # A-labels
    asked = f"{f'[{name}]' if ':' in name else name}:{url.port or _PORT}"
    head = f"CONNECT {asked} HTTP/1.1\r\nHost: {asked}\r\n"
    if proxy.credentials is not None:
        secret = base64.b64encode(proxy.credentials.encode()).decode()
        head += f"Proxy-Authorization: Basic {secret}\r\n"
    try:
        await line.send(f"{head}\r\n".encode(), b"")
        await line.tunnelled()
        secured = await loop.start_tls(transport, line, tls, server_hostname=name)
    except BaseException:
        line.abort()
        raise
    if secured is None:  # closed meanwhile
        raise ConnectionResetError
    line.connection_made(secured)
    return line


async def _directly(url: httpx.URL, tls: ssl.SSLContext) -> _Line:
    """Open a connection to the first of a host's addresses that answers.

    Raises:
        httpx.ConnectError: none does, or not with what `tls` trusts.
    """
    loop = asyncio.get_running_loop()
    name = url.raw_host.decode("ascii")
    addresses: list[str] = []
    failure: OSError = socket.gaierror("it has no address")
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            addresses = list(dict.fromkeys(str(each[4][0]) for each in found))[:_ADDRESSES]
    except OSError as error:
        failure = error
    for address in addresses:
        try:
            async with asyncio.timeout(CONNECT_SECONDS / len(addresses)):
                _, line = await loop.create_connection(
                    _Line, address, url.port or _PORT, ssl=tls, server_hostname=name
                )
        except OSError as error:
            failure = error
        else:
            return line
    raise httpx.ConnectError(str(failure) or "no connection in time") from failure

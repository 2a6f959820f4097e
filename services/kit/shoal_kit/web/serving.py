"""Runs an application over TLS until it is told to stop, and bounds what a connection may take."""

import asyncio
import gc
import resource
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from types import FrameType
from typing import Any, Final

import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from shoal_kit.startup import StartupRefused
from shoal_kit.web.answers import PIECE_BYTES
from shoal_kit.web.logs import describe_exception

HEAD_LIMIT_BYTES: Final = 64 << 10
MOST_FIELDS: Final = 100  # of a head: parsed, a short one takes many times its bytes
# What the kernel takes for a connection before its peer has room for it. By default that grows to
# megabytes, all of which a peer that reads nothing would hold.
KERNEL_UNSENT_BYTES: Final = 128 << 10
BODY_PER_FRAMING_BYTE: Final = 16
MOST_PIPELINED: Final = 16


class BoundedHeads(HttpToolsProtocol):
    """An HTTP connection that is closed when a request's head is too long or too slow.

    uvicorn bounds neither: a peer could feed a header or trailers for ever, or hold a connection by
    sending one byte of a request, or by reading no byte of an answer.

    Head, chunk sizes, chunk extensions and trailers together may take `HEAD_LIMIT_BYTES`, and a
    byte more for each `BODY_PER_FRAMING_BYTE` of body; a head has at most `MOST_FIELDS`. Trailers
    are dropped (RFC 9110, section 6.5.1): uvicorn would add them to the headers. At most
    `MOST_PIPELINED` requests may wait behind one that is not answered yet.

    The time for the first request's head runs from the end of the TLS handshake. Between
    requests, the server's keep-alive time is in force.

    A peer has `unread_seconds` to take what the connection has buffered, some 64 KiB, of an
    answer that goes on or of answers to pipelined requests; then it is cut.
    """

    head_seconds = 20.0
    unread_seconds = 20.0

    _besides_body_bytes = 0
    _body_bytes = 0
    _body_bytes_in_data = 0
    _head_timer: asyncio.TimerHandle | None = None
    _unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=PIECE_BYTES)  # uvloop's own is 512 KiB over TLS
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, KERNEL_UNSENT_BYTES
            )
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_head()
        self._have_taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._have_taken()
        self._unread_timer = self.loop.call_later(self.unread_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._have_taken()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        self._body_bytes_in_data = 0
        super().data_received(data)
        self._besides_body_bytes += len(data) - self._body_bytes_in_data
        allowed = HEAD_LIMIT_BYTES + self._body_bytes // BODY_PER_FRAMING_BYTE
        if self._besides_body_bytes > allowed or len(self.pipeline) > MOST_PIPELINED:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._besides_body_bytes = self._body_bytes = 0
        if self._head_timer is None:
            self._expect_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MOST_FIELDS:
            self.transport.abort()
        elif self._head_timer is not None:
            super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._body_bytes_in_data += len(body)
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._have_head()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _have_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _have_taken(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


KEEP_ALIVE_SECONDS: Final = 75
STOP_WITHIN_SECONDS: Final = 10
BACKLOG: Final = 2048
DROP_IDLE_SECONDS: Final = 0.2
TLS_HANDSHAKE_SECONDS: Final = 10.0
MOST_CONNECTIONS: Final = 8192

log = structlog.get_logger()


class Loop(uvloop.Loop):
    """An event loop whose TLS servers drop a peer that does not finish its handshake.

    uvicorn has no setting for it, and uvloop would wait for a minute.
    """

    async def create_server(  # type: ignore[override]
        self, *arguments: Any, ssl: ssl.SSLContext | None = None, **named: Any
    ) -> asyncio.AbstractServer:
        if ssl is not None:
            named |= {"ssl": ssl, "ssl_handshake_timeout": TLS_HANDSHAKE_SECONDS}
        return await super().create_server(*arguments, **named)


class Server(uvicorn.Server):
    """A uvicorn server that stops in bounded time and then returns, so that stopping is success.

    `on_stop` is called first, so that long polls can be answered at once. A second signal ends
    requests in progress at once.
    """

    on_stop: Callable[[], None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on SIGTERM and SIGINT; unlike uvicorn's own, do not raise the signal again."""
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish requests in progress; uvicorn bounds the time."""
        if self.on_stop is not None:
            self.on_stop()
        dropping = asyncio.create_task(self._drop_idle_connections())
        try:
            await super().shutdown(sockets)
        finally:
            dropping.cancel()

    async def _drop_idle_connections(self) -> None:
        """Cut connections on which no request is in progress.

        A peer that pools connections answers no TLS closure until it uses them again.
        """
        while True:
            await asyncio.sleep(DROP_IDLE_SECONDS)
            if not self.server_state.tasks:
                for connection in list(self.server_state.connections):
                    connection.transport.abort()


def server(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    stop_within_seconds: int = STOP_WITHIN_SECONDS,
    most_connections: int | None = None,
) -> Server:
    """Return a server for `app`, not yet started; `tls` None is for loopback and for tests.

    Beyond `most_connections` open connections further requests get 503.
    """
    return Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            ssl_context_factory=None if tls is None else lambda *_, context=tls: context,
            loop="uvloop",
            http=BoundedHeads,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # a peer could put any address there
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=stop_within_seconds,
            limit_concurrency=most_connections,
        )
    )


def serve(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    work: Callable[[], Coroutine[Any, Any, None]] | None = None,
    on_stop: Callable[[], None] | None = None,
    stop_within_seconds: int = STOP_WITHIN_SECONDS,
    most_connections: int | None = None,
) -> None:
    """Serve `app` until SIGTERM or SIGINT, then stop within about `stop_within_seconds`.

    `on_stop` is called as soon as it is told to stop, to let go of requests that wait.

    As many files may be open as the system allows the process. By default `most_connections` is
    `MOST_CONNECTIONS`, or three quarters of those files where they are fewer: connections that
    are still shaking hands, the database and peers need some too.

    `work` runs beside the application, is cancelled once the last request was answered, and may
    then tidy up. Should it end by itself, the service stops: half of it is no service.

    Raises:
        StartupRefused: the address cannot be listened on.
        SystemExit: status 1, when `work` ended by itself.
    """
    open_files = _allow_open_files()
    running = server(
        app,
        host=host,
        port=port,
        tls=tls,
        stop_within_seconds=stop_within_seconds,
        most_connections=most_connections or min(MOST_CONNECTIONS, open_files * 3 // 4),
    )
    running.on_stop = on_stop
    listener = _listen(host, port)
    log.info("listening", port=listener.getsockname()[1], tls=tls is not None)
    gc.collect()
    gc.freeze()  # what is there now stays: collections need not look through it again
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(_serve(running, listener, work))
    log.info("stopped")


async def step_for_ever(
    step: Callable[[], Awaitable[None]], wake: asyncio.Event, *, tick_seconds: float
) -> None:
    """Call `step` whenever `wake` is set, and every `tick_seconds` if it is not."""
    while True:
        wake.clear()  # before the step, so that what comes in during it causes another
        await step()
        with suppress(TimeoutError):
            async with asyncio.timeout(tick_seconds):
                await wake.wait()


async def _serve(
    running: Server,
    listener: socket.socket,
    work: Callable[[], Coroutine[Any, Any, None]] | None,
) -> None:
    asyncio.get_running_loop().set_exception_handler(_log_loop_exception)
    if work is None:
        await running.serve(sockets=[listener])
        return

    def stop(_: asyncio.Task[None]) -> None:
        running.should_exit = True

    working = asyncio.create_task(work())
    working.add_done_callback(stop)
    await running.serve(sockets=[listener])
    ended_by_itself = working.done()
    working.cancel()
    [outcome] = await asyncio.gather(working, return_exceptions=True)
    if isinstance(outcome, Exception):
        log.error("the work beside the application failed", **describe_exception(outcome))
    if ended_by_itself or isinstance(outcome, Exception):
        raise SystemExit(1)


def _log_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what asyncio would, without the message, which shows the exception and its values."""
    error = context.get("exception")
    log.error("a task failed", **({} if error is None else describe_exception(error)))


def _allow_open_files() -> int:
    """Raise the number of files that the process may open to the most allowed, and return it."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (OSError, ValueError):  # a system that names no limit and has one yet
        log.warning("the limit of open files could not be raised", files=allowed)
        return allowed
    return most


def _listen(host: str, port: int) -> socket.socket:
    is_ipv6 = ":" in host
    family = socket.AF_INET6 if is_ipv6 else socket.AF_INET
    both = is_ipv6 and socket.has_dualstack_ipv6()
    try:
        # It listens at once: from here on a connection waits to be accepted instead of refused.
        return socket.create_server(
            (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=both
        )
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]  # which names the address once more
        raise StartupRefused(f"cannot listen on {host} port {port}: {why}") from None

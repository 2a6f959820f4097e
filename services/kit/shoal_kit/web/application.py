"""Builds a FastAPI application with the middleware and routes that all services share.

`serving.server` hands it HTTP requests alone, neither WebSockets nor events of its life.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import Any, Final

import structlog
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal_kit.vitals import Vitals
from shoal_kit.web.answers import AnswerLimits
from shoal_kit.web.logs import describe_exception
from shoal_kit.web.openapi import REFUSALS, TEXT, Application, answers, only_with
from shoal_kit.web.problems import (
    PROBLEM_IN_SCOPE,
    http_problem,
    install_problem_handlers,
)
from shoal_protocol.wire.errors import NotReady
from shoal_protocol.wire.versions import RELEASE, WIRE

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NOBODY_LISTENED: Final = 499  # the peer was gone before it could be answered
SLOW_SECONDS: Final = 1.0
NOT_THERE: Final = frozenset({404, 409, 410})  # not yet, or no more
# The last ones are for long polls.
BUCKETS_SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    10,
    30,
    60,
)

log = structlog.get_logger()


class Observation:
    """The outermost middleware: observes each request, and catches what the application raises.

    It counts, times and logs by route template, never by path, body or peer. What is neither
    refused nor slow is logged at level debug.

    An exception that nobody handled becomes a problem document without details. The log gets its
    type and where it was raised; its message may hold values and goes nowhere.
    """

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self._app = app
        labels = ("method", "route", "status")
        self._seconds = Histogram(
            "shoal_http_request_seconds",
            "Time from a request's headers to the end of its response",
            labels,
            registry=registry,
            buckets=BUCKETS_SECONDS,
        )
        self._refused = Counter(
            "shoal_refused_requests",
            "HTTP requests refused, but for routine questions, by the code of the problem",
            ("reason",),
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = perf_counter()
        status = 0

        async def observed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, observed_send)
        except ClientDisconnect:
            status = NOBODY_LISTENED
        except Exception as error:  # noqa: BLE001 -- the outermost layer; nothing is hidden
            log.error("request failed", route=_route(scope), **describe_exception(error))
            # Once a response has begun, the server can only cut it off, which tells the peer.
            if status == 0:
                await http_problem(500)(scope, receive, observed_send)
        finally:
            self._record(scope, status or NOBODY_LISTENED, perf_counter() - began)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        route = _route(scope)
        self._seconds.labels(method, route, status).observe(seconds)
        reason = scope.get(PROBLEM_IN_SCOPE)
        facts = {
            "method": method,
            "route": route,
            "status": status,
            "seconds": round(seconds, 4),
            "problem": reason,
        }
        is_refused = status >= 400 and not _is_routine(method, status, reason)
        if is_refused:
            self._refused.labels(reason or f"http-{status}").inc()
        is_slow = method != "GET" and seconds >= SLOW_SECONDS  # a GET may be a long poll
        level = logging.INFO if is_refused or is_slow else logging.DEBUG
        log.log(level, "request", **facts)


def _is_routine(method: str, status: int, problem: str | None) -> bool:
    """Tell whether an answer that is no success belongs to ordinary work.

    Parties ask again and again for what is not there yet or no more, and hang up while they wait.
    """
    asked_for = method == "GET" and status in NOT_THERE and problem != "not-found"
    return asked_for or status == NOBODY_LISTENED


def _route(scope: Scope) -> str:
    """Return the matched route's template; a path that matched none is the peer's own words."""
    return getattr(scope.get("route"), "path", "unmatched")


UNREAD_BYTES: Final = 64 << 10  # as much of a refused body is rather read than cut off
# The connection is closed, for the rest of the body must not be read as the next request.
CLOSE: Final = {"Connection": "close"}
LATER: Final = CLOSE | {"Retry-After": str(NotReady.retry_after_seconds)}


class BodyLimits:
    """Refuse a body of more than `limit_bytes` with 413, one that comes too slowly with 408.

    A body with a content encoding is refused with 415, so that bytes counted are bytes read.

    `limit_bytes_by_ending` sets other bounds for paths with certain endings. A body may take
    `grace_seconds`, and a second more for each `slowest_bytes_per_second` of it that arrived, so
    that a large body over a slow line passes and a silent peer holds nothing for long.

    All requests in progress together hold at most `in_memory_bytes` of bodies. A body that grows
    larger than the room left is refused with 503. So the largest bodies give way first, and some
    room always stays for small ones (the dynamic threshold of Choudhury and Hahne, 1998).

    A connection is closed with a refusal that was sent before the end of a large body.

    FastAPI's own `max_body_size` answers in plain text and sets no time.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limit_bytes: int,
        limit_bytes_by_ending: Mapping[str, int],
        grace_seconds: float,
        slowest_bytes_per_second: float,
        in_memory_bytes: int,
    ) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._limit_bytes_by_ending = dict(limit_bytes_by_ending)
        self._grace_seconds = grace_seconds
        self._slowest_bytes_per_second = slowest_bytes_per_second
        self._left_bytes = in_memory_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fields = Headers(scope=scope)
        encodings = {each.strip().lower() for each in fields.getlist("content-encoding")}
        if encodings - {"identity"}:
            await http_problem(415, CLOSE | {"Accept-Encoding": "identity"})(scope, receive, send)
            return
        limit = self._limit_for(scope["path"])
        length = fields.get("content-length", "")
        # without one to go by, the bytes are counted
        declared = int(length[:20]) if length.isdecimal() else 0
        if declared > limit:
            await http_problem(413, CLOSE)(scope, receive, send)
            return

        loop = asyncio.get_running_loop()
        received = 0
        began: float | None = None
        complete = False

        async def bounded_receive() -> Message:
            nonlocal received, began, complete
            if complete:  # what follows is a disconnect, and may be awaited for as long as it takes
                return await receive()
            began = loop.time() if began is None else began
            allowed = self._grace_seconds + received / self._slowest_bytes_per_second
            try:
                async with asyncio.timeout_at(began + allowed):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, headers=CLOSE) from None
            if message["type"] == "http.request":
                size = len(message.get("body", b""))
                received += size
                self._left_bytes -= size  # given back when the request was answered
                complete = not message.get("more_body", False)
                if received > limit:
                    raise HTTPException(413, headers=CLOSE)
                if size and received > self._left_bytes:
                    raise HTTPException(503, headers=LATER)
            return message

        async def closing_send(message: Message) -> None:
            refuses = message["type"] == "http.response.start" and message["status"] >= 400
            if refuses and not complete and declared - received > UNREAD_BYTES:
                others = [each for each in message["headers"] if each[0] != b"connection"]
                message["headers"] = [*others, (b"connection", b"close")]
            await send(message)

        try:
            await self._app(scope, bounded_receive, closing_send)
        finally:
            self._left_bytes += received

    def _limit_for(self, path: str) -> int:
        return next(
            (most for end, most in self._limit_bytes_by_ending.items() if path.endswith(end)),
            self._limit_bytes,
        )


DOCUMENT_LIMIT_BYTES: Final = 1 << 20
BODIES_IN_MEMORY_BYTES: Final = 512 << 20
UNSENT_BYTES: Final = 64 << 20

# FastAPI would hand request URLs and exception messages to any OpenTelemetry provider in the
# process, or that an environment variable names. Neither may leave it.
NO_TELEMETRY: Final[Any] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def create_application(
    name: str,
    *,
    ready: Callable[[], Awaitable[dict[str, str] | None]] | None = None,
    registry: CollectorRegistry,
    vitals: Vitals | None = None,
    metrics_token: str | None = None,
    body_limit_bytes: int = DOCUMENT_LIMIT_BYTES,
    body_limit_bytes_by_ending: Mapping[str, int] | None = None,
    body_grace_seconds: float = 30.0,
    slowest_body_bytes_per_second: float = 16_384.0,
    bodies_in_memory_bytes: int = BODIES_IN_MEMORY_BYTES,
    unsent_bytes: int = UNSENT_BYTES,
) -> FastAPI:
    """Return an application that answers `/healthz`, `/readyz`, `/metrics` and `/openapi.json`.

    `ready`, where it is given, returns if the service can do its work, with what its operator
    should know, and otherwise raises a `ProtocolError` such as `NotReady`. `registry` is this
    application's own, and the place for the service's metrics; `vitals` are read for each look at
    them, and with `metrics_token` only who has it may look.
    `body_limit_bytes_by_ending` bounds the bodies sent to paths with certain endings, for
    example `{"/shares": 64 << 20}`; `bodies_in_memory_bytes` bounds all bodies together;
    `unsent_bytes` bounds all large answers that peers have not read yet.
    """
    app = Application(
        title=name,
        openapi_url="/openapi.json",
        docs_url=None,  # it would load its scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the path that was sent
        telemetry=NO_TELEMETRY,
        responses=REFUSALS,
    )
    install_problem_handlers(app)
    ProcessCollector(registry=registry)

    @app.get("/healthz")
    async def healthz() -> dict[str, str | int]:
        """The process runs and answers: its release, and its version of the protocol."""
        return {"status": "alive", "release": RELEASE, "wire": WIRE}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        """The service can do its work."""
        return {"status": "ready"} | ((await ready() if ready else None) or {})

    @app.get(
        "/metrics",
        dependencies=[] if metrics_token is None else [only_with(metrics_token)],
        **answers(TEXT, as_type="text/plain"),
    )
    async def metrics() -> Response:
        """Prometheus metrics; none is labelled by client, record or path."""
        if vitals is not None:
            await vitals.read()
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    # The last added is the outermost.
    app.add_middleware(
        BodyLimits,
        limit_bytes=body_limit_bytes,
        limit_bytes_by_ending=body_limit_bytes_by_ending or {},
        grace_seconds=body_grace_seconds,
        slowest_bytes_per_second=slowest_body_bytes_per_second,
        in_memory_bytes=bodies_in_memory_bytes,
    )
    app.add_middleware(AnswerLimits, unsent_bytes=unsent_bytes)
    app.add_middleware(Observation, registry=registry)
    return app

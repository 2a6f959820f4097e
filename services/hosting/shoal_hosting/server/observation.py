"""Counts, times and logs requests by route template, never by path, body or peer."""

from time import perf_counter
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal_hosting.server.logs import describe_exception
from shoal_hosting.server.problems import PROBLEM_IN_SCOPE, unexpected_problem
from shoal_protocol.wire.service_errors import MissingRequest

METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NOBODY_LISTENED: Final = 499  # the peer was gone before it could be answered
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

    An exception that nobody handled becomes a problem document without details. The log gets its
    type and where it was raised; its message may hold values and goes nowhere.
    """

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self._app = app
        labels = ("method", "route", "status")
        self._requests = Counter(
            "shoal_http_requests", "HTTP requests answered", labels, registry=registry
        )
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
        # Looking labels up costs more than counting; routes, methods and statuses are few.
        self._children: dict[tuple[str, str, int], tuple[Any, Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
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
                await unexpected_problem()(scope, receive, observed_send)
        finally:
            self._record(scope, status or NOBODY_LISTENED, perf_counter() - began)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        route = _route(scope)
        labels = (method, route, status)
        children = self._children.get(labels)
        if children is None:
            children = (self._requests.labels(*labels), self._seconds.labels(*labels))
            self._children[labels] = children
        requests, latency = children
        requests.inc()
        latency.observe(seconds)
        facts = {"method": method, "route": route, "status": status, "seconds": round(seconds, 4)}
        reason = scope.get(PROBLEM_IN_SCOPE)
        if status < 400 or _is_routine(method, status, reason):
            log.debug("request", **facts, problem=reason)
        else:
            self._refused.labels(reason or f"http-{status}").inc()
            log.info("request", **facts, problem=reason)


def _is_routine(method: str, status: int, problem: str | None) -> bool:
    """Tell whether an answer that is no success belongs to ordinary work.

    Parties ask again and again for what is not there yet or no more, hang up while they wait, and
    have the job's request fetched by a node that lacks it.
    """
    asked_for = method in ("GET", "HEAD") and status in NOT_THERE and problem is not None
    return asked_for or status == NOBODY_LISTENED or problem == MissingRequest.code


def _route(scope: Scope) -> str:
    """Return the matched route's template; a path that matched none is the peer's own words."""
    return getattr(scope.get("route"), "path", "unmatched")

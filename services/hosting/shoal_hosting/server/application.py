"""Builds a FastAPI application with the middleware and routes that all services share."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from shoal_hosting.server.answers import AnswerLimits, HeadAnswers
from shoal_hosting.server.limits import BodyLimits
from shoal_hosting.server.observation import Observation
from shoal_hosting.server.openapi import JsonSchema, answers, only_with, publish
from shoal_hosting.server.problems import install_problem_handlers
from shoal_hosting.vitals import Vitals
from shoal_protocol.wire.versions import RELEASE, WIRE

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

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def create_application(
    name: str,
    *,
    ready: Callable[[], Awaitable[dict[str, str] | None]],
    registry: CollectorRegistry,
    vitals: Vitals | None = None,
    metrics_token: str | None = None,
    lifespan: Lifespan | None = None,
    body_limit_bytes: int = DOCUMENT_LIMIT_BYTES,
    body_limit_bytes_by_ending: Mapping[str, int] | None = None,
    streamed: Collection[str] = (),
    body_grace_seconds: float = 30.0,
    slowest_body_bytes_per_second: float = 16_384.0,
    bodies_in_memory_bytes: int = BODIES_IN_MEMORY_BYTES,
    unsent_bytes: int = UNSENT_BYTES,
    plain: Mapping[str, JsonSchema] | None = None,
) -> FastAPI:
    """Return an application that answers `/healthz`, `/readyz`, `/metrics` and `/openapi.json`.

    `ready` returns if the service can do its work, with what its operator should know, and
    otherwise raises a `ProtocolError` such as `NotReady`. `registry` is this application's own, and
    the place for the service's metrics; `vitals` are read for each look at them, and with
    `metrics_token` only who has it may look.
    `body_limit_bytes_by_ending` bounds the bodies sent to paths with certain endings, for
    example `{"/shares": 64 << 20}`; `bodies_in_memory_bytes` bounds all bodies together
    but those to paths with endings in `streamed`, which their routes do not keep in memory;
    `unsent_bytes` bounds all large answers that peers have not read yet. `plain` describes routes
    that FastAPI does not know.
    """
    app = FastAPI(
        title=name,
        description="Every path that answers GET answers HEAD, alike but for the body.",
        openapi_url="/openapi.json",
        docs_url=None,  # it would load its scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the path that was sent
        lifespan=lifespan,
        telemetry=NO_TELEMETRY,
    )
    install_problem_handlers(app)
    publish(app, plain or {})
    ProcessCollector(registry=registry)

    @app.get("/healthz")
    async def healthz() -> dict[str, str | int]:
        """The process runs and answers: its release, and its version of the protocol."""
        return {"status": "alive", "release": RELEASE, "wire": WIRE}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        """The service can do its work."""
        return {"status": "ready"} | (await ready() or {})

    @app.get(
        "/metrics",
        dependencies=[] if metrics_token is None else [only_with(metrics_token)],
        **answers({"type": "string"}, as_type="text/plain"),
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
        streamed=streamed,
        grace_seconds=body_grace_seconds,
        slowest_bytes_per_second=slowest_body_bytes_per_second,
        in_memory_bytes=bodies_in_memory_bytes,
    )
    app.add_middleware(AnswerLimits, unsent_bytes=unsent_bytes)
    app.add_middleware(HeadAnswers)
    app.add_middleware(Observation, registry=registry)
    return app

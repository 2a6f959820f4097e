"""What every service answers beside its own endpoints, and what can be learnt from it."""

import subprocess
import sys

import httpx
import pytest
from fastapi import APIRouter, FastAPI
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from shoal_kit.web import application
from shoal_kit.web.application import SLOW_SECONDS, create_application


async def ready() -> None:
    """Always ready."""


def make_app() -> FastAPI:
    app = create_application("test", ready=ready, registry=CollectorRegistry())
    router = APIRouter(prefix="/v1")

    @router.post("/clients/{index}")
    @router.get("/clients/{index}")
    async def client(index: str) -> None:
        del index

    app.include_router(router)
    return app


async def get(app: FastAPI, path: str, method: str = "GET") -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://test") as client:
        return await client.request(method, path)


async def test_metrics_name_route_templates_and_never_paths() -> None:
    app = make_app()
    await get(app, "/v1/clients/s3cret")
    await get(app, "/v1/clients/s3cret-too")
    await get(app, "/s3cret")
    await get(app, "/v1/clients/s3cret", method="S3CRET")
    text = (await get(app, "/metrics")).text
    assert "s3cret" not in text.lower()
    for labels in (
        'method="GET",route="/v1/clients/{index}",status="200"} 2.0',
        'method="GET",route="unmatched",status="404"} 1.0',
        'method="OTHER",route="/v1/clients/{index}",status="405"} 1.0',
    ):
        assert f"shoal_http_request_seconds_count{{{labels}" in text.splitlines()


@pytest.mark.parametrize(
    ("method", "seconds", "level"),
    [
        ("POST", SLOW_SECONDS, "info"),
        ("POST", 0.9 * SLOW_SECONDS, "debug"),
        ("GET", 60.0, "debug"),  # it waits for what is not there yet
    ],
)
async def test_a_slow_request_is_in_the_log_though_it_succeeds(
    monkeypatch: pytest.MonkeyPatch, method: str, seconds: float, level: str
) -> None:
    moments = iter([0.0, seconds])
    monkeypatch.setattr(application, "perf_counter", lambda: next(moments))
    with capture_logs() as logged:
        await get(make_app(), "/v1/clients/s3cret", method)
    [entry] = [each for each in logged if each["event"] == "request"]
    assert (entry["log_level"], entry["seconds"]) == (level, seconds)
    assert (entry["status"], entry["route"]) == (200, "/v1/clients/{index}")
    assert "s3cret" not in str(entry)


TRACED = """
import asyncio, httpx, sys
from opentelemetry import trace
from prometheus_client import CollectorRegistry
from shoal_kit.web.application import create_application

heard = []

class Listener(trace.TracerProvider):
    def get_tracer(self, *names, **more):
        heard.append(names)
        return trace.NoOpTracer()

async def ready(): ...

async def main():
    trace.set_tracer_provider(Listener())
    {application}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="https://t") as c:
        await c.get("/readyz")
    sys.exit(len(heard) > 0)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("application", "heard"),
    [
        ('app = create_application("t", ready=ready, registry=CollectorRegistry())', 0),
        # The same through a bare FastAPI shows that the listener would have heard.
        ("from fastapi import FastAPI; app = FastAPI()", 1),
    ],
)
def test_no_telemetry_leaves_even_where_a_provider_is_installed(
    application: str, heard: int
) -> None:
    # In a process of its own, for a provider can be set only once.
    program = TRACED.format(application=application)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (heard, "")

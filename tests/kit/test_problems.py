"""Every error is a problem document that helps its reader and repeats nothing that was sent."""

import inspect
import io
import json
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI, Header, HTTPException
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, ConfigDict
from starlette.requests import ClientDisconnect

from shoal_kit.web.application import create_application
from shoal_kit.web.logs import configure_logs
from shoal_kit.web.problems import problem_document
from shoal_protocol.wire import errors, service_errors

SECRET = "s3cret"
ERRORS = {
    kind
    for module in (errors, service_errors)
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, errors.ProtocolError)
}


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    scale: int


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid")
    dimension: int
    inner: Inner
    by_name: dict[str, int] = {}


async def ready() -> None:
    raise errors.NotReady


@pytest.fixture
def app() -> FastAPI:
    app = create_application("test", ready=ready, registry=CollectorRegistry())

    @app.post("/v1/documents/{number}")
    async def document(number: int, body: Document, x_limit: int = Header(default=1)) -> None:
        del number, body, x_limit

    @app.get("/v1/errors/{name}")
    async def fail(name: str) -> None:
        raise next(kind for kind in ERRORS if kind.__name__ == name)

    @app.get("/v1/boom")
    async def boom() -> None:
        raise KeyError(SECRET)

    @app.get("/v1/teapot")
    async def teapot() -> None:
        raise HTTPException(418, detail=SECRET)

    @app.get("/v1/gone")
    async def gone() -> None:
        raise ClientDisconnect

    return app


async def send(app: FastAPI, method: str, path: str, **more: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app)  # raises whatever leaves the application
    async with httpx.AsyncClient(transport=transport, base_url="https://test") as client:
        return await client.request(method, path, **more)


def assert_problem(response: httpx.Response, code: str, status: int) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    assert response.status_code == status
    content: dict[str, Any] = response.json()
    assert (content["type"], content["status"]) == (f"urn:shoal:problem:{code}", status)
    assert content["title"]
    assert content["detail"]
    assert content["remedy"]
    assert SECRET not in response.text
    return content


@pytest.mark.parametrize("kind", sorted(ERRORS, key=lambda kind: kind.code))
async def test_each_protocol_error_is_its_problem(
    app: FastAPI, kind: type[errors.ProtocolError]
) -> None:
    response = await send(app, "GET", f"/v1/errors/{kind.__name__}")
    content = assert_problem(response, kind.code, kind.status)
    assert (content["title"], content["remedy"]) == (kind.title, kind.remedy)
    wait = kind.retry_after_seconds
    assert response.headers.get("retry-after") == (None if wait is None else str(wait))
    assert problem_document(kind()) == content


async def test_an_invalid_request_is_told_where_and_how_but_not_what(app: FastAPI) -> None:
    response = await send(
        app,
        "POST",
        f"/v1/documents/{SECRET}",
        headers={"x-limit": SECRET},
        json={
            "dimension": SECRET,
            "inner": {"scale": [SECRET], SECRET: 1},
            "by_name": {SECRET: SECRET},
            SECRET: SECRET,
        },
    )
    content = assert_problem(response, "invalid-request", 422)
    assert sorted((each["location"], each["type"]) for each in content["errors"]) == [
        ("body", "extra_forbidden"),
        ("body", "extra_forbidden"),
        ("body", "int_parsing"),
        ("body", "int_parsing"),
        ("body", "int_type"),
        ("header.x-limit", "int_parsing"),
        ("path.number", "int_parsing"),
    ]
    assert all(set(each) == {"location", "type"} for each in content["errors"])


async def test_a_fault_of_the_service_is_a_problem_without_details(app: FastAPI) -> None:
    lines = io.StringIO()
    configure_logs(stream=lines)
    try:
        assert_problem(await send(app, "GET", "/v1/boom"), "internal-error", 500)
    finally:
        structlog.reset_defaults()
    assert SECRET not in lines.getvalue()
    failed, answered = map(json.loads, lines.getvalue().splitlines())
    assert (failed["exception"], failed["route"]) == ("builtins.KeyError", "/v1/boom")
    assert failed["frames"][-1].endswith(" boom")
    assert (answered["route"], answered["status"]) == ("/v1/boom", 500)

"""Turns errors into RFC 9457 problem documents with a remedy, never with the peer's input."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from shoal_protocol.wire.errors import NotReady, ProtocolError

# Where the problem's code is left for the request log.
PROBLEM_IN_SCOPE: Final = "shoal.problem"
# Code, title, detail and remedy of errors of HTTP itself.
HTTP_PROBLEMS: Final = {
    401: (
        "token-needed",
        "This is for who runs the party",
        "The request does not carry the party's token.",
        "Send `Authorization: Bearer` with the token: owner.token in an agent's data directory, "
        "operator.token in a service's.",
    ),
    404: (
        "not-found",
        "Nothing is at this path",
        "The path is not one of this service's.",
        "Compare the path with this service's /openapi.json.",
    ),
    405: (
        "method-not-allowed",
        "The method is not allowed here",
        "The path exists, but not for this method.",
        "Use one of the methods in the Allow header.",
    ),
    408: (
        "body-too-slow",
        "The body came too slowly",
        "The rest of the body did not arrive in time; nothing was stored.",
        "Send the request again, over a faster line or in smaller requests.",
    ),
    413: (
        "body-too-large",
        "The body is too large",
        "The body exceeds what this path takes; nothing was stored.",
        "Send a smaller body, or several requests.",
    ),
    415: (
        "encoded-body",
        "The body is encoded",
        "The body has a Content-Encoding, and none is decoded here; nothing was stored.",
        "Send the body as it is, without a Content-Encoding.",
    ),
    503: (
        NotReady.code,
        NotReady.title,
        "Too many bodies are being received at once; nothing was stored.",
        NotReady.remedy,
    ),
}
MOST_ERRORS: Final = 10  # that one problem document lists
# Code and title of a request whose parameters are not as published.
INVALID_REQUEST: Final = ("invalid-request", "The request does not have the published form")


class ProblemResponse(JSONResponse):
    media_type = "application/problem+json"


def problem(
    *,
    code: str,
    title: str,
    status: int,
    detail: str,
    remedy: str,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> ProblemResponse:
    """Return the problem document of type `urn:shoal:problem:<code>`, with the members `more`."""
    content = _document(code=code, title=title, status=status, detail=detail, remedy=remedy)
    return ProblemResponse(content | more, status_code=status, headers=headers)


def problem_document(error: ProtocolError) -> dict[str, Any]:
    """Return a peer's fault as a problem document, for a response that carries several."""
    return _document(
        code=error.code,
        title=error.title,
        status=error.status,
        detail=str(error),
        remedy=error.remedy,
    )


def _document(*, code: str, title: str, status: int, detail: str, remedy: str) -> dict[str, Any]:
    return {
        "type": f"urn:shoal:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "remedy": remedy,
    }


def http_problem(status: int, headers: Mapping[str, str] | None = None) -> ProblemResponse:
    """Return the problem document for a bare HTTP status."""
    code, title, detail, remedy = HTTP_PROBLEMS.get(status) or (
        f"http-{status}",
        HTTPStatus(status).phrase,
        "The request cannot be served.",
        "Compare the request with this service's /openapi.json.",
    )
    return problem(
        code=code, title=title, status=status, detail=detail, remedy=remedy, headers=headers
    )


def unexpected_problem() -> ProblemResponse:
    """Return the problem document for a fault of this service, which tells nothing about it."""
    return problem(
        code="internal-error",
        title="The service failed",
        status=500,
        detail="The service met a fault of its own; its operator finds it in the log.",
        remedy="Keep the message and send the same bytes again later.",
    )


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error that `app` answers with a problem document.

    Exceptions nobody foresaw are not handled here but by `observation.Observation`: a handler
    for them would have the server log their messages, which may hold values.
    """
    app.add_exception_handler(ProtocolError, show_protocol_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_exception)


async def show_protocol_error(request: Request, error: Exception) -> ProblemResponse:
    """Return a protocol error as a problem document, and leave its code for the request log."""
    assert isinstance(error, ProtocolError)  # noqa: S101 -- registered for this type only
    request.scope[PROBLEM_IN_SCOPE] = error.code
    wait = error.retry_after_seconds
    return ProblemResponse(
        problem_document(error),
        status_code=error.status,
        headers=None if wait is None else {"Retry-After": str(wait)},
    )


async def _http_exception(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 -- registered for this type only
    headers = error.headers
    if error.status_code == 405:  # Starlette names the methods of one route of several alike
        path = getattr(request.scope.get("route"), "path", None)
        methods = request.app.openapi()["paths"].get(path)
        allowed = [*methods, *(["head"] if "get" in methods else [])] if methods else []
        headers = {"Allow": ", ".join(allowed).upper()} if allowed else headers
    return http_problem(error.status_code, headers)


async def _validation_error(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 -- registered for this type only
    code, title = INVALID_REQUEST
    request.scope[PROBLEM_IN_SCOPE] = code
    names = _published_names(request.app.openapi())
    return problem(
        code=code,
        title=title,
        status=422,
        detail="The fields listed in `errors` are missing, unknown or of the wrong form.",
        remedy="Compare the request with this service's /openapi.json.",
        errors=[
            {"location": _location(item["loc"], names), "type": item["type"]}
            for item in error.errors()[:MOST_ERRORS]
        ],
    )


def _location(path: tuple[int | str, ...], names: frozenset[str]) -> str:
    """Spell a location, with a star for a name that is not ours: an unknown field is input too."""
    return ".".join(str(part) if isinstance(part, int) or part in names else "*" for part in path)


def _published_names(schema: Any) -> frozenset[str]:
    """Return the parameter and field names in an OpenAPI document, at any depth."""
    if isinstance(schema, list):
        return frozenset[str]().union(*map(_published_names, schema))
    if not isinstance(schema, dict):
        return frozenset()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    if isinstance(schema.get("in"), str) and isinstance(schema.get("name"), str):
        own |= {schema["name"], schema["in"]}
    return frozenset({"body", *own}).union(*map(_published_names, schema.values()))

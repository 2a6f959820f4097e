"""Turns errors into RFC 9457 problem documents with a remedy, never with the peer's input."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from shoal_protocol.wire.errors import NotReady, ProtocolError

PROBLEM_IN_SCOPE: Final = "shoal.problem"
URN: Final = "urn:shoal:problem:"
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
        "Compare the method with this service's /openapi.json.",
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
    422: (
        "invalid-request",
        "The request does not have the published form",
        "The fields listed in `errors` are missing, unknown or of the wrong form.",
        "Compare the request with this service's /openapi.json.",
    ),
    500: (
        "internal-error",
        "The service failed",
        "The service met a fault of its own; its operator finds it in the log.",
        "Keep the message and send the same bytes again later.",
    ),
}
MOST_ERRORS: Final = 10  # that one problem document lists


class ProblemResponse(JSONResponse):
    """Answers with a problem document, and leaves its code in the scope for the request log."""

    media_type = "application/problem+json"

    def __init__(self, document: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(document, document["status"], headers)
        self._code = document["type"].removeprefix(URN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[PROBLEM_IN_SCOPE] = self._code
        await super().__call__(scope, receive, send)


def refusal(error: ProtocolError, headers: Mapping[str, str] | None = None) -> ProblemResponse:
    """Answer with a protocol error as a problem document."""
    wait = error.retry_after_seconds
    later = {} if wait is None else {"Retry-After": str(wait)}
    return ProblemResponse(problem_document(error), {**later, **(headers or {})})


def problem_document(error: ProtocolError) -> dict[str, Any]:
    """Return a protocol error as a problem document of type `urn:shoal:problem:<code>`."""
    return _document(error.status, error.code, error.title, str(error), error.remedy)


def _document(status: int, code: str, title: str, detail: str, remedy: str) -> dict[str, Any]:
    return {
        "type": f"{URN}{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "remedy": remedy,
    }


def http_problem(
    status: int, headers: Mapping[str, str] | None = None, **more: Any
) -> ProblemResponse:
    """Answer with the problem document of an HTTP status by itself, with the members `more`."""
    about = HTTP_PROBLEMS.get(status) or (
        f"http-{status}",
        HTTPStatus(status).phrase,
        "The request cannot be served.",
        "Compare the request with this service's /openapi.json.",
    )
    return ProblemResponse(_document(status, *about) | more, headers)


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error that `app` answers with a problem document.

    Exceptions nobody foresaw are not handled here but by `application.Observation`: a handler
    for them would have the server log their messages, which may hold values.
    """
    for kind in (ProtocolError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _problem_of)


async def _problem_of(_: Request, error: Exception) -> ProblemResponse:
    if isinstance(error, ProtocolError):
        return refusal(error)
    if isinstance(error, RequestValidationError):
        return http_problem(
            422,
            errors=[
                {"location": _location(*item["loc"]), "type": item["type"]}
                for item in error.errors()[:MOST_ERRORS]
            ],
        )
    assert isinstance(error, HTTPException)  # noqa: S101 -- registered for these types only
    return http_problem(error.status_code, error.headers)


def _location(part: str, name: int | str = "", *_: int | str) -> str:
    """Return a parameter's place and name. Fields of a body may be input: they are not named."""
    return part if part == "body" else f"{part}.{name}"

"""Holds every answer of a service in this process against the service's OpenAPI document."""

import json
import re
from typing import Any

from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from shoal_kit.web.application import Observation

UNDECLARED: list[str] = []
"""Answers that no document declares, since the last test."""

_documents: dict[tuple[str, ...], Any] = {}  # by name and routes with a token: slow to make


def watch() -> None:
    """Look at all answers from now on."""
    unwatched = Observation.__call__

    async def watched(self: Observation, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await unwatched(self, scope, receive, send)
            return
        answer: dict[str, Any] = {}
        body = bytearray()

        async def seen(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.update(message)
            elif answer["status"] >= 400 and message["type"] == "http.response.body":
                body.extend(message.get("body", b""))
            await send(message)

        await unwatched(self, scope, receive, seen)
        app = scope.get("app")
        if answer and isinstance(app, FastAPI) and app.title.startswith("Shoal"):
            guarded = [each.path for each in app.routes if getattr(each, "dependencies", ())]
            kind = (app.title, *guarded)
            if kind not in _documents:
                _documents[kind] = app.openapi()
            _compare(_documents[kind], scope, answer, bytes(body))

    Observation.__call__ = watched  # type: ignore[method-assign]


def _compare(document: Any, scope: Scope, answer: dict[str, Any], body: bytes) -> None:
    if scope["path"].startswith("/console"):  # pages for people
        return
    operation = _operation(document, scope["method"], scope["path"])
    status, headers = answer["status"], {name.lower(): each for name, each in answer["headers"]}
    if operation is None or status == 405:  # the document itself, or nothing
        if status not in (200, 404, 405, 413, 415):
            UNDECLARED.append(f"{scope['method']} {scope['path']}: {status}")
        return
    what = f"{document['info']['title']}: {scope['method']} {operation['summary']}: {status}"
    responses = operation["responses"]
    declared = responses.get(str(status)) or (responses["default"] if status >= 400 else None)
    if declared is None:
        UNDECLARED.append(what + f" {body.decode()[:200]}")
        return
    kind = headers.get(b"content-type", b"").decode().partition(";")[0]
    if kind not in declared.get("content", {"": None}):
        UNDECLARED.append(f"{what} as {kind!r}")
    elif kind == "application/problem+json":
        problem = document["components"]["schemas"]["Problem"]
        if not {*problem["required"]} <= {*json.loads(body)}:
            UNDECLARED.append(f"{what} {body.decode()[:200]}")


def _operation(document: Any, method: str, path: str) -> Any:
    for template, operations in document["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path) and method.lower() in operations:
            return operations[method.lower()]
    return None

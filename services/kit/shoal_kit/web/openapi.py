"""Declares for FastAPI what routes take and answer, problem documents included.

A route passes `answers` to FastAPI, which makes the OpenAPI document. FastAPI knows nothing of
bodies that a route reads itself, so `Application` adds the schemas that those refer to.
"""

import hmac
import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.security import HTTPBearer
from pydantic import AfterValidator
from pydantic.json_schema import models_json_schema

from shoal_kit.web.problems import ProblemResponse
from shoal_protocol.wire.documents import Document
from shoal_protocol.wire.encoding import NAME_PATTERN
from shoal_protocol.wire.errors import (
    ProtocolError,
    UnknownJob,
)

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
_BEARER: Final = HTTPBearer(
    scheme_name="party",
    description="The token in an agent's owner.token, or in a service's operator.token.",
    auto_error=False,
)
_REFERENCE: Final = "#/components/schemas/"
_DESCRIPTIONS: Final = {
    200: "Here it is, or it was on file already.",
    201: "It is new, and stored durably.",
    202: "There is none yet; this is how it stands.",
}
_PROBLEM: Final = {
    "type": "object",
    "description": "A problem document (RFC 9457) with a remedy.",
    "required": ["type", "title", "status", "detail", "remedy"],
    "properties": {
        "type": {"type": "string", "pattern": "^urn:shoal:problem:[a-z0-9-]+$"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "remedy": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}

_DOCUMENTS: Final[dict[str, type[Document]]] = {}
"""The kinds of documents, by name, that routes in this process take or give."""

JsonSchema = Mapping[str, Any]
ID_PATTERN: Final = "[0-9a-f]{64}"
ID_SCHEMA: Final[JsonSchema] = {"type": "string", "pattern": f"^{ID_PATTERN}$"}
IN_PATH: Final = Path(json_schema_extra=dict(ID_SCHEMA))
"""Of an id in a path. Whatever has another form is not found, and no invalid request."""


def checked_id(value: str, *, unknown: type[ProtocolError] = UnknownJob) -> str:
    """Return `value` if it has the form of an id: 64 lower-case hex digits.

    Raises:
        ProtocolError: as `unknown` says.
    """
    if not re.fullmatch(ID_PATTERN, value):
        raise unknown
    return value


JobId = Annotated[str, IN_PATH, AfterValidator(checked_id)]
ANY: Final[JsonSchema] = {}
TEXT: Final[JsonSchema] = {"type": "string"}
BINARY: Final[JsonSchema] = {"type": "string", "format": "binary"}


def object_of(**properties: JsonSchema) -> JsonSchema:
    """Return the schema of an object that has these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def signed(kind: type[Document]) -> JsonSchema:
    """Return the schema of a signed document of a kind."""
    _DOCUMENTS[kind.__name__] = kind
    return object_of(
        body={"$ref": f"{_REFERENCE}{kind.__name__}"},
        signature={"type": "string", "pattern": "^[0-9a-f]{128}$"},
        signer={"type": "string", "pattern": NAME_PATTERN},
    )


def listed_as(name: str, each: JsonSchema) -> JsonSchema:
    """Return the schema of an object whose one field, `name`, is a list."""
    return object_of(**{name: {"type": "array", "items": each}})


def having(*fields: str) -> JsonSchema:
    """Return the schema of an object that has at least these fields."""
    return {"type": "object", "required": list(fields)}


REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "Why it is refused. 503 is plain text where too many connections are open.",
        "content": {
            ProblemResponse.media_type: {"schema": {"$ref": f"{_REFERENCE}Problem"}},
            "text/plain": {"schema": TEXT},
        },
        "headers": {
            "Retry-After": {
                "schema": {"type": "integer"},
                "description": "Seconds after which the same request may be sent again.",
            }
        },
    }
}
"""FastAPI's `responses` of every route; the protocol's document says which codes there are."""


def answers(
    gives: JsonSchema,
    *,
    statuses: tuple[int, ...] = (200,),
    as_type: str = JSON,
    takes: JsonSchema | None = None,
    as_body: str = JSON,
    pending: JsonSchema | None = None,
) -> dict[str, Any]:
    """Return the arguments by which a FastAPI route declares all that it can answer.

    It gives `gives` with each of `statuses`, in `as_type`; with `pending` it may give that and 202.
    A body that it takes has the schema `takes` in `as_body`: JSON is to be in canonical form.
    """
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": _DESCRIPTIONS[status], "content": {as_type: {"schema": gives}}}
        for status in statuses
    }
    if pending is not None:
        responses[202] = {"description": _DESCRIPTIONS[202], "content": {JSON: {"schema": pending}}}
    extra: dict[str, Any] = {}
    if takes is not None:
        extra["requestBody"] = {"required": True, "content": {as_body: {"schema": takes}}}
    return {
        "status_code": statuses[0],
        "response_class": Response,
        "responses": responses,
        "openapi_extra": extra,
    }


stores = partial(answers, statuses=(201, 200))
"""As `answers`, of a route that keeps what it takes: 201 if it is new, 200 if it was on file."""


def is_bearer(authorization: str | None, token: str) -> bool:
    """Tell whether a request's `Authorization` header carries the token (RFC 6750)."""
    return hmac.compare_digest((authorization or "").encode(), f"Bearer {token}".encode())


def only_with(token: str) -> Any:
    """Return a dependency of routes, by which they say and see to it that this token opens them."""

    async def check(request: Request, _: Annotated[object, Depends(_BEARER)]) -> None:
        if not is_bearer(request.headers.get("Authorization"), token):
            raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})

    return Depends(check)


class Application(FastAPI):
    """Adds to FastAPI's document the schemas of problems and of signed documents."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            schemas = super().openapi().setdefault("components", {}).setdefault("schemas", {})
            _, shared = models_json_schema(
                [(kind, "validation") for _, kind in sorted(_DOCUMENTS.items())],
                ref_template=f"{_REFERENCE}{{model}}",
            )
            schemas |= {**shared.get("$defs", {}), "Problem": _PROBLEM}
        return super().openapi()


_MOST: Final = 2**53 - 1  # exact in everybody's JSON, and small enough for any database to add to

After = Annotated[int, Query(ge=0, le=_MOST)]
"""The number of the last entry that the asker has, 0 for none."""

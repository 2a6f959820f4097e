"""Makes the OpenAPI document whole: it has every answer of every route.

A route says by `answers` what it takes, gives and refuses. What any route can answer, and the
schemas that are named, `publish` adds.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.security import HTTPBearer
from pydantic import AfterValidator
from pydantic.json_schema import models_json_schema

from shoal_hosting.server.problems import HTTP_PROBLEMS, INVALID_REQUEST, ProblemResponse
from shoal_hosting.tokens import is_bearer
from shoal_protocol.wire.documents import Document
from shoal_protocol.wire.encoding import NAME_PATTERN
from shoal_protocol.wire.errors import (
    BadSignature,
    LedgerBroken,
    MalformedDocument,
    NotReady,
    ProtocolError,
    UnknownJob,
    UnknownManifest,
    UnknownSigner,
    UnsupportedVersion,
    WrongManifest,
    WrongSigner,
)
from shoal_protocol.wire.service_errors import StorageUnavailable

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
NOTE: Final = "text/plain"
SIGNED: Final = (
    MalformedDocument,
    UnsupportedVersion,
    UnknownManifest,
    WrongManifest,
    UnknownSigner,
    WrongSigner,
    BadSignature,
)
"""Why a signed document is refused, whatever it says."""

_BEARER: Final = HTTPBearer(
    scheme_name="party",
    description="The token in an agent's owner.token, or in a service's operator.token.",
    auto_error=False,
)
_REFERENCE: Final = "#/components/schemas/"
_PROBLEMS: Final = "x-problems"  # of an operation, until it is complete
_ALWAYS: Final = (413, 415)
_WITH_BODY: Final = (408,)
_SAID: Final = {
    200: "Here it is, or it was on file already.",
    201: "It is new, and stored durably.",
    202: "There is none yet; this is how it stands.",
    304: "The client has the newest.",
}
_ETAG: Final = {
    "ETag": {"required": True, "schema": {"type": "string"}, "description": "For If-None-Match."}
}
_RETRY_AFTER: Final = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
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

JsonSchema = Mapping[str, Any]
ID_PATTERN: Final = "[0-9a-f]{64}"
ID_SCHEMA: Final[JsonSchema] = {"type": "string", "pattern": f"^{ID_PATTERN}$"}
IN_PATH: Final = Path(json_schema_extra=dict(ID_SCHEMA))
"""Of an id in a path. Whatever has another form is not found, and no invalid request."""


def _checked_job(job: str) -> str:
    if not re.fullmatch(ID_PATTERN, job):
        raise UnknownJob
    return job


JobId = Annotated[str, IN_PATH, AfterValidator(_checked_job)]
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


def with_optional(schema: JsonSchema, **properties: JsonSchema) -> JsonSchema:
    """Return the schema of an object that may have these fields, too."""
    return {**schema, "properties": {**schema["properties"], **properties}}


def signed(kind: type[Document]) -> JsonSchema:
    """Return the schema of a signed document of a kind."""
    return object_of(
        body={"$ref": f"{_REFERENCE}{kind.__name__}"},
        signature={"type": "string", "pattern": "^[0-9a-f]{128}$"},
        signer={"type": "string", "pattern": NAME_PATTERN},
    )


def listed_as(name: str, each: JsonSchema) -> JsonSchema:
    """Return the schema of an object whose one field, `name`, is a list."""
    return object_of(**{name: {"type": "array", "items": each}})


def one_or_several(each: JsonSchema) -> JsonSchema:
    """Return the schema of a document, or of a list of such, in which each is judged by itself."""
    return {"anyOf": [each, listed_as("documents", ANY)]}


def having(*fields: str) -> JsonSchema:
    """Return the schema of an object that has at least these fields."""
    return {"type": "object", "required": list(fields)}


def answers(
    gives: JsonSchema,
    *refuses: type[ProtocolError],
    statuses: tuple[int, ...] = (200,),
    as_type: str = JSON,
    takes: JsonSchema | None = None,
    as_body: str = JSON,
    pending: JsonSchema | None = None,
    is_tagged: bool = False,
    others: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """Return the arguments by which a FastAPI route declares all that it can answer.

    It gives `gives` with each of `statuses`, in `as_type`; with `pending` it may give that and 202.
    A body that it takes has the schema `takes` in `as_body`: JSON is to be in canonical form.
    `is_tagged` answers have an ETag, and 304 is one of them. `others` are statuses of text that is
    no problem document, by its type.
    """
    said: dict[str, Any] = {
        str(status): {"description": _SAID[status], "content": {as_type: {"schema": gives}}}
        for status in statuses
    }
    if pending is not None:
        said["202"] = {"description": _SAID[202], "content": {JSON: {"schema": pending}}}
    if is_tagged:
        said["200"]["headers"] = _ETAG
        said["304"] = {"description": _SAID[304], "headers": _ETAG}
    for status, kind in (others or {}).items():
        said[str(status)] = {"description": "Text.", "content": {kind: {"schema": TEXT}}}
    extra: dict[str, Any] = {"responses": said, _PROBLEMS: _by_status(refuses)}
    if takes is not None:
        extra["requestBody"] = {"required": True, "content": {as_body: {"schema": takes}}}
    return {"status_code": statuses[0], "response_class": Response, "openapi_extra": extra}


stores = partial(answers, statuses=(201, 200))
"""As `answers`, of a route that keeps what it takes: 201 if it is new, 200 if it was on file."""


def only_with(token: str) -> Any:
    """Return a dependency of routes, by which they say and see to it that this token opens them."""

    async def check(request: Request, _: Annotated[object, Depends(_BEARER)]) -> None:
        if not is_bearer(request.headers.get("Authorization"), token):
            raise HTTPException(401, headers={"WWW-Authenticate": "Bearer"})

    return Depends(check)


def publish(app: FastAPI, plain: Mapping[str, JsonSchema]) -> None:
    """Have `app` publish the whole document; `plain` are operations that FastAPI does not know.

    Those are POST, by their paths.
    """
    generate: Callable[[], dict[str, Any]] = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        if "Problem" not in schemas:
            document["paths"] |= {path: {"post": dict(each)} for path, each in plain.items()}
            for operations in document["paths"].values():
                for operation in operations.values():
                    _complete(operation)
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            wanted = _references(document["paths"]) - set(schemas)
            schemas |= _documents(wanted) | {"Problem": _PROBLEM}
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _complete(operation: dict[str, Any]) -> None:
    """Add the problems of every route, and describe all of them."""
    problems: dict[str, dict[str, str]] = {
        status: dict(titles) for status, titles in operation.pop(_PROBLEMS, {}).items()
    }
    always = (*_ALWAYS, *(_WITH_BODY if "requestBody" in operation else ()))
    if operation["responses"].pop("422", None):  # FastAPI's own, for parameters
        problems.setdefault("422", {}).update([INVALID_REQUEST])
    if operation.get("security"):
        always += (401,)
    for status in always:
        problems.setdefault(str(status), {}).update([HTTP_PROBLEMS[status][:2]])
    problems.setdefault("500", {})["internal-error"] = "The service failed"
    for error in (NotReady, StorageUnavailable, LedgerBroken):
        problems.setdefault(str(error.status), {})[error.code] = error.title
    for status, titles in sorted(problems.items()):
        content: dict[str, Any] = {
            ProblemResponse.media_type: {
                "schema": {
                    "$ref": f"{_REFERENCE}Problem",
                    "properties": {
                        "type": {"enum": [f"urn:shoal:problem:{code}" for code in titles]}
                    },
                }
            }
        }
        described: dict[str, Any] = {"description": "; ".join(titles.values()), "content": content}
        if status in ("429", "503"):
            described["headers"] = _RETRY_AFTER
        if status == "503":  # before there is a request: too many connections are open
            content["text/plain"] = {"schema": {"type": "string"}}
        operation["responses"][status] = described


def _by_status(errors: Iterable[type[ProtocolError]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for error in errors:
        found.setdefault(str(error.status), {})[error.code] = error.title
    return found


def _documents(names: set[str]) -> dict[str, Any]:
    """Return the schemas of documents by the names of their classes, and those that they name."""
    kinds = [each for each in _all_kinds(Document) if each.__name__ in names]
    _, found = models_json_schema(
        [(kind, "validation") for kind in kinds], ref_template=f"{_REFERENCE}{{model}}"
    )
    definitions: dict[str, Any] = found.get("$defs", {})
    return definitions


def _all_kinds(kind: type[Document]) -> Iterable[type[Document]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _all_kinds(each)


def _references(schema: Any) -> set[str]:
    """Return the names of schemas that a part of the document refers to, at any depth."""
    if isinstance(schema, dict):
        named = schema.get("$ref", "").removeprefix(_REFERENCE)
        return {named}.union(*map(_references, schema.values()))
    return set().union(*map(_references, schema)) if isinstance(schema, list | tuple) else set()


_MOST: Final = 2**53 - 1  # exact in everybody's JSON, and small enough for any database to add to

After = Annotated[int, Query(ge=0, le=_MOST)]
"""The number of the last entry that the asker has, 0 for none."""

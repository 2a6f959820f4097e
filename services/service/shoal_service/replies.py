"""Checks ids in paths and builds the responses that the routes of all services share."""

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import AfterValidator

from shoal_kit.web.openapi import IN_PATH, JSON, checked_id
from shoal_kit.web.problems import problem_document
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import ProtocolError, UnknownRound

Outcome = int | ProtocolError
"""201 for one of several that is new, 200 for one on file, or why it is refused."""


RoundId = Annotated[str, IN_PATH, AfterValidator(partial(checked_id, unknown=UnknownRound))]
Count = Annotated[int, Query(ge=1, le=1000)]


def document(encoded: bytes, status: int = 200, *, media_type: str = JSON) -> Response:
    """Answer with a document as it was signed, or other JSON that is encoded."""
    return Response(encoded, status, media_type=media_type)


def shown(value: Any, status: int = 200) -> Response:
    """Answer with a value in canonical JSON."""
    return document(canonical_json(value), status)


def taken(value: Any, *, is_new: bool) -> Response:
    """Answer 201 if the document is new, 200 if it was on file."""
    return shown(value, 201 if is_new else 200)


def listed(documents: Iterable[bytes]) -> Response:
    """Answer with several documents as they were signed."""
    return document(b'{"documents":[' + b",".join(documents) + b"]}")


def outcome(what: Outcome) -> dict[str, Any]:
    """Return what became of one of several."""
    if isinstance(what, ProtocolError):
        return {"status": what.status, "problem": problem_document(what)}
    return {"status": what}

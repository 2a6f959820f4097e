"""Checks ids in paths and builds the responses that the routes of all services share."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final

from fastapi import Query, Response
from pydantic import AfterValidator

from shoal_kit.web.openapi import ID_PATTERN, IN_PATH, JSON
from shoal_kit.web.problems import problem_document
from shoal_protocol.wire.encoding import canonical_json, parse_canonical_json
from shoal_protocol.wire.errors import (
    MalformedDocument,
    ProtocolError,
    UnknownRound,
)

MOST_DOCUMENTS: Final = 10_000  # in one body
_MOST_VALUES: Final = 1 << 17  # in several documents that are not as they should be

Outcome = int | ProtocolError
"""201 for a document of several that is new, 200 for one on file, or why it is refused."""


def checked_round(round_id: str) -> str:
    """Return `round_id` if it has the form of a round's id.

    Raises:
        UnknownRound
    """
    if not re.fullmatch(ID_PATTERN, round_id):
        raise UnknownRound("a round's id is 64 lower-case hex digits")
    return round_id


RoundId = Annotated[str, IN_PATH, AfterValidator(checked_round)]
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


def documents_in(encoded: bytes, signer: str, *, most: int = MOST_DOCUMENTS) -> list[bytes] | None:
    """Return the documents of the body `{"documents": [...]}`; None if it is one document itself.

    Where each ends with the name of its `signer`, as all should, the body is only cut: that stands
    nowhere else so, for quotes in a text are escaped.

    Raises:
        MalformedDocument: they are no list, or too many: each gets an answer, however small it is.
    """
    if not encoded.startswith(b'{"documents":'):
        return None
    end = b',"signer":"%s"}' % signer.encode()
    found = encoded.removeprefix(b'{"documents":[').removesuffix(b"]}").split(end, most + 1)
    documents = [each.removeprefix(b",") + end for each in found[:-1]]
    is_cut = all(each.startswith(b'{"body":{') for each in documents)
    if not is_cut or encoded != b'{"documents":[%s]}' % b",".join(documents):
        value = parse_canonical_json(encoded, most_values=_MOST_VALUES)
        listed = value["documents"] if value.keys() == {"documents"} else None
        if not isinstance(listed, list):
            raise MalformedDocument("a body with several documents has a list of them alone")
        documents = list(map(canonical_json, listed))
    if len(documents) > most:
        raise MalformedDocument(f"documents must be a list of at most {most}")
    return documents


def settled(about: dict[str, Any], outcomes: Outcome | list[Outcome]) -> Response:
    """Answer with `about` the one document that came, or with the outcome of each of several.

    Raises:
        ProtocolError: why the one is refused.
    """
    if isinstance(outcomes, list):
        return shown({"outcomes": [outcome(each) for each in outcomes]})
    if isinstance(outcomes, ProtocolError):
        raise outcomes
    return shown(about, outcomes)


def outcome(what: Outcome) -> dict[str, Any]:
    """Return what became of one document of several."""
    if isinstance(what, ProtocolError):
        return {"status": what.status, "problem": problem_document(what)}
    return {"status": what}

"""What an answer to a message says: its status, its JSON, and a code for the outcome.

Codes are kept in the state beside those of refusals.
"""

import json
import re
from typing import Any, Final

from shoal_protocol.wire.encoding import check_values
from shoal_protocol.wire.errors import MalformedDocument

OK, CREATED, ACCEPTED = 200, 201, 202
NOT_FOUND, GONE = 404, 410

_PROBLEM: Final = re.compile(r"urn:shoal:problem:([a-z0-9-]{1,64})")

PENDING: Final = "pending"  # no answer so far
ACKNOWLEDGED: Final = "acknowledged"
OVER: Final = "over"  # a job or round whose time has passed


def read_json(answer: bytes) -> Any:
    """Return the JSON in an answer.

    Raises:
        MalformedDocument: there is none, or it has more values than a document may have.
    """
    check_values(answer)
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        raise MalformedDocument("the answer is not JSON") from None


def code_in(answer: bytes, status: int) -> str:
    """Return the code of the problem in an answer, and nothing else that the peer wrote.

    It is `http-<status>` if the peer named none. A refusal does not pass for an outcome of another
    kind, whatever its code says.
    """
    try:
        problem = read_json(answer)
    except MalformedDocument:
        problem = None
    kind = problem.get("type") if isinstance(problem, dict) else None
    match = _PROBLEM.fullmatch(kind) if isinstance(kind, str) else None
    return match[1] if match and match[1] not in (PENDING, ACKNOWLEDGED) else f"http-{status}"

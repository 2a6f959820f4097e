"""Codes for the outcome of a message to a peer, kept in the state beside refusals' codes."""

import re
from typing import Final

_PROBLEM: Final = re.compile(r"urn:shoal:problem:([a-z0-9-]{1,64})")

PENDING: Final = "pending"  # no answer so far
ACKNOWLEDGED: Final = "acknowledged"
OVER: Final = "over"  # a job or round whose time has passed


def problem_code(problem: object, status: int) -> str:
    """Return the code in a problem document; never anything else that the peer wrote.

    A refusal does not pass for an outcome of another kind, whatever its code says.
    """
    kind = problem.get("type") if isinstance(problem, dict) else None
    match = _PROBLEM.fullmatch(kind) if isinstance(kind, str) else None
    return match[1] if match and match[1] not in (PENDING, ACKNOWLEDGED) else f"http-{status}"

"""What the trainer's routes have in common: names in paths, bounds of bodies, tags of answers."""

import hashlib
from typing import Annotated, Final

from fastapi import Header
from pydantic import AfterValidator

from shoal_protocol.errors import UnknownJob

JSON: Final = "application/json"
JOINS_LIMIT_BYTES: Final = 16 << 20  # for some 30,000 joins in one request


def _refuse_other_paths(job: str) -> str:
    if len(job) != 64 or not set(job) <= set("0123456789abcdef"):
        raise UnknownJob
    return job


JobId = Annotated[str, AfterValidator(_refuse_other_paths)]
IfNoneMatch = Annotated[str | None, Header()]


def tag_of(body: bytes) -> str:
    """Return the ETag of a body."""
    return f'"{hashlib.sha256(body).hexdigest()}"'

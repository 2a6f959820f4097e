"""Tokens of parties: whoever can read the file runs the party, and shows it by the token."""

import hmac
import secrets
from pathlib import Path
from typing import Final

from shoal_hosting.private_files import write_new
from shoal_hosting.startup import StartupRefused, read_private_file

OPERATOR_TOKEN: Final = "operator.token"
"""Name of the file in the data directory of a service."""
_SHORTEST: Final = 32


def token_of(path: Path) -> str:
    """Return the token in a private file, which the first call makes.

    Raises:
        StartupRefused: the file is broken, or open to others.
    """
    if not path.exists():
        write_new(path, f"{secrets.token_hex(32)}\n".encode(), private=True)
    token = read_private_file(path).decode("ascii", errors="replace").strip()
    if len(token) < _SHORTEST:
        raise StartupRefused(f"{path} holds no token; delete it, and the next start makes one")
    return token


def is_bearer(authorization: str | None, token: str) -> bool:
    """Tell whether a request's `Authorization` header carries the token (RFC 6750)."""
    return hmac.compare_digest((authorization or "").encode(), f"Bearer {token}".encode())

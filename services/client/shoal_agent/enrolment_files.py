"""Enrolment files: clients' public keys for the authority, each proven.

The first line is `shoal enrolment 1`. Every other line is one client's Ed25519 verify key and
that key's own signature over the key, both in hex: whoever hands the file over has the keys.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from shoal_protocol.wire.encoding import domain

HEADER: Final = "shoal enrolment 1"
_LINE: Final = re.compile(r"([0-9a-f]{64}) ([0-9a-f]{128})")
_BARE_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")


def encode_enrolment(keys: Sequence[SigningKey]) -> bytes:
    """Return the enrolment file of the clients that have these private keys, in their order."""
    lines = [HEADER]
    for key in keys:
        public = bytes(key.verify_key)
        proof = key.sign(domain("enrolment") + public).signature
        lines.append(f"{public.hex()} {proof.hex()}")
    return "".join(f"{line}\n" for line in lines).encode()


def read_enrolments(paths: Iterable[Path]) -> list[VerifyKey]:
    """Read the public keys of enrolment files, in order, and check that each is proven.

    Raises:
        ValueError: a file is missing, holds no key, is no enrolment file, is a file of private
            keys, or a signature is not its key's own; the line is named, never shown.
    """
    return [key for path in paths for key in _read(path)]


def _read(path: Path) -> list[VerifyKey]:
    if not path.is_file():
        raise ValueError(f"{path}: there is no such enrolment file")
    lines = path.read_bytes().decode("ascii", errors="replace").splitlines()
    if any(_BARE_KEY.fullmatch(line.strip()) for line in lines):
        raise ValueError(
            f"{path}: this is a private key file: hand over {path.name}.enrolment, and keep "
            "this one secret"
        )
    if not lines or lines[0] != HEADER:
        raise ValueError(f"{path} is not an enrolment file: its first line is not {HEADER!r}")
    if len(lines) == 1:
        raise ValueError(f"{path} holds no client's key")
    return [_proven(path, number, line) for number, line in enumerate(lines[1:], start=2)]


def _proven(path: Path, number: int, line: str) -> VerifyKey:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"{path}: line {number} is not a verify key and its signature in hex")
    public, proof = (bytes.fromhex(part) for part in match.groups())
    key = VerifyKey(public)
    try:
        key.verify(domain("enrolment") + public, proof)
    except BadSignatureError:
        raise ValueError(
            f"{path}: line {number}: the signature is not by the key beside it; its owner must "
            "make the file anew"
        ) from None
    return key

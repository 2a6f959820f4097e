"""Enrolment files: a data holder's public key for the authority, proven, and its number of slots.

The first line is `shoal enrolment 1`. The second is its Ed25519 verify key in hex, how many slots
it asks for in all, and that key's own signature over both in hex: whoever hands the file over has
the key.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from shoal_protocol.trust.roster import MOST_SLOTS
from shoal_protocol.wire.encoding import domain

HEADER: Final = "shoal enrolment 1"
_LINE: Final = re.compile(r"([0-9a-f]{64}) ([1-9][0-9]{0,9}) ([0-9a-f]{128})")
_BARE_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class Enrolment:
    """What a data holder asks of the authority: to be on the roster with so many slots in all."""

    key: VerifyKey
    slots: int


def encode_enrolment(key: SigningKey, *, slots: int) -> bytes:
    """Return the enrolment file of the data holder that has this private key.

    Raises:
        ValueError: the number of slots is not positive, or larger than a roster may have.
    """
    if not 0 < slots <= MOST_SLOTS:
        raise ValueError("a data holder has at least one slot, and at most 2^32 - 1")
    public = bytes(key.verify_key)
    proof = key.sign(_proven_bytes(public, slots)).signature
    return f"{HEADER}\n{public.hex()} {slots} {proof.hex()}\n".encode()


def read_enrolment(path: Path) -> Enrolment:
    """Read an enrolment file, and check that it is proven.

    Raises:
        ValueError: it is missing, is no enrolment file or is one of a private key, or the signature
            is not the key's own; nothing of it is shown.
    """
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
    match = _LINE.fullmatch(lines[1]) if len(lines) == 2 else None
    if match is None or int(match[2]) > MOST_SLOTS:
        raise ValueError(
            f"{path}: what follows is not one line with a verify key, a number of slots and their "
            "signature"
        )
    key, slots = VerifyKey(bytes.fromhex(match[1])), int(match[2])
    try:
        key.verify(_proven_bytes(bytes(key), slots), bytes.fromhex(match[3]))
    except BadSignatureError:
        raise ValueError(
            f"{path}: the signature is not by the key beside it; its owner must make the file anew"
        ) from None
    return Enrolment(key, slots)


def _proven_bytes(public: bytes, slots: int) -> bytes:
    return domain("enrolment") + public + slots.to_bytes(4, "little")

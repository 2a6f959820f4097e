"""Enrolment files: a data holder's public key for the authority, proven, and its number of slots.

The first line is `shoal enrolment 1`. The second is its Ed25519 verify key in hex, how many slots
it asks for in all, and that key's own signature over both in hex: whoever hands the file over has
the key. Where it replaces another key, a third line has `replaces`, the other one in hex, and the
other one's signature over both in hex.
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
_REPLACES: Final = re.compile(r"replaces ([0-9a-f]{64}) ([0-9a-f]{128})")
_BARE_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class Enrolment:
    """What a data holder asks of the authority: to be on the roster with so many slots in all.

    `replaces` is its key that signed the new one.
    """

    key: VerifyKey
    slots: int
    replaces: VerifyKey | None = None


def encode_enrolment(key: SigningKey, *, slots: int, replaces: SigningKey | None = None) -> bytes:
    """Return the enrolment file of the data holder that has this private key.

    With `replaces`, which is its key on the roster, it asks for the other to take its place.

    Raises:
        ValueError: the number of slots is not positive, or larger than a roster may have.
    """
    if not 0 < slots <= MOST_SLOTS:
        raise ValueError("a data holder has at least one slot, and at most 2^32 - 1")
    public = bytes(key.verify_key)
    proof = key.sign(_proven_bytes(public, slots)).signature
    lines = [HEADER, f"{public.hex()} {slots} {proof.hex()}"]
    if replaces is not None:
        old = bytes(replaces.verify_key)
        consent = replaces.sign(_consented_bytes(old, public)).signature
        lines.append(f"replaces {old.hex()} {consent.hex()}")
    return "".join(f"{line}\n" for line in lines).encode()


def read_enrolment(path: Path) -> Enrolment:
    """Read an enrolment file, and check that it is proven.

    Raises:
        ValueError: it is missing, is no enrolment file or is one of a private key, or a signature
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
    match = _LINE.fullmatch(lines[1]) if len(lines) in (2, 3) else None
    replaces = _REPLACES.fullmatch(lines[2]) if len(lines) == 3 else None
    if match is None or int(match[2]) > MOST_SLOTS or (len(lines) == 3 and replaces is None):
        raise ValueError(
            f"{path}: what follows is not one line with a verify key, a number of slots and their "
            "signature, nor a second one with the key that it replaces"
        )
    key, slots = VerifyKey(bytes.fromhex(match[1])), int(match[2])
    try:
        key.verify(_proven_bytes(bytes(key), slots), bytes.fromhex(match[3]))
        if replaces is None:
            return Enrolment(key, slots)
        old = VerifyKey(bytes.fromhex(replaces[1]))
        old.verify(_consented_bytes(bytes(old), bytes(key)), bytes.fromhex(replaces[2]))
    except BadSignatureError:
        raise ValueError(
            f"{path}: a signature is not by the key beside it; its owner must make the file anew"
        ) from None
    return Enrolment(key, slots, old)


def _proven_bytes(public: bytes, slots: int) -> bytes:
    return domain("enrolment") + public + slots.to_bytes(4, "little")


def _consented_bytes(old: bytes, new: bytes) -> bytes:
    return domain("key_replacement") + old + new

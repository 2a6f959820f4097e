"""Seals what a restore needs to the owner's recovery key, whose private half is kept elsewhere.

The state without what is still to be sent, and the owner's policy and mapping; no key that signs.
A sealed box holds a fresh key, which a secret box is under. The data holder's signature inside
tells who made it, for anybody can seal to a public key. Its length tells nobody how many of the
slots have been given to individuals.
"""

import math
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final

from nacl.exceptions import CryptoError
from nacl.public import PublicKey, SealedBox
from nacl.secret import SecretBox
from nacl.signing import SigningKey
from nacl.utils import random as random_bytes
from pydantic import Field

from shoal_holder import frames
from shoal_holder.messages import Message, Octets
from shoal_holder.site_files import RECOVERY_KEY
from shoal_holder.state_file import StateFile
from shoal_protocol.wire.encoding import Digest, Timestamp, domain, format_time

MAGIC: Final = domain("backup")
_WITHOUT_WHAT_IS_UNSENT: Final = """
UPDATE outbox SET document = NULL WHERE kind IN ('envelope', 'contribution');
VACUUM;
"""  # the last one leaves nothing of erased rows
_WITHOUT_INDIVIDUALS: Final = """
DROP TRIGGER slots_keep;
DELETE FROM slots;
UPDATE machine SET known = NULL;
VACUUM;
"""
_LARGEST_SLOT: Final = 100  # bytes of a row of `slots` and of its two indexes, with their pages
_SLACK: Final = 1 << 16  # of pages that the first rows begin


class Backup(Message):
    """What a backup holds: the state file, the owner's files by name, and padding."""

    authority: Digest
    key: Digest  # the data holder's, of the signature
    made_at: Timestamp
    state: Octets
    files: dict[str, bytes] = Field(repr=False)
    padding: Octets


def sealed_backup(
    file: StateFile,
    owner_files: Mapping[str, Path],
    *,
    slots: int,
    authority: str,
    key: SigningKey,
    now: datetime,
) -> bytes:
    """Return a sealed backup of a state and of those of the owner's files that are there.

    The data holder has so many `slots` in all, given to individuals or not.

    Raises:
        ValueError: there is no recovery key, or more than a backup can hold.
        OSError: a file cannot be read.
    """
    recovery_key = _recovery_key(owner_files)
    found = {
        name: path.read_bytes()
        for name, path in owner_files.items()
        if name != RECOVERY_KEY and path.exists()
    }
    state, padding = _copy(file, slots)
    backup = frames.encode(
        Backup(
            authority=authority,
            key=bytes(key.verify_key).hex(),
            made_at=now,
            state=state,
            files=found,
            padding=padding,
        )
    )
    fresh = random_bytes(SecretBox.KEY_SIZE)
    signed = bytes(key.sign(MAGIC + backup).signature) + backup
    try:
        sealed = MAGIC + SealedBox(recovery_key).encrypt(fresh) + SecretBox(fresh).encrypt(signed)
    except CryptoError:
        raise ValueError(f"{owner_files[RECOVERY_KEY]} is no usable key") from None
    file.write("UPDATE backup SET made_at = ?, has_records = records", format_time(now))
    return sealed


def note_records(file: StateFile, changed_at: int | None) -> None:
    """Note when the file changed by which slots are given, in nanoseconds of its own clock.

    Whether a backup is due follows from that, for it may not tell whether anybody is new.
    """
    file.write("UPDATE backup SET records = ?", changed_at)


def last_backup(file: StateFile) -> tuple[datetime | None, bool]:
    """Return when the last backup was handed out, and whether another one is due."""
    made_at, is_due = file.one(
        "SELECT made_at, made_at IS NULL OR records IS NOT has_records FROM backup"
    )
    return None if made_at is None else datetime.fromisoformat(made_at), bool(is_due)


def _recovery_key(owner_files: Mapping[str, Path]) -> PublicKey:
    path = owner_files.get(RECOVERY_KEY)
    if path is None or not path.exists():
        raise ValueError("there is no recovery key: `shoal agent recovery-key` makes one")
    try:
        return PublicKey(bytes.fromhex(path.read_text("ascii").strip()))
    except (ValueError, CryptoError):
        raise ValueError(f"{path} is not a key of 64 hex digits") from None


def _copy(file: StateFile, slots: int) -> tuple[bytes, bytes]:
    """Return the state as one file, without what is still to be sent: that identifies answers.

    With it comes padding, so that the length of both in base64 follows from the number of `slots`,
    and from the state without what is known of individuals.
    """
    with closing(sqlite3.connect(":memory:")) as copy:
        file.database.backup(copy)
        copy.executescript(_WITHOUT_WHAT_IS_UNSENT)
        state = copy.serialize()
        copy.executescript(_WITHOUT_INDIVIDUALS)
        length = len(copy.serialize()) + _SLACK + _LARGEST_SLOT * slots
        return state, bytes(3 * max(0, math.ceil(length / 3) - math.ceil(len(state) / 3)))

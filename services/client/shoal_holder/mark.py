"""The mark beside the state file says how far its journal got, so that a lost end is noticed.

A journal whose end is lost looks whole by itself, and the vault would spend again what it spent
before. The mark is written after each commit that appended, and before anything leaves. Two slots
are written in turn, each with its checksum: a crash leaves one of them whole.
"""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Final

from shoal_kit.startup import sync_directory
from shoal_protocol.journal import Head

_SLOT_BYTES: Final = 4096  # of one write, which a crash may tear; the other slot stays whole


class Mark:
    """The file with the mark. It keeps its size, so that a full disk does not get in the way."""

    def __init__(self, path: Path, *, is_void: bool = False) -> None:
        """Open the file, if it is there; one that `is_void` is not read, and replaced by the first.

        Raises:
            ValueError: neither slot is whole.
            OSError: it cannot be read or written.
        """
        self.path = path
        self.head: Head | None = None
        """The last entry that was marked; None if there is no file."""
        self._next, self._descriptor = 0, -1
        if path.exists() and not is_void:
            content = path.read_bytes()
            slots = [_read(content[:_SLOT_BYTES]), _read(content[_SLOT_BYTES:])]
            whole = [each for each in slots if each is not None]
            if not whole:
                raise ValueError(
                    f"{path} is damaged: nothing says how far the journal got. If the state did "
                    "not suffer with it, run `shoal agent restore`, which takes what nodes charged "
                    "for spent"
                )
            self.head = max(whole)
            self._next = 1 - slots.index(self.head)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, head: Head) -> None:
        """Mark a journal's last entry; it is on the disk on return.

        Raises:
            OSError: nothing may leave yet.
        """
        if head == self.head:
            return
        if self.head is None:
            draft = self.path.with_name(self.path.name + ".draft")
            self._descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
            os.pwrite(self._descriptor, 2 * _slot(head), 0)
            os.fsync(self._descriptor)
            draft.replace(self.path)
            sync_directory(self.path.parent)
        else:
            os.pwrite(self._descriptor, _slot(head), self._next * _SLOT_BYTES)
            os.fdatasync(self._descriptor)
            self._next = 1 - self._next
        self.head = head

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _slot(head: Head) -> bytes:
    said = json.dumps(head).encode()
    return (said + b" " + sha256(said).hexdigest().encode()).ljust(_SLOT_BYTES)


def _read(slot: bytes) -> Head | None:
    said, _, checksum = slot.rstrip().rpartition(b" ")
    if len(slot) != _SLOT_BYTES or sha256(said).hexdigest().encode() != checksum:
        return None
    return Head(*json.loads(said))

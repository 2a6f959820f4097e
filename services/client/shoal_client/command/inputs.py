"""Reading the files that somebody else made; knows how much of one is read, not what is in it."""

import sys
from pathlib import Path
from typing import BinaryIO, Final

LARGEST_FILE: Final = 256 << 20  # bytes
"""Above what any certificate or ledger has: a certificate of 100,000 numbers takes some 10 MB."""


def read_file(path: Path) -> bytes:
    """Return the content of a file that may be a device or a pipe without an end.

    Raises:
        ValueError: it has more than `LARGEST_FILE` bytes.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return _read(file, str(path))


def read_standard_input() -> bytes:
    """Return what comes in on standard input; raises as `read_file`."""
    return _read(sys.stdin.buffer, "what was piped in")


def _read(file: BinaryIO, name: str) -> bytes:
    content = bytearray()
    while part := file.read(min(1 << 20, LARGEST_FILE + 1 - len(content))):
        content += part
    if len(content) > LARGEST_FILE:
        raise ValueError(f"{name} has more than {LARGEST_FILE >> 20} MiB: it was not read")
    return bytes(content)

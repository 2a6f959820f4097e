"""Finds ports of this machine that nobody has taken."""

import fcntl
import os
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_FIRST_PORT, _LAST_PORT = 20_000, 32_000  # below the range that systems give out by themselves
_given: Final[set[int]] = set()


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive ports on the loopback that nobody has taken.

    They are kept for this process until it ends: from the look to the moment at which a service
    listens, no other process is given one of them.

    Raises:
        RuntimeError: there are none.
    """
    for first in range(_FIRST_PORT, _LAST_PORT - count, count):
        ports = range(first, first + count)
        if _given.isdisjoint(ports) and _lock(ports) and all(map(_is_free, ports)):
            _given.update(ports)
            return first
    raise RuntimeError("no free ports on the loopback")


def _lock(ports: range) -> bool:
    """Keep these ports from every other process that asks here, if none has one of them."""
    try:
        fcntl.lockf(_register(), fcntl.LOCK_EX | fcntl.LOCK_NB, len(ports), ports.start)
    except BlockingIOError:
        return False
    return True


@cache
def _register() -> int:
    """Open the file of which byte n is locked by who was given port n; never closed."""
    return os.open(
        Path(tempfile.gettempdir()) / f"shoal-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True

"""How the demo sees what happens: free ports, waiting with a limit, a node's own account."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import httpx

from shoal_consortium.processes import Process
from shoal_hosting.peers.connections import pinned_tls

PATIENCE_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.02
_FIRST_PORT, _LAST_PORT = 20_000, 32_000  # below the range that systems give out by themselves

T = TypeVar("T")


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive ports on the loopback that nobody has taken.

    Raises:
        RuntimeError: there are none.
    """
    # Two that look at once, each with keys to make before it listens, must not find the same ones.
    starts = range(_FIRST_PORT, _LAST_PORT - count, count)
    for place in range(len(starts)):
        first = starts[(os.getpid() + place) % len(starts)]
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise RuntimeError("no free ports on the loopback")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_until(condition: Callable[[], T], what: str) -> T:
    """Return the first true value of `condition`.

    Raises:
        RuntimeError: it did not come in time.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(POLL_SECONDS)
    return value


def held_answers(node: Process, round_id: str) -> int:
    """Return how many answers a Compute node says it holds, 0 if it knows no such round yet."""
    environment = node.environment
    certificate = Path(environment["SHOAL_PARTY"], "tls.crt").read_text()
    url = f"https://{environment['SHOAL_HOST']}:{environment['SHOAL_PORT']}/v1/rounds/{round_id}"
    with httpx.Client(verify=pinned_tls(certificate), trust_env=False) as client:
        answer = client.get(url)
    return int(answer.json()["held"]) if answer.status_code == httpx.codes.OK else 0

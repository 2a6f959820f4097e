"""How the demo sees what happens: waiting with a limit, a node's own account."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import httpx

from shoal_consortium.processes import Process
from shoal_kit.tls_certificates import pinned_tls

PATIENCE_SECONDS: Final = 120.0
POLL_SECONDS: Final = 0.02

T = TypeVar("T")


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

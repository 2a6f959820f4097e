"""A federation of real processes on free ports of this machine, for all tests here."""

import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shoal_consortium import quickstart
from shoal_consortium.processes import Federation, logged
from tests.end_to_end.holding import EPSILON_OF_ALL_TESTS
from tests.world.trust import CONSORTIUM_POLICY, PHONES, SITES, Trust, make_trust

PORTS = 8  # five services, and an agent of each of three sites


def first_free_port() -> int:
    """Return the first of as many free ports in a row as are needed."""
    begin = 21_000 + os.getpid() % 1_250 * PORTS  # two runs at once do not meet
    for first in range(begin, 32_000, PORTS):
        taken = [socket.socket() for _ in range(PORTS)]
        try:
            for offset, each in enumerate(taken):
                each.bind(("127.0.0.1", first + offset))
        except OSError:
            continue
        finally:
            for each in taken:
                each.close()
        return first
    raise RuntimeError("no free ports")


@pytest.fixture(scope="session")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(
        tmp_path_factory.mktemp("federation"),
        sites=SITES | PHONES,
        url_template="https://127.0.0.1:{port}",
        first_port=first_free_port(),
        now=datetime.now(UTC),
        minimum_threshold=2,
        cosignatures=2,
        maximum_epsilon=EPSILON_OF_ALL_TESTS,
        maximum_local_epsilon=2.0,
        queries=(*CONSORTIUM_POLICY.queries, "gradient_sum"),
    )


@pytest.fixture(scope="session")
def running(trust: Trust, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    logs: Path = tmp_path_factory.mktemp("logs")
    with Federation() as federation:
        federation.start(
            *(logged(each, logs) for each in quickstart.services(trust.directory, trust.consortium))
        )
        yield federation

"""A federation of real processes on free ports of this machine, for all tests here."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from demo.ports import free_ports
from shoal_consortium import quickstart
from shoal_consortium.processes import Federation
from tests.end_to_end.holding import EPSILON_OF_ALL_TESTS, logged
from tests.world.trust import CONSORTIUM_POLICY, PHONES, SITES, Trust, make_trust

PORTS = 8  # five services, and an agent of each of three sites


def first_free_port() -> int:
    """Return the first of as many free ports in a row as are needed."""
    return free_ports(PORTS)


@pytest.fixture(scope="session")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(
        tmp_path_factory.mktemp("federation"),
        sites=SITES | PHONES,
        url_template="https://127.0.0.1:{port}",
        first_port=first_free_port(),
        now=datetime.now(UTC),
        minimum_threshold=2,
        manifest_signatures=2,
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

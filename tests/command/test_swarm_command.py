"""`shoal swarm run` says what it costs, and refuses before it asks anybody anything."""

from pathlib import Path

import pytest

from shoal_client.site_files import lock_keys
from tests.command.test_command import shoal

CLIENTS = 6


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "test"
    shoal("quickstart", made, "--clients", f"swarm={CLIENTS}", "--compute", 2)
    return made


def run(home: Path, *options: object, status: int = 1) -> str:
    arguments = [
        *("--clients-key", home / "clients/swarm/clients.key"),
        *("--consortium", home / "consortium"),
        *("--analyst", home / "parties/analyst"),
        *("--data", home / "data/swarm"),
    ]
    result = shoal("swarm", "run", *arguments, *options, status=status)
    assert "Warning: for a test federation only" in result.stderr
    return result.stderr.splitlines()[-1]


def test_more_clients_than_keys_are_refused(home: Path) -> None:
    line = run(home, "--clients", CLIENTS + 1)
    assert line.endswith(f"holds {CLIENTS} keys, fewer than {CLIENTS + 1}")


def test_keys_that_an_agent_uses_are_refused(home: Path) -> None:
    with lock_keys(home / "clients/swarm/clients.key"):
        assert "in use" in run(home)


def test_services_that_do_not_answer_are_named_so(home: Path) -> None:
    assert "could not be reached" in run(home, status=4)

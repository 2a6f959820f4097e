"""The compose federation in real containers; skipped, visibly, where no Docker engine answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.containers.compose import Compose, engine_answers

SERVICES = (
    *("compute-0", "compute-1", "compute-2"),
    *("aggregator", "trainer", "hospital-a", "hospital-b"),
)

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not engine_answers(), reason="no Docker engine with Compose answers"),
]


@pytest.fixture(scope="module")
def compose(tag: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """The example federation, without ports on the host."""
    override = tmp_path_factory.mktemp("compose") / "override.yml"
    services = "".join(f"  {name}:\n    ports: !reset []\n" for name in SERVICES)
    override.write_text(f"services:\n{services}")
    compose = Compose(override, SHOAL_TAG=tag)
    try:
        compose.start(*SERVICES)
        yield compose
    finally:
        compose.down()


def ask_for_a_job(compose: Compose, *command: str) -> dict[str, Any]:
    """Run a command of the analyst's group `job`, and return the report that it printed."""
    run = ("run", "--rm", "--no-TTY", "analyst", "shoal", "job", *command, "--json")
    return dict(json.loads(compose(*run, "--party", "/party", "--consortium", "/consortium")))


@pytest.fixture(scope="module")
def report(compose: Compose) -> dict[str, Any]:
    return ask_for_a_job(compose, "submit", "--wait", "/examples/blood-pressure.toml")


def test_one_command_yields_a_posterior(report: dict[str, Any]) -> None:
    assert report["cohort_sizes"] == [800]
    assert report["privacy"]["epsilon"] <= 1.0
    age = report["posterior"]["names"].index("age")
    mean = report["posterior"]["coefficients"][age]
    sd = report["posterior"]["covariance"][age][age] ** 0.5
    # the invented patients' true slope is 0.5: 6 sd fail by chance once in 10^8 runs
    assert abs(mean - 0.5) < 6 * sd


@pytest.mark.parametrize("service", SERVICES)
def test_no_container_runs_as_root_or_can_write_to_its_image(
    compose: Compose, service: str
) -> None:
    probe = "import os; print(os.getuid()); open('/planted', 'w')"
    script = f'python -c "{probe}" 2>&1 || true'
    answer = compose("exec", "--no-TTY", service, "sh", "-c", script)
    assert "10001" in answer.splitlines()
    assert "Read-only file system" in answer


@pytest.mark.parametrize("service", ["hospital-a-vault", "hospital-b-vault"])
def test_a_vault_has_no_network_and_makes_no_socket(compose: Compose, service: str) -> None:
    """Asked of its own process: others here have the engine's filter alone, as its agent has."""
    devices = compose("exec", "--no-TTY", service, "cat", "/proc/1/net/dev")
    assert [line.split(":")[0].strip() for line in devices.splitlines()[2:]] == ["lo"]
    agent = service.removesuffix("-vault")
    assert filters(compose, service) == filters(compose, agent) + 1


def filters(compose: Compose, service: str) -> int:
    """Return how many filters of system calls a container's one service runs under."""
    script = "cat /proc/$(cat /proc/1/task/1/children | tr -d ' ')/status"
    status = compose("exec", "--no-TTY", service, "sh", "-c", script)
    [line] = [line for line in status.splitlines() if line.startswith("Seccomp_filters:")]
    return int(line.split()[1])


def test_each_container_holds_keys_of_its_own_and_no_others(compose: Compose) -> None:
    script = "cat $(find / -name '*.key' -not -path '/proc/*' -not -path '/sys/*')"
    found = {
        service: set(compose("exec", "--no-TTY", service, "sh", "-c", script).splitlines())
        for service in SERVICES
    }
    keys = {
        service: {line for line in lines if not line.startswith("-----")}
        for service, lines in found.items()
    }
    assert all(keys.values())
    everything = [key for service in SERVICES for key in keys[service] if len(key) >= 32]
    assert len(everything) == len(set(everything))


@pytest.mark.parametrize("service", [*SERVICES, "hospital-a-vault"])
def test_a_container_may_fill_neither_memory_nor_disk(compose: Compose, service: str) -> None:
    host = compose.inspect(service)["HostConfig"]
    assert 0 < host["Memory"] <= 2 << 30
    assert host["LogConfig"]["Config"] == {"max-file": "5", "max-size": "10m"}


def test_all_stop_at_once_and_go_on_with_what_they_knew(
    compose: Compose, report: dict[str, Any]
) -> None:
    compose("stop")
    assert {compose.inspect(each)["State"]["ExitCode"] for each in SERVICES} == {0}
    compose.start(*SERVICES)
    assert ask_for_a_job(compose, "result", report["job"]) == report
    again = ask_for_a_job(compose, "submit", "--wait", "/examples/blood-pressure.toml")
    assert again["cohort_sizes"] == report["cohort_sizes"]

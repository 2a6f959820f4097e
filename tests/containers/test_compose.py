"""The compose federation in real containers; skipped, visibly, where no Docker engine answers."""

import json
from collections.abc import Iterator

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


def test_one_command_yields_a_posterior(compose: Compose) -> None:
    answer = compose(
        *("run", "--rm", "--no-TTY", "analyst", "shoal", "job", "submit", "--wait", "--json"),
        *("--party", "/party", "--consortium", "/consortium", "/examples/blood-pressure.toml"),
    )
    report = json.loads(answer)
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
    """Asked of its first process, beside which this one runs without the filter."""
    devices = compose("exec", "--no-TTY", service, "cat", "/proc/1/net/dev")
    assert [line.split(":")[0].strip() for line in devices.splitlines()[2:]] == ["lo"]
    status = compose("exec", "--no-TTY", service, "cat", "/proc/1/status")
    assert "Seccomp:\t2" in status


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

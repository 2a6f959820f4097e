"""A Compute node as two containers over one PostgreSQL, one of them killed during a job."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.containers.compose import Compose, docker, engine_answers
from tests.containers.postgresql import ask, image_of, in_place_of, settings_of
from tests.containers.test_compose import SERVICES
from tests.containers.waiting import until

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not engine_answers(), reason="no Docker engine with Compose answers"),
]

# of several rounds: it goes on while a test finds out that its first shares are there
JOB = """
[task]
name = "quantiles"
levels = [0.5]
rounds = 4
smallest_cell = 5
[variables]
systolic_pressure = [80, 180]
[settings]
epsilon = 1.0
delta = 1e-5
dropouts = 20
colluders = 400
minimum_population = 700
maximum_population = 800
join_seconds = 120
round_seconds = 60
grace_seconds = 60
"""
REPLICAS = ("compute-0", "compute-0-replica")


@pytest.fixture(scope="module")
def compose(tag: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """The example federation with the settings of `replicas.env`, without ports on the host."""
    override = tmp_path_factory.mktemp("compose") / "override.yml"
    ports = "".join(f"  {name}:\n    ports: !reset []\n" for name in SERVICES)
    job = override.with_name("job.toml")
    job.write_text(JOB)
    job.chmod(0o644)
    ports += f"  analyst:\n    volumes:\n      - {job}:/job.toml:ro\n"
    override.write_text(f"services:\n{ports}{in_place_of('postgres', tag)}")
    compose = Compose(override, SHOAL_TAG=tag, **settings_of("replicas.env"))
    try:
        compose("build", "--quiet", "postgres")
        compose.start(*SERVICES, "compute-0-replica")
        yield compose
    finally:
        compose.down()
        docker("image", "rm", "--force", image_of(tag))


def test_a_job_is_finished_though_one_replica_is_killed_during_it(compose: Compose) -> None:
    submit = ("shoal", "job", "submit", "--wait", "--json", "--party", "/party")
    of = ("--consortium", "/consortium", "/job.toml")
    with ThreadPoolExecutor(1) as beside:
        job = beside.submit(compose, "run", "--rm", "--no-TTY", "analyst", *submit, *of)
        until("shares are stored", lambda: job.done() or shares_on_file(compose))
        docker("pause", compose.container("aggregator"))  # or the job might end before the kill
        victim = leader(compose)
        compose("kill", "--signal", "SIGKILL", victim)
        docker("unpause", compose.container("aggregator"))
        assert not job.done(), f"too early for a replica to be killed: {job.result()}"
        assert json.loads(job.result())["cohort_sizes"] == [800] * 4
    [survivor] = set(REPLICAS) - {victim}
    assert led_since(compose, survivor)


def shares_on_file(compose: Compose) -> int:
    return int(ask(compose, "postgres", "SELECT count(*) FROM shares"))


def leader(compose: Compose) -> str:
    """Return the replica that took the lease last; a busy machine may let it change hands."""
    return max(REPLICAS, key=lambda name: led_since(compose, name))


def led_since(compose: Compose, name: str) -> str:
    lines = compose("logs", "--no-color", "--no-log-prefix", name).splitlines()
    found = [line for line in lines if "this replica leads" in line]
    entries = [json.loads(line[line.index("{") :]) for line in found]  # behind Compose's prefix
    return max((str(entry["timestamp"]) for entry in entries), default="")

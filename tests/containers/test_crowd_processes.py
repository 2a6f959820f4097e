"""A trainer as several containers over one PostgreSQL, killed and added while a crowd contributes.

A simulated crowd knows the trainer's one name. At the end it follows every chain from the opening
to the closing, and looks in them for every receipt that it got.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.containers.compose import ROOT, Compose, docker, engine_answers
from tests.containers.postgresql import ask, image_of, in_place_of, settings_of
from tests.containers.waiting import until

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not engine_answers(), reason="no Docker engine with Compose answers"),
]

PHONES = 2000
POSTGRES = "trainer-postgres"
BALANCER = "shoal-balancer"  # from the distribution, as PostgreSQL is
# the crowd's keys, and who lets them contribute; what else there is of the federation stays down
CROWD = f"""
  keys:
    command:
      - sh
      - -c
      - >-
        shoal quickstart /federation/all --if-missing --name crowd --compute 2
        --url-template 'https://{{name}}:8440' --san localhost
        --clients phones={PHONES} --maximum-local-epsilon 1 --no-dictionary >/dev/null
        && for part in consortium parties/trainer parties/analyst; do
        cp -R /federation/all/$$part/. /handout/$$part; done
        && cp -R /federation/all/clients/phones/. /handout/clients/hospital-a
        && cp /federation/all/parties/trainer/tls.* /handout/trainer-tls
        && chown -R shoal:shoal /handout/consortium /handout/*/*
  trainer:
    ports: !reset []
  trainer-balancer:
    image: {BALANCER}:${{SHOAL_TAG}}
    build:
      dockerfile_inline: |
        FROM debian:bookworm-slim
        RUN apt-get update && apt-get install --yes --no-install-recommends nginx-light \
            && rm -rf /var/lib/apt/lists/*
  phones:
    image: shoal-analyst:${{SHOAL_TAG}}
    profiles: [phones]
    environment:
      PYTHONPATH: /load
    volumes:
      - {ROOT}/bench:/load/bench:ro
      - hospital-a-party:/phones:ro
      - analyst-party:/party:ro
      - consortium:/consortium:ro
"""
CONTRIBUTE = (
    *("python", "-m", "bench.load", "crowd", "--holder-key", "/phones/holder.key"),
    *("--consortium", "/consortium", "--analyst", "/party", "--concurrency", "8"),
)
METRIC = "shoal_trainer_crowd_contributions_total"
COUNTED = f"""
import pathlib, ssl, urllib.request
token = pathlib.Path("/data/operator.token").read_text().strip()
asked = urllib.request.Request("https://localhost:8440/metrics",
                               headers={{"Authorization": f"Bearer {{token}}"}})
context = ssl._create_unverified_context()
served = urllib.request.urlopen(asked, context=context).read().decode()
print([line.split()[1] for line in served.splitlines() if line.startswith("{METRIC} ")][0])
"""


@pytest.fixture(scope="module")
def compose(tag: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    """The trainer with the settings of `crowd.env`, one process beside it, and their balancer."""
    override = tmp_path_factory.mktemp("compose") / "override.yml"
    override.write_text(f"services:\n{CROWD}{in_place_of(POSTGRES, tag)}")
    compose = Compose(override, SHOAL_TAG=tag, **settings_of("crowd.env"))
    try:
        compose("build", "--quiet", POSTGRES, "trainer-balancer")
        compose.start("trainer", "trainer-crowds")
        compose("up", "--detach", "trainer-balancer")
        yield compose
    finally:
        compose.down()
        docker("image", "rm", "--force", image_of(tag), f"{BALANCER}:{tag}")


def test_nothing_acknowledged_is_lost_when_processes_are_killed_and_added_meanwhile(
    compose: Compose,
) -> None:
    with ThreadPoolExecutor(1) as beside:
        phones = f"{compose.project}-phones"
        run = ("run", "--rm", "--no-TTY", "--name", phones, "phones")
        crowd = beside.submit(compose, *run, *CONTRIBUTE)
        until("a tenth is there", lambda: crowd.done() or contributions(compose) > PHONES / 10)
        docker("kill", "--signal", "KILL", compose.container("trainer-crowds"))
        assert not crowd.done(), f"too early for a process to be killed: {crowd.result()}"
        docker("pause", phones)  # or it would be done before there is another process
        compose("up", "--detach", "--no-recreate", "--scale", "trainer-crowds=2", "trainer-crowds")
        added = newest(compose)
        until("the added one is healthy", lambda: is_healthy(added))
        docker("unpause", phones)
        until("half is there", lambda: crowd.done() or contributions(compose) > PHONES / 2)
        docker("kill", "--signal", "KILL", compose.container("trainer"))
        assert not crowd.done(), f"too early for the second to be killed: {crowd.result()}"
        found = json.loads(crowd.result())
    assert (found["acknowledged"], found["refused"]) == (PHONES, {})
    account = found["account"]
    assert account["linked"] == PHONES
    assert {account[what] for what in ("lost", "counted_twice", "misdrawn", "forged")} == {0}
    assert float(docker("exec", added, "python", "-c", COUNTED)) > 0


def contributions(compose: Compose) -> int:
    return int(ask(compose, POSTGRES, "SELECT coalesce(sum(contributions), 0) FROM crowd_jobs"))


def newest(compose: Compose) -> str:
    """Return the id of the container with the highest number."""
    return compose("ps", "--quiet", "--all", "trainer-crowds").split()[-1]


def is_healthy(container: str) -> bool:
    state = docker("inspect", "--format", "{{.State.Health.Status}}", container)
    return state.strip() == "healthy"

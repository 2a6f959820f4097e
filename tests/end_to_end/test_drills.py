"""Drills of loss: processes are killed and disks removed in the middle of a job, which still ends.

After each drill nothing that was acknowledged is lost, no answer counts twice, no cap is exceeded.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shoal.jobs.analyst import Job
from shoal_agent.status import ChainPage, HolderStatus
from shoal_command.connection import own_agent
from shoal_consortium import quickstart
from shoal_consortium.processes import Federation as Processes
from shoal_consortium.processes import Process
from shoal_protocol.wire.encoding import decode_clients
from tests.end_to_end.conftest import first_free_port
from tests.end_to_end.holding import EPSILON_OF_ALL_TESTS, POLICY, data_of, logged
from tests.end_to_end.test_real_processes import CLIENTS, get, shoal, submit, wait_until
from tests.world.handbook import commands
from tests.world.people import csv_of
from tests.world.trust import SITES, TASK, Trust, make_trust

LAST = "clinic-c"  # joins, and stays away until the drill is over: so a round waits for it


@dataclass
class Agent:
    """A data holder's agent in a process of its own."""

    home: Path
    data: Path
    url: str
    process: Process

    def start(self) -> None:
        self.process.start()
        self.process.wait_until_ready()

    def status(self) -> HolderStatus:
        return own_agent(self.home, self.url, self.data).ask(HolderStatus, "/v1/status")

    def ledger(self) -> Any:
        return own_agent(self.home, self.url, self.data).ask(dict[str, Any], "/v1/ledger")

    def charges(self) -> list[tuple[str, int, float]]:
        """Return (round, slots, mu) of each charge in the journal."""
        page = own_agent(self.home, self.url, self.data).ask(ChainPage, "/v1/ledger/chain")
        said = [each.statement for each in page.entries if each.statement is not None]
        return [
            (
                each.document.get("round", each.subject),
                len(decode_clients(each.document["slots"])),
                each.document["mu"],
            )
            for each in said
            if each.kind in ("answer", "charge")
        ]

    def restore(self, trust: Trust, *backup: str) -> None:
        where = ["--agent", self.home, "--data", self.data]
        where += ["--consortium", trust.directory / "consortium"]
        shoal("agent", "restore", *map(str, where), *backup, "--yes", status=0)


@dataclass
class Drill:
    trust: Trust
    services: Processes
    agents: dict[str, Agent]

    @contextmanager
    def held_up(self, **settings: Any) -> Iterator[tuple[Job, str]]:
        """Give a job and its round that all but the last have answered; then let it end."""
        job = submit(self.trust, TASK, **settings)
        last = self.agents[LAST]
        wait_until(lambda: join_of(last, job) == "acknowledged")
        last.process.kill()
        others = [each for name, each in self.agents.items() if name != LAST]
        for each in others:
            each.process.start()
        for each in others:
            each.process.wait_until_ready()
        wait_until(lambda: any(each.phase == "collecting" for each in job.state().rounds))
        round_id = job.state().rounds[0].round
        for node in self.trust.consortium.manifest.compute_nodes:
            wait_until(lambda node=node: held(node, round_id) == len(others))
        yield job, round_id
        last.start()
        report = job.wait()
        assert report.cohort_sizes == (CLIENTS,)
        for name, each in self.agents.items():
            self.check(name, each, round_id)
            if name != LAST:
                each.process.kill()

    def check(self, site: str, agent: Agent, round_id: str) -> None:
        """See that each slot is charged once for a round, below the cap."""
        wait_until(lambda: agent.status().refusal is None)
        wait_until(lambda: charged(agent, round_id) == SITES[site])
        spent = agent.ledger()["spent"]["epsilon"]["most"]
        assert 0.0 < spent <= EPSILON_OF_ALL_TESTS


def join_of(agent: Agent, job: Job) -> str | None:
    return next((each.join for each in agent.status().jobs if each.job == job.id), None)


def held(node: Any, round_id: str) -> int:
    return int(get(node, f"/v1/rounds/{round_id}")["held"])


def charged(agent: Agent, round_id: str) -> int:
    """Return how many slots were charged for a round; a ledger never charges one twice for it."""
    return sum(slots for what, slots, _ in agent.charges() if what == round_id)


def prepared(trust: Trust, process: quickstart.Process, logs: Path) -> Agent:
    """Put the owner's files beside a site's key; return its agent."""
    home = trust.directory / "clients" / process.name
    (home / "records.csv").write_text(csv_of(trust.records(process.name)))
    rules = POLICY.model_dump(mode="json", exclude_none=True)
    (home / "policy.toml").write_text(
        "\n".join(f"{name} = {json.dumps(each)}" for name, each in rules.items())
    )
    environment = {**process.environment, "SHOAL_AGENT_POLL_SECONDS": "0.1"}
    running = Process(process.name, process.module, environment, logs / f"{process.name}.log")
    return Agent(home, data_of(trust, process.name), process.url, running)


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    logs = tmp_path_factory.mktemp("logs")
    trust = make_trust(
        tmp_path_factory.mktemp("drill"),
        url_template="https://127.0.0.1:{port}",
        first_port=first_free_port(),
        now=datetime.now(UTC),
        minimum_threshold=2,
        maximum_epsilon=EPSILON_OF_ALL_TESTS,
    )
    found = [prepared(trust, each, logs) for each in quickstart.agents(trust.directory)]
    with Processes() as services:
        services.start(
            *(logged(each, logs) for each in quickstart.services(trust.directory, trust.consortium))
        )
        agents = {each.process.name: each for each in found}
        agents[LAST].start()
        try:
            yield Drill(trust, services, agents)
        finally:
            for each in (*found, *agents.values()):
                each.process.stop()


@pytest.fixture
def victim(drill: Drill) -> Agent:
    return drill.agents["clinic-a"]


@pytest.mark.essential
def test_an_agent_that_is_killed_in_a_round_goes_on(drill: Drill, victim: Agent) -> None:
    with drill.held_up():
        victim.process.kill()
        victim.start()


@pytest.mark.parametrize("has_backup", [True, False], ids=["older backup", "nothing"])
def test_a_disk_that_is_lost_in_a_round_is_restored(
    drill: Drill, victim: Agent, tmp_path: Path, has_backup: bool
) -> None:
    opening: list[str] = []
    if has_backup:
        key, backup = tmp_path / "recovery.key", tmp_path / "backup"
        shoal("agent", "recovery-key", str(victim.home), "--out", str(key), status=0)
        victim.start()
        where = ["--agent", str(victim.home), "--data", str(victim.data), "--url", victim.url]
        shoal("agent", "backup", *where, "--to", str(backup), status=0)
        victim.process.kill()
        opening = ["--backup", str(backup), "--recovery-key", str(key)]
    with drill.held_up():
        before = costly(victim)
        victim.process.kill()
        shutil.rmtree(victim.data)
        if has_backup:
            (victim.home / "policy.toml").unlink()
        victim.restore(drill.trust, *opening)
        victim.start()
        wait_until(lambda: costly(victim) == before)


def test_a_node_whose_disk_is_lost_in_a_round_goes_on_from_its_backup(
    drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(drill.trust.directory)
    node = drill.services["compute-1"]
    with drill.held_up():
        for each in commands("Back up"):
            shoal(*each, status=0)
        node.kill()
        shutil.rmtree(drill.trust.directory / "data" / "compute-1")
        for each in commands("Restore"):
            assert "Start the service" in shoal(*each, status=0)
        node.start()
        node.wait_until_ready()


def costly(agent: Agent) -> Counter[str]:
    """Return what was charged: without its map an agent brings all slots up to the largest, too."""
    counts = Counter[str]()
    for what, slots, mu in agent.charges():
        counts[what] += slots if mu else 0
    return counts

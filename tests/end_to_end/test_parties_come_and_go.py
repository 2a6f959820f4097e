"""Every kind of party comes, goes and is replaced while jobs run, and nothing that counts is lost.

One federation of real processes goes through all changes. Rounds that are open end under the
manifest that they began under; jobs go on under the next one, or say why they do not.
"""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import rounds
from bench.processes import service_client
from demo.ports import free_ports
from shoal.jobs.analyst import Job
from shoal_command.connection import own_agent
from shoal_consortium import quickstart
from shoal_consortium.processes import Federation, Process
from shoal_kit.manifest_chain import open_chain
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import read_certificate
from shoal_protocol.wire.encoding import decode_clients
from shoal_protocol.wire.phases import JobPhase
from tests.command.running import shoal
from tests.end_to_end.holding import logged
from tests.end_to_end.test_life_cycle import Authority, standing_still
from tests.end_to_end.test_many_rounds import BATCH, CLIENTS, WAIT_SECONDS, reach

CAP = 9.0  # of a client's epsilon, by its holder
LONG, SHORT = 30, 3


def wait_until(holds: Callable[[], object], what: str) -> None:
    latest = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < latest, what
        time.sleep(0.1)


class Consortium(Authority):
    """The authority, those who come, and all that runs."""

    def __init__(self, directory: Path, federation: Federation) -> None:
        super().__init__(directory)
        self.directory, self.federation = directory, federation

    def newcomer(self, role: str, name: str) -> tuple[str, Path]:
        """Make a party and return the options that list it."""
        home = self.directory / "parties" / name
        url = () if role == "analyst" else ("--url", f"https://127.0.0.1:{free_ports(1)}")
        shoal("party", "new", home, "--role", role, "--name", name, "--operator", name, *url)
        return "--card", home / "card.json"

    def change(self, *what: object, command: str = "change") -> None:
        """Make a version, start the services of it that never ran, then publish it.

        A site stands still meanwhile: the open round of each job waits for it, and ends then.
        """
        with standing_still(self.federation["site-0"]):
            self._change(command, *what)

    def _change(self, command: str, *what: object) -> None:
        shoal("consortium", command, self.consortium, "--authority", self.key, *what)
        for home in (self.directory / "parties").iterdir():
            if not (home / "pin").exists():
                shoal("party", "pin", home, self.newest.digest)
        begun = [
            logged(each, self.directory)
            for each in quickstart.services(self.directory, self.newest)
            if each.name not in self.federation.processes
        ]
        for each in begun:
            (self.directory / "data" / each.name).mkdir(mode=0o700)
        self.federation.start(*begun)
        self.publish()

    def submit(self, analyst: str, number: int) -> Job:
        counts = {"rounds": number, "batch": BATCH, "clients": CLIENTS}
        return rounds.submit(self.directory, **counts, analyst=analyst)

    def switch_off(self, name: str) -> None:
        """Stop a retired service as soon as it says that it may be."""
        client, url = service_client(self.federation[name])
        with client:
            wait_until(
                lambda: (
                    "may be switched off" in client.get(f"{url}/readyz").json().get("party", "")
                ),
                f"{name} is still needed",
            )
        self.federation[name].stop()


def end_of(job: Job) -> str:
    """Wait until a job has failed; return why. All rounds that it had released a full sum."""
    wait_until(lambda: job.state().phase is JobPhase.FAILED, "the job goes on")
    state = job.state()
    assert state.round_counts == {"published": state.published}
    assert {each.cohort for each in state.rounds} == {BATCH}
    return str(state.reason)


def ledger(agent: Process, directory: Path, path: str = "/v1/ledger") -> Any:
    home, data = directory / "clients" / agent.name, directory / "data" / agent.name
    url = f"https://127.0.0.1:{agent.environment['SHOAL_PORT']}"
    return own_agent(home, url, data).ask(dict[str, Any], path)


@pytest.mark.slow
def test_all_kinds_of_parties_come_and_go_while_jobs_run(tmp_path: Path) -> None:
    services, agents = rounds.make(tmp_path, batch=BATCH, clients=CLIENTS, sites=2, nodes=3)
    rules = tmp_path / "policy.toml"
    named = rules.read_text().replace('["analyst"]', '["analyst", "second", "third"]')
    rules.write_text(named.replace(f"epsilon = {rounds.EPSILON}", f"epsilon = {CAP}"))
    with Federation() as federation:
        federation.start(*services, *agents)
        the = Consortium(tmp_path, federation)

        first = the.submit("analyst", LONG)
        reach(first, 2)
        recovery = tmp_path / "recovery"
        the.change("--new-recovery", recovery, command="move-authority")
        the.change(*the.newcomer("compute", "compute-3"), *the.newcomer("analyst", "second"))
        long = the.submit("second", LONG)
        reach(first, first.state().published + 2)
        reach(long, 2)
        the.change("--retire", "compute-1")
        assert "compute-3 took the place of compute-1" in end_of(first)

        again = the.submit("analyst", LONG)
        reach(again, 2)
        the.change(*the.newcomer("aggregator", "adder"))
        the.switch_off("aggregator")
        reach(again, again.state().published + 2)
        the.change(*the.newcomer("analyst", "third"), "--retire", "analyst")
        assert "analyst is no analyst" in end_of(again)

        (the.key / "signing.key").unlink()
        the.key = recovery
        the.change("--to", tmp_path / "heir", command="move-authority")
        the.key = tmp_path / "heir"
        the.change("--maximum-round-seconds", 80_000)
        assert long.state().phase == "running", "all of it came while the job ran"
        report = long.wait()
        certificate = long.certificate()
        the.switch_off("compute-1")

        cut_short = the.submit("third", LONG)
        reach(cut_short, 2)
        the.change(*the.newcomer("trainer", "heir"))
        assert "heir is the trainer now" in end_of(cut_short)
        last = the.submit("third", SHORT)
        last_report, last_certificate = last.wait(), last.certificate()
        the.switch_off("trainer")

        ledgers = [ledger(each, tmp_path) for each in agents]
        chains = [ledger(each, tmp_path, "/v1/ledger/chain") for each in agents]

    assert report.lost_rounds == last_report.lost_rounds == ()
    assert report.cohort_sizes == (BATCH,) * LONG
    assert last_report.cohort_sizes == (BATCH,) * SHORT
    assert certificate is not None and last_certificate is not None
    versions = {each.digest: each for each in open_chain(the.consortium)}
    for each in (certificate, last_certificate):
        version = versions[read_certificate(each).manifest]
        verify_certificate(each, version.signed_manifest.encode())
    verified = read_certificate(certificate)
    nodes = {each.spec.body.compute_nodes for each in verified.rounds}
    assert nodes == {
        ("compute-0", "compute-1", "compute-2", "compute-3"),
        ("compute-0", "compute-2", "compute-3"),
    }
    paid = Counter[str]()
    for said in [entry["statement"] for each in chains for entry in each["entries"]]:
        if said["kind"] == "answer":
            paid[said["subject"]] += len(decode_clients(said["document"]["slots"]))
    assert set(paid.values()) == {BATCH}, "a client paid twice for a round, or not at all"
    for each in ledgers:
        assert each["spent"]["epsilon"]["most"] <= CAP

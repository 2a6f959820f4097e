"""Every party changes its keys, and the authority moves, while a job of many rounds runs."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import rounds
from shoal_consortium.processes import Federation, Process
from shoal_kit.manifest_chain import open_chain
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.certificates.release_certificate import read_certificate
from tests.command.running import shoal
from tests.end_to_end.test_many_rounds import BATCH, CLIENTS, reach

ROUNDS = 28


class Authority:
    """Who changes the consortium of a directory, each time by one command."""

    def __init__(self, directory: Path) -> None:
        self.consortium, self.key = directory / "consortium", directory / "authority"

    def change(self, *what: object, command: str = "change") -> None:
        shoal("consortium", command, self.consortium, "--authority", self.key, *what, "--publish")

    def publish(self) -> None:
        shoal("consortium", "publish", self.consortium)

    @property
    def newest(self) -> Any:
        return open_chain(self.consortium)[-1]


def rotate(party: Path, *kinds: str) -> Path:
    said = shoal("party", "rotate", party, *kinds, "--json").stdout
    return Path(json.loads(said)["card"])


@contextmanager
def standing_still(site: Process) -> Iterator[None]:
    """Stop an agent and its vault for a while: the open round waits for them, and ends then."""
    os.killpg(site.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(site.pid, signal.SIGCONT)


@pytest.mark.slow
def test_all_keys_change_while_a_job_runs_and_its_certificate_holds(tmp_path: Path) -> None:
    directory = tmp_path / "federation"
    services, agents = rounds.make(directory, batch=BATCH, clients=CLIENTS, sites=2, nodes=3)
    authority, parties = Authority(directory), directory / "parties"
    first = authority.newest
    with Federation() as federation:
        federation.start(*services, *agents)
        job = rounds.submit(directory, rounds=ROUNDS, batch=BATCH, clients=CLIENTS)
        for number, name in enumerate(["compute-1", "aggregator", "trainer"], start=1):
            reach(job, 4 * number)
            with standing_still(federation["site-0"]):
                authority.change("--card", rotate(parties / name))
        reach(job, 16)
        with standing_still(federation["site-0"]):
            authority.change(
                *(part for k in (0, 2) for part in ("--card", rotate(parties / f"compute-{k}"))),
                *("--maximum-round-seconds", 80_000),
            )
        reach(job, 20)
        heir = directory / "heir"
        with standing_still(federation["site-0"]):
            authority.change("--to", heir, command="move-authority")
            authority.key = heir
            authority.change("--card", rotate(parties / "compute-0", "--tls"))
        assert job.state().phase == "running", "all of it came while the job ran"
        report = job.wait()
        certificate = job.certificate()

    assert report.lost_rounds == ()
    assert report.cohort_sizes == (BATCH,) * ROUNDS
    newest = authority.newest
    assert newest.manifest.sequence == 7
    assert certificate is not None
    verified = verify_certificate(certificate, newest.signed_manifest.encode())
    spanned = {each.spec.body.manifest for each in verified.certificate.rounds}
    assert len(spanned) >= 5 and first.digest in spanned and newest.digest in spanned
    assert read_certificate(certificate).manifest == newest.digest
    for old, new in zip(first.manifest.compute_nodes, newest.manifest.compute_nodes, strict=True):
        assert old.name == new.name
        assert not {old.verify_key, old.box_key, old.certificate} & {
            new.verify_key,
            new.box_key,
            new.certificate,
        }


@pytest.mark.slow
def test_agents_that_were_off_while_all_certificates_changed_find_their_way(tmp_path: Path) -> None:
    """A node lost its signing key besides: the authority vouches for its new card."""
    directory = tmp_path / "federation"
    services, agents = rounds.make(directory, batch=BATCH, clients=CLIENTS, sites=2, nodes=3)
    authority, parties = Authority(directory), directory / "parties"
    kept = shutil.copytree(directory / "consortium", tmp_path / "as it was")
    old = {"SHOAL_CONSORTIUM": str(kept)}  # which is all that the agents have of the consortium
    agents = [replace(each, environment={**each.environment, **old}) for each in agents]
    with Federation() as federation:
        federation.start(*services)
        names = ["compute-0", "compute-1", "aggregator", "trainer"]
        cards = [rotate(parties / name) for name in names]
        authority.change(*(part for card in cards for part in ("--card", card)))
        url = authority.newest.party("compute-2").url
        new = ["--role", "compute", "--name", "compute-2", "--operator", "its own", "--url", url]
        told = shoal("party", "new", directory / "anew", *new, "--json").stdout
        made = json.loads(told)
        federation["compute-2"].stop()
        for path in (parties / "compute-2").glob("*.*"):
            path.unlink()
        for path in (directory / "anew").iterdir():
            path.rename(parties / "compute-2" / path.name)
        vouched = ("--card", made["card"].replace("anew", "parties/compute-2"))
        shoal(
            *("consortium", "change", directory / "consortium", "--authority", authority.key),
            *(*vouched, "--fingerprint", made["fingerprint"]),
        )
        # the other two sign the log with it: only then does the node believe its own new key
        shoal("consortium", "publish", directory / "consortium", status=4)
        federation["compute-2"].start()
        federation["compute-2"].wait_until_ready()
        authority.publish()
        federation.start(*agents)
        job = rounds.submit(directory, rounds=4, batch=BATCH, clients=CLIENTS)
        report = job.wait()
        certificate = job.certificate()

    assert report.cohort_sizes == (BATCH,) * 4
    assert certificate is not None
    verify_certificate(certificate, authority.newest.signed_manifest.encode())

"""A federation goes from release 1.0 to a 1.1 and back, party by party, while jobs run.

Release 1.1 is a copy of the source with what a minor release may change: a column more in Compute
nodes' databases, a table more in data holders' states, and an optional field more in a document.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench import rounds
from shoal.jobs.analyst import Job
from shoal_command.connection import own_agent
from shoal_consortium.processes import Federation
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.wire.service_errors import RefusedCertificate
from shoal_protocol.wire.versions import COMPUTE_DATABASE, HOLDER_STATE
from tests.end_to_end.test_many_rounds import reach

BATCH, CLIENTS, SITES, NODES = 8, 16, 2, 2
ROLLING, SHORT = 8, 2  # rounds of a job that a whole federation is replaced under, and of another
CAP = 3 * rounds.EPSILON
NEW_COMPUTE, NEW_STATE = COMPUTE_DATABASE + 1, HOLDER_STATE + 1

SOURCE = Path(__file__).parents[2]
PACKAGES = ["analysis", "command", "consortium", "learning", "protocol"]
SERVICES = [
    f"services/{each}" for each in ("aggregator", "client", "compute", "hosting", "trainer")
]
CHANGES: dict[str, list[tuple[str, str]]] = {
    "protocol/shoal_protocol/wire/versions.py": [
        ('RELEASE: Final = "1.0"', 'RELEASE: Final = "1.1"'),
        ("WIRE_MINOR: Final = 0", "WIRE_MINOR: Final = 1"),
        (
            f"COMPUTE_DATABASE: Final = {COMPUTE_DATABASE}",
            f"COMPUTE_DATABASE: Final = {NEW_COMPUTE}",
        ),
        (f"HOLDER_STATE: Final = {HOLDER_STATE}", f"HOLDER_STATE: Final = {NEW_STATE}"),
    ],
    "protocol/shoal_protocol/jobs/totals.py": [
        ("import BoundDocument,", "import added_in, BoundDocument,"),
        (
            "    rounds: tuple[Digest, ...]\n",
            "    rounds: tuple[Digest, ...]\n    release: str | None = added_in(1)\n",
        ),
    ],
    "services/compute/shoal_compute/totals.py": [
        (
            "from shoal_protocol.wire.errors",
            "from shoal_protocol.wire.versions import RELEASE\nfrom shoal_protocol.wire.errors",
        ),
        (
            "node=self._own.name, rounds=charged)\n",
            "node=self._own.name, rounds=charged)\n"
            "        if self._own.book.get(end.manifest).manifest.policy.wire_minor:\n"
            "            body = body.model_copy(update={'release': RELEASE})\n",
        ),
        ("document=document))", "document=document, release=RELEASE))"),
    ],
    "services/compute/shoal_compute/schema.py": [
        ("MIGRATIONS: Final[Migrations] = {}\n", ""),
        (
            'Column("document", Bytes, nullable=False),\n)\nonly_grows(totals)\n',
            'Column("document", Bytes, nullable=False),\n    Column("release", String(16)),\n)\n'
            "only_grows(totals)\n"
            f"MIGRATIONS: Final[Migrations] = {{{NEW_COMPUTE}: [totals.c.release]}}\n",
        ),
    ],
    "services/client/shoal_holder/state_schema.py": [
        (
            "MIGRATIONS: Final[Mapping[int, tuple[str, ...]]] = {}",
            "MIGRATIONS: Final[Mapping[int, tuple[str, ...]]] = "
            f'{{{NEW_STATE}: ("CREATE TABLE notes (job TEXT PRIMARY KEY)",)}}',
        ),
    ],
}

VERIFY = """
import sys
from pathlib import Path
from shoal_protocol.certificates.checks import verify_certificate
from shoal_protocol.wire.versions import RELEASE
assert RELEASE == "1.1"
for certificate, manifest in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    seen = verify_certificate(Path(certificate).read_bytes(), Path(manifest).read_bytes())
    print({each.body.release for each in seen.certificate.totals})
"""  # fmt: skip


class NewRelease:
    """Release 1.1, in a directory."""

    def __init__(self, directory: Path) -> None:
        for package in (*PACKAGES, *SERVICES):
            shutil.copytree(SOURCE / package, directory / package)
        for name, changes in CHANGES.items():
            text = (directory / name).read_text()
            for old, new in changes:
                assert text.count(old) == 1, f"{name} is another: {old}"
                text = text.replace(old, new)
            (directory / name).write_text(text)
        paths = [str(directory / each) for each in (*PACKAGES, *SERVICES)]
        self.environment = {"PYTHONPATH": os.pathsep.join(paths)}

    def run(self, *arguments: object) -> str:
        """Run Python with this release; return what it printed."""
        command = [sys.executable, *map(str, arguments)]
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


class Upgrading:
    """A federation in a directory, whose parties go from one release to the other."""

    def __init__(self, directory: Path, new: NewRelease) -> None:
        self.directory, self.new = directory, new
        self.consortium = directory / "consortium"
        services, agents = rounds.make(
            directory, batch=BATCH, clients=CLIENTS, sites=SITES, nodes=NODES
        )
        self.processes = [*services, *agents]
        self.old = {each.name: each.environment for each in self.processes}
        policy = directory / "policy.toml"
        allowed = f"maximum_epsilon = {rounds.EPSILON}"
        assert allowed in policy.read_text()
        policy.write_text(policy.read_text().replace(allowed, f"maximum_epsilon = {CAP}"))
        self.kept: list[Path] = []

    def submit(self, count: int) -> Job:
        return rounds.submit(self.directory, rounds=count, batch=BATCH, clients=CLIENTS)

    def roll(self, job: Job, release: dict[str, str]) -> None:
        """Bring each party to another release, and see a round of the job with each mixture."""
        for number, process in enumerate(self.processes, start=1):
            reach(job, number)
            process.stop()
            process.environment = {**self.old[process.name], **release}
            process.start()
            process.wait_until_ready()
        assert job.state().phase == "running"

    def finish(self, job: Job, count: int) -> Path:
        """Wait for a job of so many rounds; return its certificate, its manifest beside it."""
        report = job.wait()
        assert report.lost_rounds == ()
        assert report.cohort_sizes == (BATCH,) * count
        path = self.directory / f"{job.id}.certificate"
        who = ["--party", self.directory / "parties" / "analyst", "--consortium", self.consortium]
        self.new.run("-m", "shoal_command", "certificate", "fetch", job.id, *who, "--out", path)
        shutil.copy(self.consortium / "manifest.json", path.with_suffix(".json"))
        self.kept.append(path)
        return path

    def allow(self, *what: str) -> None:
        """Let the authority, with the new release, say what documents may use."""
        change = (
            "consortium",
            "change",
            self.consortium,
            "--authority",
            self.directory / "authority",
            "--yes",
        )
        self.new.run("-m", "shoal_command", *change, *what)
        self.new.run("-m", "shoal_command", "consortium", "publish", self.consortium)

    def verified_by_the_new(self) -> list[str]:
        """Return, for each certificate, which releases its totals say."""
        pairs = [file for path in self.kept for file in (path, path.with_suffix(".json"))]
        return self.new.run("-c", VERIFY, *pairs).splitlines()

    def ledger(self, site: str) -> Any:
        agent = next(each for each in self.processes if each.name == site).environment
        url = f"https://{agent['SHOAL_HOST']}:{agent['SHOAL_PORT']}"
        home, data = Path(agent["SHOAL_PARTY"]), Path(agent["SHOAL_DATA"])
        return own_agent(home, url, data).ask(dict[str, Any], "/v1/ledger")

    def database(self, party: str, query: str) -> list[Any]:
        """Ask the database of a party that is not running."""
        [file] = (self.directory / "data" / party).glob("*.sqlite")
        with closing(sqlite3.connect(file)) as database:
            return [value for (value,) in database.execute(query)]


def verified(certificate: Path) -> Any:
    """Verify by this release."""
    manifest = certificate.with_suffix(".json").read_bytes()
    return verify_certificate(certificate.read_bytes(), manifest)


@pytest.mark.slow
def test_a_federation_is_upgraded_and_goes_back_while_jobs_run(tmp_path: Path) -> None:
    parties = Upgrading(tmp_path / "federation", NewRelease(tmp_path / "1.1"))
    with Federation() as federation:
        federation.start(*parties.processes)
        job = parties.submit(ROLLING)
        parties.roll(job, parties.new.environment)
        first = parties.finish(job, ROLLING)

        parties.allow("--wire-minor", "1")
        second = parties.finish(parties.submit(SHORT), SHORT)

        parties.allow("--unset", "wire_minor")
        job = parties.submit(ROLLING)
        parties.roll(job, {})
        third = parties.finish(job, ROLLING)
        ledgers = {site: parties.ledger(site) for site in ("site-0", "site-1")}

    verified(first)
    verified(third)
    with pytest.raises(RefusedCertificate, match=r"is not known to release 1\.0"):
        verified(second)
    assert parties.verified_by_the_new() == ["{None}", "{'1.1'}", "{None}"]

    asked = 0
    for ledger in ledgers.values():  # each answer is charged, once, and no cap is exceeded
        answers = [(each["client"], each["round"]) for each in ledger["entries"]]
        assert len(set(answers)) == len(answers)
        assert 0.0 < ledger["spent"]["epsilon"]["most"] <= CAP
        asked += len(answers)
    assert asked == (2 * ROLLING + SHORT) * BATCH
    for node in ("compute-0", "compute-1"):
        versions = parties.database(node, "SELECT version FROM schema_version ORDER BY version")
        assert versions == [COMPUTE_DATABASE, NEW_COMPUTE]
        assert parties.database(node, "SELECT release FROM totals ORDER BY rowid") == [
            "1.1",
            "1.1",
            None,
        ]
    for site in ledgers:
        versions = parties.database(site, "SELECT version FROM schema_version ORDER BY version")
        assert versions == [HOLDER_STATE, NEW_STATE]

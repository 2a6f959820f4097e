"""The demo's story: hospitals, a clinic that drops out, a Compute node that is killed mid-round."""

import csv
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from demo.diabetes import DELTA, EPSILON, TASK, Patients
from demo.quickstart import agent, first_agent_port, quickstart
from demo.watching import held_answers, wait_until
from shoal import Analyst, Job, JobSettings
from shoal_consortium.processes import Federation, Process
from shoal_studies.posterior_report import PosteriorReport

HOSPITALS: Final = ("hospital-a", "hospital-b", "hospital-c", "hospital-d")
CLINIC: Final = "clinic"
CLINIC_PATIENTS: Final = 4
COMPUTE_NODES: Final = 3
DROPOUTS, COLLUDERS = 12, 101  # a hospital as a whole may work against the others
JOIN_SECONDS, ROUND_SECONDS, GRACE_SECONDS = 120, 30, 120
VICTIM: Final = "compute-1"
DOWN_SECONDS: Final = 1.5
MANIFEST, CERTIFICATE = "manifest.json", "certificate.json"

POLICY: Final = f"""\
analysts = ["analyst"]
queries = {json.dumps(TASK.query_names())}
columns = {json.dumps([column.name for column in TASK.columns])}
approval = "automatic"
maximum_epsilon = {EPSILON}
delta = {DELTA}
minimum_population = 400
minimum_colluders = 12
"""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What the story ended with."""

    report: PosteriorReport
    timings: dict[str, float]


class Scenario:
    """One run of the story in `directory`; `say` is told each turn of it."""

    def __init__(self, directory: Path, data: Patients, say: Say) -> None:
        """Lay down the hospitals' files; nothing runs yet."""
        self._directory = directory
        self._say = say
        self._sites = _patients(data.training)
        for site, rows in self._sites.items():
            _write_records(directory / f"{site}.csv", data.names, rows)
        (directory / "policy.toml").write_text(POLICY)

    @property
    def clients(self) -> int:
        """Return the number of patients, each a client."""
        return sum(len(rows) for rows in self._sites.values())

    def run(self, federation: Federation) -> Outcome:
        """Play it.

        Raises:
            RuntimeError: a process did not start, or the job did not end well.
        """
        begun = time.monotonic()
        services = self._prepare()
        federation.start(*services)
        self._say(f"{len(services)} services run, each in a process of its own, TLS on every link")
        started = time.monotonic()
        job = self._submit()
        self._say(f"the analyst submitted a job: ε = {EPSILON:g}, δ = {DELTA:g} for each patient")
        self._join(federation, job)
        joined = time.monotonic()
        self._kill_in_the_middle(federation, job)
        report = job.wait()
        ended = time.monotonic()
        self._keep_certificate(job)
        timings = {
            "starting the services": started - begun,
            "joining": joined - started,
            "the round, with a node killed": ended - joined,
        }
        return Outcome(report, timings)

    def _keep_certificate(self, job: Job) -> None:
        certificate = job.certificate()
        if certificate is None:
            raise RuntimeError("the job is finished, and has no certificate")
        (self._directory / CERTIFICATE).write_bytes(certificate)
        manifest = self._directory / "federation" / "consortium" / MANIFEST
        (self._directory / MANIFEST).write_bytes(manifest.read_bytes())

    def _prepare(self) -> list[Process]:
        services = quickstart(
            self._directory / "federation",
            clients={site: len(rows) for site, rows in self._sites.items()},
            nodes=COMPUTE_NODES,
            options=[
                *("--minimum-cohort", "300"),
                *("--dictionary", str(Path(__file__).with_name("dictionary.toml"))),
                *("--maximum-epsilon", str(EPSILON), "--delta", str(DELTA)),
            ],
            logs=self._directory,
        )
        self._agent_port = first_agent_port(services)
        return services

    def _agent(self, site: str) -> Process:
        return agent(
            self._directory / "federation",
            site,
            port=self._agent_port + list(self._sites).index(site),
            records=self._directory / f"{site}.csv",
            policy=self._directory / "policy.toml",
            logs=self._directory,
        )

    def _submit(self) -> Job:
        home = self._directory / "federation"
        self._analyst = Analyst.open(home / "parties" / "analyst", home / "consortium")
        return self._analyst.submit(
            TASK,
            JobSettings(
                epsilon=EPSILON,
                delta=DELTA,
                dropouts=DROPOUTS,
                colluders=COLLUDERS,
                minimum_population=self.clients,
                maximum_population=self.clients,
                join_seconds=JOIN_SECONDS,
                round_seconds=ROUND_SECONDS,
                grace_seconds=GRACE_SECONDS,
                purpose="what makes diabetes progress, from measurements at the first visit",
            ),
        )

    def _join(self, federation: Federation, job: Job) -> None:
        federation.start(self._agent(CLINIC))
        wait_until(lambda: job.state().joined == CLINIC_PATIENTS, "the clinic to join")
        federation[CLINIC].kill()
        self._say(f"the {CLINIC_PATIENTS} patients of {CLINIC} joined; their agent was killed")
        federation.start(*(self._agent(site) for site in HOSPITALS))
        wait_until(lambda: job.state().joined == self.clients, "the hospitals to join")
        self._say(f"{self.clients} clients joined through {len(HOSPITALS) + 1} agents")

    def _kill_in_the_middle(self, federation: Federation, job: Job) -> None:
        victim = federation[VICTIM]
        wait_until(lambda: bool(job.state().rounds), "the first round")
        round_id = job.state().rounds[0].round
        held = wait_until(lambda: held_answers(victim, round_id), f"answers at {VICTIM}")
        victim.kill()
        self._say(f"{VICTIM} killed with SIGKILL in the middle of the round, with {_answers(held)}")
        time.sleep(DOWN_SECONDS)
        federation.start(victim)
        self._say(f"{VICTIM} is back with {_answers(held_answers(victim, round_id))}")


def _answers(count: int) -> str:
    return "1 hospital's answer" if count == 1 else f"{count} hospitals' answers"


def _patients(training: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    sites = np.array_split(training[CLINIC_PATIENTS:], len(HOSPITALS))
    return {CLINIC: training[:CLINIC_PATIENTS], **dict(zip(HOSPITALS, sites, strict=True))}


def _write_records(path: Path, names: tuple[str, ...], rows: NDArray[np.float64]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *names])
        writer.writerows([number, *row] for number, row in enumerate(rows.tolist()))

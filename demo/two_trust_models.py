"""`examples/two_trust_models.py` over real processes: three Compute nodes, and an agent for phones.

    python -m demo.two_trust_models [--phones 300]

The agent stands in for all the phones, with invented records, one for each. In rounds and by Draw
and Discard each spends its budget under one cap.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from demo.federation import Federation, Process
from demo.watching import free_ports

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "two_trust_models.py"
SITE: Final = "phones"
COMPUTE_NODES: Final = 3
EPSILON, DELTA, EFFECT = 4.0, 1e-6, 0.8  # as the example has them
CAP: Final = 40.0
"""Of both jobs together at `DELTA`: a pure epsilon of 4 is dear in mu, and they cost 28.9."""

POLICY: Final = f"""\
analysts = ["analyst"]
tasks = ["logistic_regression"]
queries = ["gradient_sum"]
columns = ["minutes", "days", "returns"]
maximum_epsilon = {CAP}
delta = {DELTA}
minimum_population = 10
minimum_colluders = 0
maximum_local_epsilon = {EPSILON}
crowd_families = ["logistic"]
"""


def run(directory: Path, *, phones: int) -> str:
    """Make a federation in `directory`, run the example on it, and return what it printed.

    Raises:
        RuntimeError: a process did not start, or the example failed; the message says why.
    """
    services = _quickstart(directory, phones)
    _write_records(directory / "records.csv", phones)
    (directory / "policy.toml").write_text(POLICY)
    asked = {"SHOAL_FEDERATION": str(directory), "SHOAL_PHONES": str(phones), "MPLBACKEND": "Agg"}
    with Federation() as federation:
        federation.start(*services, _agent(directory, services))
        done = subprocess.run(
            [sys.executable, str(EXAMPLE)],
            env={**os.environ, **asked},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"the example failed: {done.stderr}")
    return done.stdout


def _quickstart(directory: Path, phones: int) -> list[Process]:
    command = [
        *(sys.executable, "-m", "shoal_client", "quickstart", str(directory), "--json"),
        *("--compute", str(COMPUTE_NODES), f"--clients={SITE}={phones}"),
        *("--first-port", str(free_ports(COMPUTE_NODES + 3))),
        *("--minimum-cohort", "10", "--minimum-colluders", "0"),
        *("--maximum-epsilon", str(CAP), "--delta", str(DELTA)),
        *("--maximum-local-epsilon", str(EPSILON)),
    ]
    made = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return [
        Process(
            each["name"], each["module"], each["environment"], directory / f"{each['name']}.log"
        )
        for each in made["processes"]
    ]


def _agent(directory: Path, services: list[Process]) -> Process:
    port = 1 + max(int(each.environment["SHOAL_PORT"]) for each in services)
    environment = {
        "SHOAL_PARTY": str(directory / "clients" / SITE),
        "SHOAL_CONSORTIUM": str(directory / "consortium"),
        "SHOAL_DATA": str(directory / "data" / SITE),
        "SHOAL_HOST": "127.0.0.1",
        "SHOAL_PORT": str(port),
        "SHOAL_AGENT_KEYS": str(directory / "clients" / SITE / "clients.key"),
        "SHOAL_AGENT_RECORDS": str(directory / "records.csv"),
        "SHOAL_AGENT_POLICY": str(directory / "policy.toml"),
    }
    return Process(SITE, "shoal_client.agent", environment, directory / f"{SITE}.log")


def _write_records(path: Path, phones: int) -> None:
    """Write a record of each phone, by the truth that the example knows."""
    generator = np.random.default_rng(1)
    scaled = generator.uniform(-1, 1, (phones, 2))
    chance = 1 / (1 + np.exp(-EFFECT * (1 + scaled[:, 0] - scaled[:, 1])))
    returns = generator.binomial(1, chance)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["minutes", "days", "returns"])
        writer.writerows(
            np.column_stack([60 + 60 * scaled[:, 0], 30 + 30 * scaled[:, 1], returns]).tolist()
        )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phones", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        print(run(Path(made) / "federation", phones=arguments.phones))


if __name__ == "__main__":
    main()

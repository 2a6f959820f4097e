"""`examples/two_trust_models.py` over real processes: three Compute nodes, and an agent for phones.

    python -m demo.two_trust_models [--phones 300]

The agent stands in for all the phones, with invented records, one for each. In rounds and by Draw
and Discard each spends its budget under one cap.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from demo.quickstart import agent, first_agent_port, quickstart
from shoal_consortium.processes import Federation

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "two_trust_models.py"
SITE: Final = "phones"
COMPUTE_NODES: Final = 3
EPSILON, DELTA, EFFECT = 4.0, 1e-6, 0.8  # as the example has them
CAP: Final = 40.0
"""Of both jobs together at `DELTA`: a pure epsilon of 4 is dear in mu, and they cost 28.9."""

POLICY: Final = f"""\
analysts = ["analyst"]
queries = ["column_moments", "score_sum", "weighted_row_matrix"]
columns = ["minutes", "days", "returns"]
approval = "automatic"
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
    rules = [
        *(
            "--minimum-cohort",
            "10",
            "--minimum-colluders",
            "0",
            "--colluding-holders",
            "0",
            "--minimum-holders",
            "1",
        ),
        *("--maximum-epsilon", str(CAP), "--delta", str(DELTA)),
        *("--maximum-local-epsilon", str(EPSILON)),
    ]
    services = quickstart(
        directory, clients={SITE: phones}, nodes=COMPUTE_NODES, options=rules, logs=directory
    )
    site = agent(
        directory,
        SITE,
        port=first_agent_port(services),
        records=directory / "records.csv",
        policy=directory / "policy.toml",
        logs=directory,
    )
    _write_records(directory / "records.csv", phones)
    (directory / "policy.toml").write_text(POLICY)
    asked = {"SHOAL_FEDERATION": str(directory), "SHOAL_PHONES": str(phones), "MPLBACKEND": "Agg"}
    with Federation() as federation:
        federation.start(*services, site)
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


def _write_records(path: Path, phones: int) -> None:
    """Write a record of each phone, by the truth that the example knows."""
    generator = np.random.default_rng(1)
    scaled = generator.uniform(-1, 1, (phones, 2))
    chance = 1 / (1 + np.exp(-EFFECT * (1 + scaled[:, 0] - scaled[:, 1])))
    returns = generator.binomial(1, chance)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "minutes", "days", "returns"])
        minutes, days = 60 + 60 * scaled[:, 0], 30 + 30 * scaled[:, 1]
        writer.writerows(zip(range(phones), minutes, days, returns, strict=True))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phones", type=int, default=300)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        print(run(Path(made) / "federation", phones=arguments.phones))


if __name__ == "__main__":
    main()

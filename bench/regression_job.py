"""How long a logistic regression in five rounds takes over real services, on this machine.

    python -m bench.regression_job [--sites 4] [--records 500] [--nodes 3] [--epsilon 3]

All parties are processes with TLS. The time is from submission to posterior, when all agents have
loaded their records; beside it how long answers were kept back, so that time tells of no noise.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.drive import quickstart
from bench.sites import site_agent, write_records
from demo.quickstart import first_agent_port
from shoal import Analyst, ColumnBounds, JobSettings
from shoal_consortium.processes import Federation
from shoal_holder.release_timing import GRID_SECONDS
from shoal_protocol.studies.regression import MeasuredRegressionPosterior, RegressionTask

FEATURES: Final = tuple(f"feature_{j}" for j in range(9))
SLOPES: Final = np.linspace(-1.0, 1.0, len(FEATURES))
TASK: Final = RegressionTask(
    family="logistic",
    features=tuple(ColumnBounds(name=name, lower=-10, upper=10) for name in FEATURES),
    target=ColumnBounds(name="target", lower=0, upper=1),
)
POLICY: Final = f"""\
analysts = ["analyst"]
queries = {json.dumps(TASK.query_names())}
columns = {json.dumps([each.name for each in TASK.columns])}
approval = "automatic"
maximum_epsilon = 10.0
delta = 1e-5
minimum_population = 100
minimum_colluders = 0
"""


def measure(
    directory: Path, *, sites: int, records: int, nodes: int, epsilon: float
) -> dict[str, Any]:
    """Return the figures by their names; `records` are of each of the `sites`."""
    names = [f"site-{number}" for number in range(sites)]
    services = quickstart(directory, clients=dict.fromkeys(names, records), nodes=nodes)
    (directory / "policy.toml").write_text(POLICY)
    for seed, name in enumerate(names):
        _write_records(directory / f"{name}.csv", records, seed)
    port = first_agent_port(services)
    agents = [site_agent(directory, name, port + place) for place, name in enumerate(names)]
    with Federation() as federation:
        federation.start(*services, *agents)
        analyst = Analyst.open(directory / "parties" / "analyst", directory / "consortium")
        begun = time.monotonic()
        job = analyst.submit(
            TASK,
            JobSettings(
                epsilon=epsilon,
                delta=1e-5,
                dropouts=20,
                colluders=records,
                minimum_population=sites * records,
                maximum_population=sites * records,
                join_seconds=600,
                round_seconds=600,
                grace_seconds=600,
            ),
        )
        report = job.wait()
        seconds = time.monotonic() - begun
    found = report.posterior
    if not isinstance(found, MeasuredRegressionPosterior):
        raise TypeError("a regression ended with another posterior")
    low, high = found.interval(0.9)[1:].T
    return {
        "sites": sites,
        "records": sites * records,
        "nodes": nodes,
        "rounds": len(report.rounds),
        "seconds": round(seconds, 1),
        "kept back, seconds": GRID_SECONDS * len(report.rounds),
        "slopes held": float(np.mean((low <= SLOPES) & (SLOPES <= high))),
        "verdict": str(found.verdict),
    }


def _write_records(path: Path, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((count, len(FEATURES)))
    ill = generator.random(count) < 1.0 / (1.0 + np.exp(-rows @ SLOPES))
    pairs = zip(rows.tolist(), ill, strict=True)
    write_records(path, [*FEATURES, "target"], ([*row, int(is_ill)] for row, is_ill in pairs))


def main() -> None:
    """Measure once, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--records", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=3.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(measure(Path(directory), **vars(arguments)), indent=1))


if __name__ == "__main__":
    main()

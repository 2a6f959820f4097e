"""Five quantiles within a domain of a billion: seconds from a job's submission to its posterior.

    python -m bench.cohort [--holders 10] [--records 100000] [--nodes 3] [--rounds 4] [--json FILE]

Real processes over TLS: sealed boxes, signatures, durable storage; `records` of each holder, drawn
at random. The agents have started and loaded them before the job is submitted.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.command import options, write
from bench.drive import quickstart
from bench.sites import site_agent, write_records
from demo.quickstart import first_agent_port
from shoal import Analyst, ColumnBounds, JobSettings
from shoal_consortium.processes import Federation
from shoal_protocol.studies.quantiles import QuantilesTask

COLUMN: Final = "income"
WIDTH: Final = 1e9
LEVELS: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
POLICY: Final = f"""\
analysts = ["analyst"]
queries = ["tables"]
columns = ["{COLUMN}"]
approval = "automatic"
maximum_epsilon = 1.0
delta = 1e-6
minimum_population = 100
minimum_colluders = 0
"""


def measure(
    directory: Path, *, holders: int, records: int, nodes: int, rounds: int, bins: int = 1024
) -> dict[str, Any]:
    """Return the figures by their names; `records` are of each of the `holders`."""
    names = [f"site-{number}" for number in range(holders)]
    services = quickstart(directory, clients=dict.fromkeys(names, records), nodes=nodes)
    (directory / "policy.toml").write_text(POLICY)
    held = [_write_records(directory / f"{name}.csv", records, at) for at, name in enumerate(names)]
    port = first_agent_port(services)
    agents = [site_agent(directory, name, port + place) for place, name in enumerate(names)]
    task = QuantilesTask(
        variables=(ColumnBounds(name=COLUMN, lower=0.0, upper=WIDTH),),
        levels=LEVELS,
        bins=bins,
        rounds=rounds,
    )
    with Federation() as federation:
        federation.start(*services, *agents)
        analyst = Analyst.open(directory / "parties" / "analyst", directory / "consortium")
        begun = time.monotonic()
        job = analyst.submit(
            task,
            JobSettings(
                epsilon=1.0,
                delta=1e-6,
                dropouts=holders * records // 100,
                colluders=records,
                minimum_population=holders * records,
                maximum_population=holders * records,
                join_seconds=600,
                round_seconds=600,
                grace_seconds=600,
            ),
        )
        report = job.wait()
        seconds = time.monotonic() - begun
    if set(report.cohort_sizes) != {holders * records}:
        raise RuntimeError("records were lost")
    truth = np.quantile(np.concatenate(held), LEVELS)
    found, ends = report.posterior.mean[1:], report.posterior.interval(0.95)[1:]
    return {
        "holders": holders,
        "records": holders * records,
        "nodes": nodes,
        "rounds": rounds,
        "bins": bins,
        "seconds": round(seconds, 2),
        "quantiles": dict(zip(map(str, LEVELS), np.round(found, 1).tolist(), strict=True)),
        "largest_relative_error": round(float(np.max(np.abs(found / truth - 1.0))), 5),
        "intervals_that_hold": int(np.sum((ends[:, 0] <= truth) & (truth <= ends[:, 1]))),
    }


def _write_records(path: Path, count: int, seed: int) -> np.ndarray:
    values = np.minimum(np.round(np.random.default_rng(seed).lognormal(10.5, 1.0, count)), WIDTH)
    write_records(path, [COLUMN], ([f"{value:.0f}"] for value in values))
    return values


def main() -> None:
    """Measure and print."""
    asked = vars(options(__doc__, holders=10, records=100_000, nodes=3, rounds=4, json=Path))
    path = asked.pop("json")
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), **asked)
    write(found, path)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

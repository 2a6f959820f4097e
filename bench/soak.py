"""A data holder of many records in a federation of real processes: is each share counted once?

    python -m bench.soak [--clients 100000] [--features 9] [--jobs 1] [--nodes 3]

All of it runs on one machine. Prints what `bench.load rounds` measured, and ends with status 1 if a
share was lost or counted twice.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.command import options
from bench.drive import SITE, quickstart
from shoal_consortium.processes import Federation


def measure(
    directory: Path, *, clients: int, features: int, jobs: int, nodes: int
) -> dict[str, Any]:
    """Return what the load measured, and what of it did not hold.

    Raises:
        RuntimeError: the load failed.
    """
    services = quickstart(directory, clients={SITE: clients}, nodes=nodes)
    command = [
        *(sys.executable, "-m", "bench.load", "rounds"),
        *("--features", str(features), "--jobs", str(jobs)),
        *("--holder-key", str(directory / "clients" / SITE / "holder.key")),
        *("--consortium", str(directory / "consortium")),
        *("--analyst", str(directory / "parties" / "analyst")),
        *("--data", str(directory / "data" / SITE)),
    ]
    with Federation() as federation:
        federation.start(*services)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"the load ended with status {done.returncode}")
    load: dict[str, Any] = json.loads(done.stdout)
    return {"load": load} | judge(load)


def judge(load: dict[str, Any]) -> dict[str, Any]:
    """Return the shares acknowledged, lost and counted twice by a load, and what did not hold.

    Of an answer that was acknowledged by all, each node must have stored one share, and the cohort
    must have all of its slots. More than one share of an answer at a node is one too many.
    """
    jobs, nodes = load["jobs"], load["nodes"].values()
    complete = sum(job["complete"] > 0 for job in jobs)
    lost = sum(max(0, complete - stored) for stored in nodes)
    lost += sum(job["complete"] > job["cohort_size"] for job in jobs) * len(nodes)
    twice = sum(max(0, stored - len(jobs)) for stored in nodes)
    twice += sum(job["cohort_size"] > job["complete"] for job in jobs) * len(nodes)
    left_out = sum(job["clients"] - min(job["joined"], job["complete"]) for job in jobs)
    refused = sum(job["refused_envelopes"] for job in jobs)
    failed = {
        f"{lost} shares were lost": lost,
        f"{twice} shares were counted twice": twice,
        f"{left_out} clients did not go the whole way": left_out,
        f"{refused} envelopes were refused": refused,
    }
    return {
        "shares acknowledged": complete * len(nodes),
        "lost": lost,
        "counted twice": twice,
        "did not hold": [what for what, count in failed.items() if count],
    }


def main() -> None:
    """Measure and print."""
    # 9 features give sums of 66 coordinates
    asked = options(__doc__, clients=100_000, features=9, jobs=1, nodes=3)
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), **vars(asked))
    print(json.dumps(found, indent=2))
    sys.exit(1 if found["did not hold"] else 0)


if __name__ == "__main__":
    main()

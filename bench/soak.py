"""A data holder of many records in a federation of real processes: what it takes.

    python -m bench.soak [--clients 100000] [--features 9] [--jobs 1] [--nodes 3]

Memory of every process and what the nodes hold are sampled all the while. All of it runs on one
machine.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from bench.command import options
from bench.drive import quickstart
from bench.rounds import memory_mib, peak_memory_mib
from shoal_consortium.processes import Federation, Process
from shoal_hosting.tls_certificates import pinned_tls

SAMPLE_SECONDS: Final = 0.5
SITE = "site"


@dataclass(frozen=True)
class Sample:
    """Resident memory by process in MiB, and the shares that the first node has stored so far."""

    seconds: float
    memory: dict[str, float]
    stored: int


@dataclass
class Sampler:
    """Looks at all processes in a thread of its own until it is told to stop."""

    processes: Sequence[Process]
    node: Process
    pids: dict[str, int] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    _end: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample while the context lasts."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()

    def _run(self) -> None:
        environment = self.node.environment
        certificate = Path(environment["SHOAL_PARTY"], "tls.crt").read_text()
        url = f"https://{environment['SHOAL_HOST']}:{environment['SHOAL_PORT']}/metrics"
        with httpx.Client(verify=pinned_tls(certificate), trust_env=False, timeout=30) as client:
            while not self._end.wait(SAMPLE_SECONDS):
                memory = {each.name: memory_mib(each.pid) for each in self.processes}
                for name, pid in list(self.pids.items()):
                    if (known := _family_mib(pid)) > 0:
                        memory[name] = known
                stored = _stored(client.get(url).text)
                self.samples.append(Sample(time.monotonic(), memory, stored))

    def peak(self, name: str) -> float:
        """Return the largest resident set that was seen, in MiB."""
        return max(sample.memory.get(name, 0.0) for sample in self.samples)

    def growth(self, name: str, first: int, last: int) -> float | None:
        """Return the peak in the second half of collecting over that in the first half.

        Collecting is while the first node's stored shares go from `first` to `last`; None if it
        went too fast to be seen. Freezing and adding come after it.
        """
        middle = (first + last) / 2
        early = [each for each in self.samples if first < each.stored <= middle]
        late = [each for each in self.samples if middle < each.stored < last]
        peaks = [
            max((each.memory.get(name, 0.0) for each in part), default=0.0)
            for part in (early, late)
        ]
        return peaks[1] / peaks[0] if all(peaks) else None


def _family_mib(pid: int) -> float:
    """Return the resident memory of a process and its children; 0 if it has ended."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return memory_mib(pid) + sum(memory_mib(int(child)) for child in children)
    except OSError:  # one of them ended meanwhile
        return 0.0


def _stored(metrics: str) -> int:
    lines = metrics.splitlines()
    found = [line for line in lines if line.startswith("shoal_compute_shares_stored_total")]
    return sum(int(float(line.split()[1])) for line in found)


def measure(
    directory: Path,
    *,
    clients: int,
    features: int,
    jobs: int,
    nodes: int,
) -> dict[str, Any]:
    """Return what was measured, by what it is of, and in the end what did not hold."""
    begun = time.monotonic()
    services = quickstart(directory, clients={SITE: clients}, nodes=nodes)
    found: dict[str, Any] = {"quickstart, s": time.monotonic() - begun}
    compute = services[:nodes]
    sampler = Sampler(services, compute[0])
    with Federation() as federation:
        federation.start(*services)
        with sampler.running():
            options = ["--features", str(features)]
            load = _load(directory, sampler, SITE, [*options, "--jobs", str(jobs)])
        peaks = {each.name: peak_memory_mib(each) for each in services}
    found["load"] = load
    found["peak MiB"] = peaks | {SITE: sampler.peak(SITE)}
    found["bytes on disk, by node"] = {
        each.name: _size(directory / "data" / each.name) for each in compute
    }
    found["in all, s"] = time.monotonic() - begun
    return found | judge((load,))


def _load(directory: Path, sampler: Sampler, site: str, options: Sequence[str]) -> dict[str, Any]:
    command = [
        *(sys.executable, "-m", "bench.load", "rounds", *options),
        *("--holder-key", str(directory / "clients" / site / "holder.key")),
        *("--consortium", str(directory / "consortium")),
        *("--analyst", str(directory / "parties" / "analyst")),
        *("--data", str(directory / "data" / site)),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        sampler.pids[site] = running.pid
        written, _ = running.communicate()
    del sampler.pids[site]
    if running.returncode:
        raise RuntimeError(f"the load {site} ended with {running.returncode}")
    figures: dict[str, Any] = json.loads(written)
    return figures


def judge(loads: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the shares acknowledged, lost and counted twice by `loads`, and what did not hold.

    Of an answer that was acknowledged by all, each node must have stored one share, and the cohort
    must have all of its slots. More than one share of an answer at a node is one too many.
    """
    acknowledged = lost = twice = left_out = refused = 0
    for load in loads:
        jobs, nodes = load["jobs"], load["nodes"].values()
        complete = sum(job["complete"] > 0 for job in jobs)
        acknowledged += complete * len(nodes)
        for node in nodes:
            lost += max(0, complete - node["stored_shares"])
            twice += max(0, node["stored_shares"] - len(jobs))
        for job in jobs:
            lost += (job["complete"] > job["cohort_size"]) * len(nodes)
            twice += (job["cohort_size"] > job["complete"]) * len(nodes)
            left_out += job["clients"] - min(job["joined"], job["complete"])
            refused += job["refused_envelopes"]
    failed = {
        f"{lost} shares were lost": lost,
        f"{twice} shares were counted twice": twice,
        f"{left_out} clients did not go the whole way": left_out,
        f"{refused} envelopes were refused": refused,
    }
    return {
        "shares acknowledged": acknowledged,
        "lost": lost,
        "counted twice": twice,
        "did not hold": [what for what, count in failed.items() if count],
    }


def verdict(found: dict[str, Any]) -> str:
    """Return the last line: that all held, or what did not."""
    failed = found["did not hold"]
    return f"DID NOT HOLD: {'; '.join(failed)}" if failed else "all held"


def _size(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def _rounded(rates: list[Any]) -> str:
    return ", ".join(f"{each:,.0f}" if isinstance(each, float) else str(each) for each in rates)


def _print(found: dict[str, Any], indent: str = "") -> None:
    for what, figure in found.items():
        if isinstance(figure, dict):
            print(f"{indent}{what}")
            _print(figure, indent + "  ")
        elif isinstance(figure, list) and figure and isinstance(figure[0], dict):
            for each in figure:
                print(f"{indent}{what}")
                _print(each, indent + "  ")
        elif isinstance(figure, list):
            print(f"{indent}{what:44} {_rounded(figure)}")
        elif isinstance(figure, float):
            print(f"{indent}{what:44} {figure:12,.2f}")
        else:
            print(f"{indent}{what:44} {figure}")


def main() -> None:
    """Measure and print."""
    # 9 features give sums of 66 coordinates
    asked = options(__doc__, clients=100_000, features=9, jobs=1, nodes=3, json=False)
    arguments = vars(asked)
    as_json = arguments.pop("json")
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), **arguments)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        did_not_hold = found["did not hold"]
        _print({what: figure for what, figure in found.items() if figure is not did_not_hold})
        print(verdict(found))
    if found["did not hold"]:
        sys.exit(1)


if __name__ == "__main__":
    main()

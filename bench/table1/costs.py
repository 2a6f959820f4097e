"""What a cell cost, and what it would have cost with all of its clients."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.processes import cpu_seconds, peak_memory_mib
from shoal_consortium.processes import Process


@dataclass(frozen=True, kw_only=True)
class Cost:
    """CPU and wall seconds, the largest process's peak, and bodies' bytes, of `run` clients.

    `empty` is the part of the CPU and wall seconds that does not grow with the clients; bodies grow
    if each client is a data holder of its own.
    """

    cpu_seconds: float
    wall_seconds: float
    peak_rss_mb: float
    received_bytes: int
    run: int
    empty: tuple[float, float] = (0.0, 0.0)
    bodies_grow: bool = True

    def of(self, clients: int) -> "Cost":
        """Return what so many clients would have cost: what is beyond `empty` grows with them."""
        if clients == self.run:
            return self
        ratio = clients / self.run
        cpu, wall = (
            least + max(whole - least, 0.0) * ratio
            for least, whole in zip(self.empty, (self.cpu_seconds, self.wall_seconds), strict=True)
        )
        sent = round(self.received_bytes * (ratio if self.bodies_grow else 1.0))
        return replace(self, cpu_seconds=cpu, wall_seconds=wall, received_bytes=sent)

    def as_value(self, clients: int) -> dict[str, Any]:
        """Return it as a cell of the table with so many clients, though fewer were run."""
        found = self.of(clients)
        value = {
            "cpu_seconds": round(found.cpu_seconds, 4),
            "wall_seconds": round(found.wall_seconds, 4),
            "peak_rss_mb": round(found.peak_rss_mb, 1),
            "received_bytes": found.received_bytes,
        }
        return value if self.run == clients else value | {"run_in_part": self.run}


class Meter:
    """CPU and wall seconds of processes while it is running, and their peaks from now on."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self._processes = list(processes)
        for each in self._processes:
            with suppress(OSError):  # some containers do not let a peak be forgotten
                Path(f"/proc/{each.pid}/clear_refs").write_text("5")
        self._cpu, self._wall = 0.0, 0.0
        self._cpu_before, self._since = 0.0, 0.0

    def __enter__(self) -> None:
        self._cpu_before, self._since = cpu_seconds(self._processes), time.monotonic()

    def __exit__(self, *error: object) -> None:
        self._cpu += cpu_seconds(self._processes) - self._cpu_before
        self._wall += time.monotonic() - self._since

    def cost(self, *, run: int, received_bytes: int) -> Cost:
        """Return what was spent so far."""
        return Cost(
            cpu_seconds=self._cpu,
            wall_seconds=self._wall,
            peak_rss_mb=max(peak_memory_mib(each.pid) for each in self._processes) * 1.048576,
            received_bytes=received_bytes,
            run=run,
        )


def own_peak_mb() -> float:
    """Return this process's peak so far."""
    return peak_memory_mib(os.getpid()) * 1.048576

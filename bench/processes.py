"""What running processes use: memory and CPU (Linux)."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from shoal_consortium.processes import Process

_TICKS: Final = os.sysconf("SC_CLK_TCK")


def peak_memory_mib(pid: int) -> float:
    """Return the largest resident set that a running process has had, in MiB.

    Raises:
        OSError: there is no such process.
    """
    status = Path(f"/proc/{pid}/status").read_text()
    return sum(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1024


def cpu_seconds(processes: Iterable[Process]) -> float:
    """Return the CPU time so far of these processes and their children, a vault's own among them.

    Raises:
        OSError: one of them has ended.
    """
    seconds, left = 0.0, [each.pid for each in processes]
    while left:
        process = Path(f"/proc/{left.pop()}")
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        seconds += sum(map(int, fields[11:15])) / _TICKS  # and of children that have ended
        for thread in (process / "task").iterdir():
            left += map(int, (thread / "children").read_text().split())
    return seconds

"""What running processes use: memory, CPU, disk (Linux); and a client of one of them."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import httpx

from shoal_consortium.processes import Process
from shoal_kit.tls_certificates import pinned_tls

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


def disk_bytes(directory: Path) -> int:
    """Return the size of all files below a directory."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def service_client(service: Process) -> tuple[httpx.Client, str]:
    """Return a client that trusts a service's certificate, and the service's URL."""
    environment = service.environment
    certificate = Path(environment["SHOAL_PARTY"], "tls.crt").read_text()
    url = f"https://{environment['SHOAL_HOST']}:{environment['SHOAL_PORT']}"
    return httpx.Client(verify=pinned_tls(certificate), trust_env=False, timeout=30), url

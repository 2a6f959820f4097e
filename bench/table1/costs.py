"""What a cell cost, and what it would have cost with all of its clients."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bench.processes import cpu_seconds
from shoal_consortium.processes import Process


@dataclass(frozen=True, kw_only=True)
class Cost:
    """CPU seconds of `run` clients, of which `empty` do not grow with their number.

    `sent_bytes` are those of one data holder's envelopes, where they are counted.
    """

    cpu_seconds: float
    run: int
    empty: float = 0.0
    sent_bytes: int | None = None

    def as_value(self, clients: int) -> dict[str, Any]:
        """Return it as a cell of the table with so many clients, though fewer were run."""
        seconds, value = self.cpu_seconds, dict[str, Any]()
        if self.run != clients:
            seconds = self.empty + max(seconds - self.empty, 0.0) * clients / self.run
            value["run_in_part"] = self.run
        if self.sent_bytes is not None:
            value["sent_bytes"] = self.sent_bytes
        return {"cpu_seconds": round(seconds, 4)} | value


class Meter:
    """The CPU seconds of processes while it is running."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self._processes = list(processes)
        self.cpu_seconds = 0.0

    def __enter__(self) -> None:
        self.cpu_seconds -= cpu_seconds(self._processes)

    def __exit__(self, *error: object) -> None:
        self.cpu_seconds += cpu_seconds(self._processes)

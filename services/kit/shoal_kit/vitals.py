"""What monitoring watches at every party, read anew whenever somebody looks at the metrics."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge

from shoal_kit.clock import Clock
from shoal_kit.manifest_book import ManifestBook

Reading = Callable[[], Awaitable[float]]


class Vitals:
    """Gauges that are set when they are read. None depends on records or on who took part."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        book: ManifestBook,
        directory: Path,
        clock: Clock,
    ) -> None:
        """Begin with the manifest in force, and the disk on which `directory` is."""
        self._registry = registry
        self._clock = clock
        self._directory = directory
        self._readings: list[tuple[Gauge, Reading]] = []
        self._free = self._gauge("shoal_disk_free_bytes", "Free space for this party's data")
        self._size = self._gauge("shoal_disk_size_bytes", "Size of the disk with this party's data")
        version = self._gauge("shoal_manifest_version", "Version of the manifest in force")
        version.set_function(lambda: book.current.manifest.sequence)

    def watch(self, name: str, what: str, reading: Reading) -> None:
        """Show what `reading` returns."""
        self._readings.append((self._gauge(name, what), reading))

    def watch_open_rounds(self, oldest: Callable[[], Awaitable[datetime | None]]) -> None:
        """Show for how long the `oldest` round that is not over is open; 0: there is none."""

        async def age() -> float:
            opened_at = await oldest()
            return 0.0 if opened_at is None else (self._clock() - opened_at).total_seconds()

        self.watch(
            "shoal_oldest_open_round_seconds", "Age of the oldest round that is not over", age
        )

    async def read(self) -> None:
        """Set all gauges."""
        disk = await asyncio.to_thread(shutil.disk_usage, self._directory)
        self._free.set(disk.free)
        self._size.set(disk.total)
        for gauge, reading in self._readings:
            gauge.set(await reading())

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(name, what, registry=self._registry)

"""Table 1 of Heikkilä et al. 2017 with all the cryptography: CPU seconds beside the authors'.

    python -m bench.table1 [--cells 1000x100 100000x10 ...] [--rows server hospital ...]
        [--quick] [--json build/bench/table1.json]

Real services over TLS, M = 10. Rows: `sum`, stored shares to their total, which is what the authors
timed; `server`, all nodes and the aggregator from the first envelope to the published sum; `floor`,
the same envelopes verified, opened and added up by the bare libraries in one process; `client`,
what one client spends; `hospital`, everything, with the clients in ten data holders.

A cell is N clients x d coordinates; one that is too large is run with fewer clients: `run_in_part`
says with how many. Of it what comes before the last envelope, or in ten data holders is beyond a
round of ten records, is taken to grow with the clients. Cells of an earlier run are kept in the
file.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.command import write
from bench.table1 import clients, hospitals, report
from bench.table1.costs import Cost
from bench.table1.reference import CLIENTS, DIMENSIONS, NODES
from bench.table1.services import Services

ROWS: Final = ("sum", "server", "floor", "client", "hospital")
_KEPT: Final = (*ROWS, report.EMPTY)
_LEAST_HOSPITAL: Final = 10

Cell = tuple[int, int]


@dataclass(frozen=True)
class Limits:
    """Cells of at most `values` in all; of each so many clients, and coordinates of them, are run.

    `hospital` are the coordinates of the clients in ten data holders that are run.
    """

    values: int
    clients: int
    coordinates: int
    hospital: int

    def run(self, clients: int, entries: int) -> int:
        """Return how many of so many clients are run."""
        return min(clients, self.clients, max(CLIENTS[0], self.coordinates // entries))

    def in_hospitals(self, clients: int, entries: int) -> int:
        """Return how many of so many clients are run in ten data holders: a power of ten."""
        most = max(CLIENTS[0], self.hospital // entries)
        return max(each for each in CLIENTS if each <= min(clients, most))


WHOLE: Final = Limits(values=10**9, clients=10**5, coordinates=10**9, hospital=10**7)
QUICK: Final = Limits(values=10**7, clients=1_000, coordinates=10**6, hospital=10**3)


class Table:
    """The cells so far, in a file, and what is done about further ones."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self.cells: report.Cells = json.loads(path.read_text()) if path.exists() else {}

    def keep(self, row: str, entries: int | str, clients: int, cost: Cost) -> None:
        """Take a cell, write the file and say so."""
        value = cost.as_value(clients)
        self.cells.setdefault(row, {}).setdefault(str(entries), {})[str(clients)] = value
        print(f"{row:10} d = {entries:>6}, N = {clients:>6,}: {value}", flush=True)
        self.write()

    def write(self) -> report.Cells:
        """Write the file and return the cells with their ratios, rows, N and d in order."""
        ordered: report.Cells = {
            row: {
                d: dict(sorted(self.cells[row][d].items(), key=lambda cell: int(cell[0])))
                for d in sorted(self.cells[row], key=lambda d: int(d) if d.isdecimal() else 0)
            }
            for row in _KEPT
            if row in self.cells
        }
        found = report.with_ratios(ordered)
        write(found, self._path)
        return found

    async def services(self, cells: Sequence[Cell], rows: Sequence[str], nodes: int) -> None:
        """Run the cells of many data holders."""
        most = max(self._limits.run(*cell) for cell in cells)
        with tempfile.TemporaryDirectory() as directory:
            async with Services.running(Path(directory), nodes=nodes, holders=most) as services:
                if {"sum", "server", "floor"} & set(rows):
                    await self._rounds(services, cells)
                if "client" in rows:
                    found = await clients.measure(services, sorted({d for _, d in cells}))
                    for n, d in cells:
                        self.keep("client", d, n, replace(found[d], run=n))

    async def _rounds(self, services: Services, cells: Sequence[Cell]) -> None:
        await services.round(DIMENSIONS[0], 2)  # what only the first round costs
        for d in sorted({d for _, d in cells}):
            done: dict[int, dict[str, Cost]] = {}
            for n in sorted(n for n, each in cells if each == d):
                run = self._limits.run(n, d)
                if run not in done:
                    done[run] = await services.round(d, run, ("server", "sum", "floor"))
                for row, cost in done[run].items():
                    self.keep(row, d, n, cost)

    def hospitals(self, cells: Sequence[Cell], nodes: int) -> None:
        """Run the cells of ten data holders: a federation for each number of clients."""
        by_run: dict[int, list[Cell]] = {}
        for n, d in cells:
            by_run.setdefault(self._limits.in_hospitals(n, d), []).append((n, d))
        least = self._in_hospitals(_LEAST_HOSPITAL, sorted({d for _, d in cells}), nodes)
        self.keep(report.EMPTY, min(least), _LEAST_HOSPITAL, least[min(least)])
        for run, wanted in sorted(by_run.items()):
            found = self._in_hospitals(run, sorted({d for _, d in wanted}), nodes)
            for n, d in wanted:
                self.keep("hospital", d, n, replace(found[d], empty=least[d].cpu_seconds))

    @staticmethod
    def _in_hospitals(clients: int, dimensions: list[int], nodes: int) -> dict[int, Cost]:
        with tempfile.TemporaryDirectory() as directory:
            return hospitals.measure(
                Path(directory), clients=clients, dimensions=dimensions, nodes=nodes
            )


def _cell(text: str) -> Cell:
    clients, _, entries = text.partition("x")
    return int(clients), int(entries)


def _chosen(limits: Limits) -> Iterator[Cell]:
    for d in DIMENSIONS:
        for n in CLIENTS:
            if n * d <= limits.values:
                yield n, d


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", nargs="+", type=_cell, help="such as 1000x100; else all")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--quick", action="store_true", help="at most 10^7 values, mostly in part")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--clients", type=int, help="run so many of a cell's at most")
    parser.add_argument("--json", type=Path, default=Path("build/bench/table1.json"))
    asked = parser.parse_args()
    limits = QUICK if asked.quick else WHOLE
    if asked.clients is not None:
        limits = replace(limits, clients=asked.clients)
    cells = asked.cells or list(_chosen(limits))
    table = Table(asked.json, limits)
    if set(asked.rows) - {"hospital"}:
        asyncio.run(table.services(cells, asked.rows, asked.nodes))
    if "hospital" in asked.rows:
        whole = [each for each in cells if limits.in_hospitals(*each) == each[0]]
        table.hospitals(whole if asked.quick else cells, asked.nodes)  # in part noise would grow
    for line in report.lines(table.write()):
        print(line)


if __name__ == "__main__":
    main()

"""Puts the cells together: a table, and which goals they keep to."""

from collections.abc import Iterator
from typing import Any, Final

from bench.table1.reference import AUTHORS

Cells = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""By row, dimension and clients: a cell as `Cost.as_value` has it, with its ratio."""

EMPTY: Final = "empty"
"""The row of a round of hardly any clients in ten data holders."""
_MANY: Final = 10_000  # clients from which `server` is held to `floor`


def with_ratios(cells: Cells) -> Cells:
    """Return the cells with their CPU seconds over the authors', and of `server` over `floor`."""
    rows: Cells = {name: {d: dict(row[d]) for d in row} for name, row in cells.items()}
    for name, by_dimension in rows.items():
        if name in ("client", EMPTY):
            continue
        for d, row in by_dimension.items():
            for n, cell in row.items():
                seconds = cell["cpu_seconds"]
                row[n] = cell | {"ratio": _rounded(seconds / AUTHORS[int(d)][int(n)])}
                floor = rows.get("floor", {}).get(d, {}).get(n)
                if name == "server" and floor is not None:
                    row[n]["over_floor"] = _rounded(seconds / floor["cpu_seconds"])
    return rows


def _rounded(ratio: float) -> float:
    return float(f"{ratio:.3g}")


def goals(cells: Cells) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield of each goal: row, d, N, its CPU seconds, and those that it may have."""
    nothing = [
        cell["cpu_seconds"] for row in cells.get(EMPTY, {}).values() for cell in row.values()
    ]
    for name in ("sum", "server", "hospital"):
        for d, row in cells.get(name, {}).items():
            for n, cell in row.items():
                authors = AUTHORS[int(d)][int(n)]
                if name == "sum":
                    limits = [0.1 * authors]
                elif name == "hospital":
                    limits = [max([authors / 100, *(each + 0.1 for each in nothing)])]
                else:
                    limits = [authors] if int(d) >= 100 else []
                    floor = cells.get("floor", {}).get(d, {}).get(n)
                    if floor is not None and int(n) >= _MANY:
                        limits.append(1.2 * floor["cpu_seconds"])
                for most in limits:
                    yield name, d, n, cell["cpu_seconds"], most


def lines(cells: Cells) -> Iterator[str]:
    """Yield the table, and what is above its goal."""
    yield f"{'row':20}{'d':>9}{'N':>8}{'CPU s':>11}{'bytes':>10}{'ratio':>10}{'floor':>10}"
    for name, by_dimension in cells.items():
        for d, row in by_dimension.items():
            for n, cell in row.items():
                part = f"  {cell['run_in_part']:,} run" if "run_in_part" in cell else ""
                others = (
                    f"{cell.get(each, ''):>10}" for each in ("sent_bytes", "ratio", "over_floor")
                )
                yield f"{name:20}{d:>9}{n:>8}{cell['cpu_seconds']:11.3f}{''.join(others)}{part}"
    judged = list(goals(cells))
    missed = [each for each in judged if each[3] > each[4]]
    kept = len(judged) - len(missed)
    yield f"\n{kept} of {len(judged)} goals are kept; missed, CPU s of at most:"
    for name, d, n, cpu, most in missed:
        yield f"{name:20}{d:>9}{n:>8}{cpu:11.2f}{most:11.2f}"

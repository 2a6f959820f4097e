"""Runs an experiment's units on all cores and shows how far it is."""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from rich.progress import Progress
from threadpoolctl import threadpool_limits

Unit = TypeVar("Unit")
Result = TypeVar("Result")


def run_all(
    work: Callable[[Unit], Result], units: Sequence[Unit], what: str, *, processes: int
) -> list[Result]:
    """Return `work` of every unit, in their order; shows how far it is.

    Each process computes on one thread. With one process, nothing is started.
    """
    results: dict[int, Result] = {}
    with Progress() as progress:
        bar = progress.add_task(what, total=len(units))
        if processes == 1:
            for place, unit in enumerate(units):
                results[place] = work(unit)
                progress.advance(bar)
        else:
            with ProcessPoolExecutor(processes, initializer=_one_thread) as pool:
                waiting = {pool.submit(work, unit): place for place, unit in enumerate(units)}
                for done in as_completed(waiting):
                    results[waiting[done]] = done.result()
                    progress.advance(bar)
    return [results[place] for place in range(len(units))]


def _one_thread() -> None:
    threadpool_limits(1)

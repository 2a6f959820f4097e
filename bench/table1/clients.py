"""What a data holder of one record spends on its answer: encode, noise, split, seal, store.

Data holders with vaults and ledgers answer a job's round; counted is their vaults' work on the
answer alone. They have joined before, and answers leave without the wait that hides how long noise
took.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final

import nacl.utils
import numpy as np

from bench.drive import phone_key
from bench.sites import submit
from bench.table1.costs import Cost
from bench.table1.services import Services, vector_query, vector_task
from shoal_agent.data_holder import DataHolder
from shoal_holder import rounds
from shoal_holder.noise import exact_noise
from shoal_holder.policy import Policy
from shoal_holder.records import Records
from shoal_holder.rounds import Answers
from shoal_holder.site import Sources, Timer
from shoal_holder.state import State
from shoal_kit.manifest_book import ManifestBook

FEW: Final = 6
"""Data holders whose answers are averaged."""
_STEP_SECONDS: Final = 0.2


class _NoWaiting(Timer):
    def sleep(self, seconds: float) -> None:
        """Wait not at all."""


class Count:
    """The thread's CPU seconds, and the bytes of envelopes, in counted functions so far."""

    def __init__(self) -> None:
        self.cpu_seconds, self.sent_bytes = 0.0, 0

    @contextmanager
    def functions(self, *counted: tuple[Any, str]) -> Iterator[None]:
        """Count what these functions of classes and modules do."""
        were = [(kind, name, getattr(kind, name)) for kind, name in counted]
        for kind, name, method in were:
            setattr(kind, name, self._counting(method))
        try:
            yield
        finally:
            for kind, name, method in were:
                setattr(kind, name, method)

    def _counting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def counted(*arguments: Any, **named: Any) -> Any:
            begun = time.thread_time()
            found = method(*arguments, **named)
            self.cpu_seconds += time.thread_time() - begun
            self.sent_bytes += len(found) if method.__name__ == "sign_envelope" else 0
            return found

        return counted


async def measure(services: Services, dimensions: Sequence[int]) -> dict[int, Cost]:
    """Return by dimension what one data holder spends."""
    consortium = services.drive.consortium
    names = vector_query(max(dimensions)).column_names
    policy = Policy(
        analysts=("analyst",),
        queries=("vector_sum",),
        columns=names,
        maximum_epsilon=20.0,
        delta=consortium.manifest.policy.delta,
        minimum_population=2,
        minimum_colluders=0,
        declare=False,
        approval="automatic",
    )
    generator = np.random.default_rng(0)
    holders = []
    for place in range(FEW):
        home = services.directory / "few" / str(place)
        home.mkdir(parents=True)
        holders.append(
            DataHolder.inside(
                key=phone_key(services.count + place),
                records=Records(
                    names, generator.uniform(-0.5, 0.5, (1, len(names))), np.array([0, 1])
                ),
                policy=policy,
                book=ManifestBook(consortium, home),
                data_directory=home,
                random_bytes=nacl.utils.random,
                sources=Sources(noise=exact_noise, timer=_NoWaiting()),
            )
        )
    try:
        await _answered(services.directory, holders, min(dimensions))  # what only the first takes
        return {each: await _answered(services.directory, holders, each) for each in dimensions}
    finally:
        for holder in holders:
            await holder.close()


async def _answered(directory: Path, holders: Sequence[DataHolder], entries: int) -> Cost:
    count = Count()
    parts = (Answers, "make"), (State, "envelope"), (rounds, "sign_envelope")
    with count.functions(*parts):
        job = await asyncio.to_thread(
            submit, directory, vector_task(entries), FEW, few=1, colluders=1
        )
        waiting = asyncio.create_task(asyncio.to_thread(job.wait))
        while not waiting.done():
            await asyncio.gather(*(holder.step() for holder in holders))
            await asyncio.wait({waiting}, timeout=_STEP_SECONDS)
        report = await waiting
    if report.cohort_sizes != (FEW,):
        raise RuntimeError("answers were lost")
    return Cost(
        cpu_seconds=count.cpu_seconds / FEW,
        run=1,
        sent_bytes=count.sent_bytes // FEW,
    )

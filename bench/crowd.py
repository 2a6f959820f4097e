"""A simulated crowd contributes to one crowd job over TLS, each phone once: rates and unit costs.

    python -m bench.crowd [--contributions 100000] [--concurrency 64]

The trainer is a real process with its database on disk; the phones are one process beside it. Every
contribution is one draw, one step with exact noise, one signed submission and one receipt, each
checked. At the end the closing, all logs and all receipts are compared: whatever was acknowledged
must be in an instance's chain, once.
"""

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.command import measured
from bench.drive import SITE, quickstart
from bench.load.crowd_accounts import closed_account
from bench.load.crowds import opened
from bench.processes import cpu_seconds
from shoal import Analyst
from shoal_consortium.processes import Federation
from shoal_holder.keys import read_holder_key
from shoal_kit.clock import system_clock

EPSILON: Final = 4.0


def measure(directory: Path, *, contributions: int, concurrency: int) -> dict[str, Any]:
    """Return the figures by their names; `account` is None if the crowd did not fill its job."""
    services = quickstart(
        directory,
        clients={SITE: contributions},
        nodes=2,
        options=["--maximum-local-epsilon", str(EPSILON)],
    )
    trainer = next(each for each in services if each.name == "trainer")
    with Federation() as federation:
        federation.start(trainer)
        job, load = opened(
            Analyst.open(directory / "parties" / "analyst", directory / "consortium"),
            read_holder_key(directory / "clients" / SITE / "holder.key"),
            clients=contributions,
            features=5,
            epsilon=EPSILON,
            instances=20,
            concurrency=concurrency,
        )
        trainer_cpu, own_cpu = cpu_seconds([trainer]), time.process_time()
        figures = asyncio.run(load.run())
        trainer_cpu = cpu_seconds([trainer]) - trainer_cpu
        own_cpu = time.process_time() - own_cpu
        account = asyncio.run(closed_account(job, figures, now=system_clock()))
    return figures.as_value() | {
        "CPU of a contribution, ms": {
            "trainer": trainer_cpu * 1e3 / contributions,
            "phone": own_cpu * 1e3 / contributions,
        },
        "draws": len(figures.draws),
        "account": account and asdict(account),
    }


if __name__ == "__main__":
    measured(__doc__, measure, contributions=100_000, concurrency=64)

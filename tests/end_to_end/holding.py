"""`python -m tests.end_to_end.holding`: a data holder of fixed noise in a process of its own.

HOLDING_SITE is a site of the federation in the directory HOLDING_TRUST.
"""

import os
from dataclasses import replace
from pathlib import Path

from shoal_agent.data_holder import DataHolder
from shoal_consortium.processes import Process
from shoal_holder.site import Sources
from shoal_kit.manifest_book import ManifestBook
from shoal_kit.manifest_chain import open_chain
from shoal_kit.startup import read_pin
from tests.world.chance import FixedNoise
from tests.world.trust import HOLDER_POLICY, Trust

EPSILON_OF_ALL_TESTS = 20.0  # they share one consortium, and its clients' budgets
POLICY = HOLDER_POLICY.model_copy(
    update={"minimum_threshold": 2, "maximum_epsilon": EPSILON_OF_ALL_TESTS}
)


def data_of(trust: Trust, site: str) -> Path:
    """Return where a site's ledger is, in all tests: one that began anew would be refused."""
    return trust.directory / "data" / site


def logged(process: Process, logs: Path) -> Process:
    """Return a service or agent, not started, whose output goes to a file in `logs`."""
    return replace(process, log=logs / f"{process.name}.log")


def holder_of(trust: Trust, site: str) -> DataHolder:
    home, data = trust.directory / "clients" / site, data_of(trust, site)
    return DataHolder.inside(
        key=trust.key(site),
        records=trust.records(site),
        policy=POLICY,
        book=ManifestBook.open(trust.directory / "consortium", read_pin(home), data),
        data_directory=data,
        sources=Sources(FixedNoise(f"noise of {site}")),
    )


if __name__ == "__main__":
    home = Path(os.environ["HOLDING_TRUST"])
    trust = Trust(home, open_chain(home / "consortium")[-1])
    holder = holder_of(trust, os.environ["HOLDING_SITE"])
    holder.run(poll_seconds=0.1)

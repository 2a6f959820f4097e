"""`python -m tests.end_to_end.holding`: a data holder of fixed noise in a process of its own.

HOLDING_SITE is a site of the federation in the directory HOLDING_TRUST; HOLDING_DATA holds states.
"""

import os
from pathlib import Path

from shoal_client.consortium_files import open_chain
from shoal_client.holder import DataHolder
from shoal_hosting.manifest_book import ManifestBook
from shoal_hosting.party import read_pin
from tests.simulated.chance import FixedNoise
from tests.simulated.trust import HOLDER_POLICY, Trust


def holder_of(trust: Trust, site: str, directory: Path) -> DataHolder:
    home = trust.directory / "clients" / site
    return DataHolder(
        keys=trust.keys(site),
        records=trust.records(site),
        policy=HOLDER_POLICY.model_copy(update={"minimum_threshold": 2}),
        book=ManifestBook.open(trust.directory / "consortium", read_pin(home), directory / site),
        data_directory=directory / site,
        noise=FixedNoise(f"noise of {site}"),
    )


if __name__ == "__main__":
    home = Path(os.environ["HOLDING_TRUST"])
    trust = Trust(home, open_chain(home / "consortium")[-1])
    holder = holder_of(trust, os.environ["HOLDING_SITE"], Path(os.environ["HOLDING_DATA"]))
    holder.run(poll_seconds=0.1)

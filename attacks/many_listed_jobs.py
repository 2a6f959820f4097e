"""A trainer that lists many jobs: how long the vault takes for one `due`, and its owner with it."""

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from shoal_holder.vault import Vault
from tests.scenarios.test_lying_courier import CLIENTS, Courier
from tests.world.around_holder import World

with TemporaryDirectory() as directory:
    for jobs in map(int, sys.argv[1:] or ("500", "2000", "4000", "8000")):
        courier = Courier(World(Path(directory), CLIENTS))
        listed = json.dumps({"jobs": [{"job": f"{each:064x}"} for each in range(jobs)]}).encode()
        began = time.process_time()
        courier.answer("jobs", listed)
        taken = time.process_time()
        letters = courier.ask(Vault.due)
        print(
            f"{jobs} jobs in {len(listed):,} bytes: listed in {taken - began:.2f} s, "
            f"due in {time.process_time() - taken:.2f} s, {len(letters)} letters",
            flush=True,
        )
        courier.close()

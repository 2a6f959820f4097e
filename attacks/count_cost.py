"""How long one look at a cohort's size takes, which a stranger's message has a node do twice."""

import time

import numpy as np
from pyroaring import BitMap

from shoal_protocol.rounds.round_spec import AskedHolders

for n in (10_000, 100_000, 1_000_000):
    slots = np.arange(n, dtype=np.uint32)
    asked = AskedHolders(BitMap(slots), np.ones(n, np.int64), slots, slots)
    some = BitMap(slots[: n - n // 10])
    began = time.process_time()
    asked.count(some)
    print(n, f"{time.process_time() - began:.3f} s")

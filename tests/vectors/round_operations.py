"""What a vector of a job's many rounds asks for."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import NOTHING
from shoal_protocol.privacy.job_costs import Participation
from shoal_protocol.rounds import batches

Inputs = Mapping[str, Any]
Output = dict[str, Any]


def choose_batch(given: Inputs) -> Output:
    """Choose whom a job's next round asks, after `rounds`, each a list of clients."""
    participation = Participation(BitMap(given["population"]))
    for asked in given["rounds"]:
        participation.add(BitMap(asked), NOTHING)
    batch = batches.choose_batch(
        participation,
        BitMap(given["enrolled"]),
        np.array(given["owners"], np.uint32),
        job=given["job"],
        size=given["batch"],
        most=given["most"],
    )
    return {"clients": None if batch is None else list(batch)}

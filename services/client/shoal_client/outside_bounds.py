"""Which columns' values pass a job's public bounds, coarsely; it names no client and no value.

Such values are cut to their bounds, so bounds in other units than the records' spoil what is
learned, and nobody but the data holder can see it.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from shoal_client.records import Records
from shoal_protocol.tasks.bounds import ColumnBounds

FEWEST_CLIENTS: Final = 20  # of fewer, a share might say something of one
_SHARES: Final = ((0.5, "more than half"), (0.1, "more than a tenth"), (0.01, "more than 1 %"))


def outside_bounds(records: Records, columns: Iterable[ColumnBounds]) -> str:
    """Say of which columns more than 1 % of the values, over all clients, pass their bounds.

    In words, "age: more than half; dose: more than 1 %"; empty if there are none, or fewer than
    `FEWEST_CLIENTS` clients.

    Raises:
        ValueError: the records do not have a column.
    """
    if len(records) < FEWEST_CLIENTS:
        return ""
    found = []
    for each in columns:
        values = records.values[:, records.columns.index(each.name)]
        part = float(np.mean((values < each.lower) | (values > each.upper)))
        if said := next((words for share, words in _SHARES if part > share), None):
            found.append(f"{each.name}: {said}")
    return "; ".join(found)

"""What a data holder spends and sends in a round of many Compute nodes, in committees and without.

    python -m bench.committees [--nodes 30] [--holders 600] [--dimension 1000]

Each data holder shares its answer with 3 nodes, of which 2 open it, or with all nodes by threshold;
then additively, again with 3 nodes and with all.
"""

import time
from pathlib import Path
from typing import Any, Final

from bench.command import measured
from bench.drive import Drive, contributions, matrix_query, quickstart
from shoal_holder.contribution import box_keys
from shoal_protocol.sharing.schemes import AdditiveSharing, Sharing, ThresholdSharing

COMMITTEE, THRESHOLD = 3, 2
_RULES: Final = ("--threshold", str(THRESHOLD), "--minimum-committee", str(COMMITTEE))


def sharing_of(threshold: int | None, committee: int | None) -> Sharing:
    """Return the scheme with this threshold and committee; None is all of the nodes.

    Raises:
        ValueError: one is out of range.
    """
    if threshold is None:
        return AdditiveSharing(committee=committee)
    return ThresholdSharing(threshold=threshold, committee=committee)


def measure(directory: Path, *, nodes: int, holders: int, dimension: int) -> dict[str, Any]:
    """Return CPU milliseconds and bytes of one data holder, for each way to share."""
    quickstart(directory, phones=holders, nodes=nodes, options=_RULES)
    drive, found = Drive(directory), {}
    needed = sharing_of(THRESHOLD, COMMITTEE).needed(nodes)
    for threshold, committee in (
        (THRESHOLD, COMMITTEE),
        (needed, None),
        (None, COMMITTEE),
        (None, None),
    ):
        sharing = sharing_of(threshold, committee)
        spec = drive.spec(matrix_query(dimension), holders, sharing=sharing).body
        boxes, sent, begun = box_keys(drive.consortium), 0, time.process_time()
        for phone in range(holders):
            [envelopes] = contributions(spec, boxes, range(phone, phone + 1))
            sent += sum(map(len, envelopes))
        found[f"{sharing.scheme}, {sharing.opening(nodes)} of {sharing.shares(nodes)}"] = {
            "ms": (time.process_time() - begun) * 1e3 / holders,
            "bytes": sent / holders,
        }
    return found


if __name__ == "__main__":
    measured(__doc__, measure, nodes=30, holders=600, dimension=1000)

"""Tells the operator when a peer's clock and this node's disagree; nothing else depends on it.

A node that lies about its time can make others warn, and no more.
"""

from datetime import datetime, timedelta
from typing import Final

import structlog

from shoal_compute.metrics import Metrics

TOLERANCE: Final = timedelta(seconds=5)

log = structlog.get_logger()


class ClockWatch:
    """The peers' clock offsets, by their last answers."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._off: set[str] = set()

    def note(self, peer: str, shown: datetime, sent_at: datetime, received_at: datetime) -> None:
        """Note the time that `peer` showed, taken between the two moments here."""
        offset = shown - sent_at - (received_at - sent_at) / 2
        uncertainty = (received_at - sent_at) / 2
        self._metrics.set_clock_offset(peer, offset.total_seconds())
        if abs(offset) > TOLERANCE + uncertainty:
            if peer not in self._off:
                log.warning(
                    "a peer's clock differs from this node's: check both",
                    party=peer,
                    seconds_ahead=round(offset.total_seconds(), 1),
                )
            self._off.add(peer)
        else:
            self._off.discard(peer)

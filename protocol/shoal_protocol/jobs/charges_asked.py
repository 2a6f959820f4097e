"""Queries that are valid for minutes: a Compute node's to another one, and the age of all."""

from datetime import datetime
from typing import Final, Literal

from shoal_protocol.trust.policy import CLOCKS_APART, duration
from shoal_protocol.wire.documents import (
    NodeDocument,
)
from shoal_protocol.wire.encoding import Timestamp
from shoal_protocol.wire.service_errors import StaleQuery

LARGEST_REQUEST_BYTES: Final = 1024
OLDEST_QUERY: Final = 2 * CLOCKS_APART
"""The clocks of who asks and who answers may both be off, in opposite directions."""


class NodeQuery(NodeDocument):
    """Compute -> Compute: which machines hold a restored state? Valid for minutes."""

    kind: Literal["node_query"] = "node_query"
    at: Timestamp


def check_age(at: datetime, now: datetime) -> None:
    """Refuse a query signed `at` a time that is not recent: recorded ones soon become useless.

    Raises:
        StaleQuery
    """
    if abs(now - at) > OLDEST_QUERY:
        where = "ahead of" if at > now else "behind"
        apart = duration(*sorted((at, now)))
        raise StaleQuery(f"its time is {apart} {where} the clock here: one of the two is wrong")

"""The age of queries that are valid for minutes."""

from datetime import datetime
from typing import Final

from shoal_protocol.trust.policy import CLOCKS_APART, duration
from shoal_protocol.wire.service_errors import StaleQuery

LARGEST_REQUEST_BYTES: Final = 1024
OLDEST_QUERY: Final = 2 * CLOCKS_APART
"""The clocks of who asks and who answers may both be off, in opposite directions."""


def check_age(at: datetime, now: datetime) -> None:
    """Refuse a query signed `at` a time that is not recent: recorded ones soon become useless.

    Raises:
        StaleQuery
    """
    if abs(now - at) > OLDEST_QUERY:
        where = "ahead of" if at > now else "behind"
        apart = duration(*sorted((at, now)))
        raise StaleQuery(f"its time is {apart} {where} the clock here: one of the two is wrong")

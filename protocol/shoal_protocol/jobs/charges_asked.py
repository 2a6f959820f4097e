"""Checks the age of data holders' queries what a Compute node charged them."""

from datetime import datetime
from typing import Final

from shoal_protocol.jobs.charges import ChargesQuery
from shoal_protocol.trust.limits import CLOCKS_APART
from shoal_protocol.wire.service_errors import StaleQuery

LARGEST_REQUEST_BYTES: Final = 1024
OLDEST_QUERY: Final = 2 * CLOCKS_APART
"""The clocks of holder and node may both be off, in opposite directions."""


def check_age(query: ChargesQuery, now: datetime) -> None:
    """Refuse a query that is not recent, so that recorded queries soon become useless.

    Raises:
        StaleQuery
    """
    if abs(now - query.at) > OLDEST_QUERY:
        raise StaleQuery

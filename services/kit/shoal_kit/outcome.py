"""Codes for the outcome of a message to a peer, kept in the state beside refusals' codes."""

from typing import Final

PENDING: Final = "pending"  # no answer so far
ACKNOWLEDGED: Final = "acknowledged"
OVER: Final = "over"  # a job or round whose time has passed
LOST: Final = "lost"  # acknowledged once, and no longer there

"""Names what became of a message to a peer: the state keeps these beside refusals' codes."""

from typing import Final

PENDING: Final = "pending"  # nobody has answered so far
ACKNOWLEDGED: Final = "acknowledged"
OVER: Final = "over"  # a job or round whose time has passed
LOST: Final = "lost"  # acknowledged once, and no longer there

"""Waits for what is to come, many times as long as it takes; knows nothing of what that is."""

import time
from collections.abc import Callable
from typing import Any, Final

PATIENCE_SECONDS: Final = 180.0  # for what takes a moment on an idle machine
_POLL_SECONDS: Final = 0.2


class InVain(Exception):
    """What was waited for, or done, did not come about."""


def until(what: str, condition: Callable[[], Any], patience: float = PATIENCE_SECONDS) -> Any:
    """Return the first true value of `condition`.

    Raises:
        InVain: it did not come in `patience` seconds, many times what it takes.
    """
    given_up_at = time.monotonic() + patience
    while not (value := condition()):
        if time.monotonic() > given_up_at:
            raise InVain(f"waited in vain until {what}")
        time.sleep(_POLL_SECONDS)
    return value

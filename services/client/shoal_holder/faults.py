"""Faults in the vault: none ends it while it answers, and those that records cause do not show.

Where records are worked on, an item that fails is left out of what is worked out, and the answer is
charged and sent as any other. The owner finds why in a file that no message of the courier's shows.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from shoal_kit.clock import Clock
from shoal_protocol.wire.encoding import format_time
from shoal_protocol.wire.errors import ProtocolError

FAULTS_FILE: Final = "faults.log"  # in the data directory
LARGEST_FILE: Final = 1 << 20  # bytes; what is older is in faults.log.1, what was there goes


class VaultFailed(ProtocolError):
    title = "The vault failed at it"
    status = 500
    remedy = "Look at faults.log in the vault's data directory, and report what it says."


ItemT = TypeVar("ItemT")
FoundT = TypeVar("FoundT")


class Faults:
    """The owner's own list of faults: when, at what, and where in the code; no value of a record.

    A fault that cannot be written is not told either: that would be seen.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        """Write to a file in `directory`, which only its owner can reach."""
        self._path = directory / FAULTS_FILE
        self._clock = clock

    def write(self, what: str, error: BaseException) -> None:
        """Add a line about `what` failed, with the error's type and place in place of its text."""
        place, trace = "", error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            place, trace = f", {Path(code.co_filename).name} line {trace.tb_lineno}", trace.tb_next
        line = f"{format_time(self._clock())} {what}: {type(error).__name__}{place}"
        with suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > LARGEST_FILE:
                self._path.replace(self._path.with_suffix(".log.1"))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with os.fdopen(os.open(self._path, flags, 0o600), "ab") as file:
                file.write(line.encode("unicode_escape") + b"\n")  # a model may choose its names


def without_failing(
    items: Sequence[ItemT],
    work: Callable[[Sequence[ItemT]], FoundT],
    failed: Callable[[ItemT, BaseException], None],
) -> list[FoundT]:
    """Return what `work` makes of all items together; if it fails, of halves, without who fails.

    So an item that fails changes nothing of what is made of the others, as sensitivities suppose.
    One that fails has the others worked out three times at most, for which there is time in
    `release_timing`: `bench.allowances` measures it.
    """
    try:
        # what is unusual about a number must not show on standard error either
        with np.errstate(all="ignore"):
            return [work(items)]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 -- a model is foreign code
        if len(items) == 1:
            failed(items[0], error)
            return []
    middle = len(items) // 2
    halves = items[:middle], items[middle:]
    return [found for half in halves for found in without_failing(half, work, failed)]

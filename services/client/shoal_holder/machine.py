"""Which machine this is, of those that ever held the data holder's key: its epoch and instance.

Compute nodes take answers of one machine only. A restart keeps both; only a restored state raises
the epoch, and a machine that is superseded so stops for good.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shoal_holder.state_file import StateFile

IN_USE: Final = (
    "another machine takes part with this key, or did before this state was lost. Let that one go "
    "on, and stop this one; if it or its state is lost for good, run `shoal agent restore`"
)
SUPERSEDED: Final = (
    "this machine is superseded: the state was restored on another one, which goes on with this "
    "key. Stop it for good, and erase what is on it"
)


@dataclass(frozen=True)
class Machine:
    """A machine of the data holder, as its state file has it."""

    epoch: int
    instance: str
    restored_at: datetime | None  # None where nothing was lost
    is_restoring: bool  # until all charges that nodes made were taken over
    is_superseded: bool


def read(file: StateFile) -> Machine:
    """Return the machine of a state."""
    epoch, instance, restored_at, is_restoring, is_superseded = file.one(
        "SELECT epoch, instance, restored_at, is_restoring, is_superseded FROM machine"
    )
    return Machine(
        epoch,
        instance,
        None if restored_at is None else datetime.fromisoformat(restored_at),
        bool(is_restoring),
        bool(is_superseded),
    )

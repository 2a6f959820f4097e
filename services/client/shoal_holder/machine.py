"""Which machine this is, of those that ever held the data holder's key: its epoch and instance.

Compute nodes take answers of one machine only. A restart keeps both; only a restored state raises
the epoch, and a machine that is superseded so stops for good.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shoal_holder.state_file import StateFile
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.encoding import format_time

_INSTANCE_BYTES: Final = 16
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


def begin(file: StateFile, random_bytes: RandomBytes) -> None:
    """Draw an instance for a state that has none."""
    if file.one("SELECT 1 FROM machine") is None:
        instance = random_bytes(_INSTANCE_BYTES).hex()
        file.write(
            "INSERT INTO machine (one, epoch, instance) VALUES (1, 0, ?)",
            instance,
        )


def read(file: StateFile) -> Machine:
    """Return the machine of a state that is begun."""
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


def supersede(file: StateFile) -> None:
    """Note for good that another machine has superseded this one."""
    file.write("UPDATE machine SET is_superseded = 1")


def begin_anew(file: StateFile, random_bytes: RandomBytes, *, known: str, now: datetime) -> None:
    """Begin a machine that supersedes this one, in the caller's transaction.

    `known` are the slots of those whom the state knows, as documents have it.
    """
    file.database.execute(
        "UPDATE machine SET epoch = epoch + 1, instance = ?, restored_at = ?, is_restoring = 1,"
        " is_superseded = 0, known = ?, least_mu = NULL, least_epsilon = NULL",
        (random_bytes(_INSTANCE_BYTES).hex(), format_time(now), known),
    )


def set_least(file: StateFile, mu: float, epsilon: float | None) -> None:
    """Store what slots start at whose individuals the restored state did not know."""
    file.write(
        "UPDATE machine SET least_mu = ?, least_epsilon = ? WHERE least_mu IS NULL",
        mu,
        epsilon,
    )


def note_crowds(file: StateFile, epsilon: float) -> None:
    """Note that crowd jobs may cost a slot so much; the highest ever stays, in backups too."""
    if epsilon > crowds_epsilon(file):
        file.write(
            "UPDATE machine SET crowds_epsilon = ?",
            epsilon,
        )


def crowds_epsilon(file: StateFile) -> float:
    """Return the most that crowd jobs were ever allowed to cost a slot, as this state knows."""
    return float(file.one("SELECT crowds_epsilon FROM machine")[0])


def end_restoring(file: StateFile) -> None:
    """Note that all charges were taken over."""
    file.write("UPDATE machine SET is_restoring = 0")


def raise_epoch(file: StateFile, *, above: int, now: datetime) -> None:
    """Supersede all machines up to an epoch; no round announced before is answered."""
    file.write("UPDATE machine SET epoch = ?, restored_at = ?", above + 1, format_time(now))

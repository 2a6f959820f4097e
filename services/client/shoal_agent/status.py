"""The status that a data holder shows its owner, in counts."""

from dataclasses import dataclass, field
from datetime import datetime

from shoal_holder.crowds.status import CrowdStatus
from shoal_holder.status import JobStatus


@dataclass(frozen=True)
class HolderStatus:
    """All jobs that were joined or contributed to, in order, and why listed ones were not.

    `key` is the fingerprint of the key in force, by which the authority knows this data holder.
    `refusal` says why nothing is joined or answered: the ledger lacks what Compute nodes charged,
    or the data holder was revoked.
    `adopted` counts rounds that this ledger lacked and the owner had charged; `losses` counts
    accepted losses of the state file, whose charges may be spent a second time. `isolation` says
    how the process with the records is cut off from the network. A backup is due where none was
    made since records were loaded. `records_fault` says why the newest ones were not taken.
    `unheard` says why the trainer lists no jobs, and Compute nodes do not say what they charged.
    Jobs in `waiting` wait for the owners' approval; `owners_missing` says why none can be approved.
    """

    key: str
    enrolled: int
    isolation: str
    jobs: tuple[JobStatus, ...]
    refused: dict[str, str]
    refused_crowds: dict[str, str] = field(default_factory=dict)
    crowds: tuple[CrowdStatus, ...] = ()
    refusal: str | None = None
    adopted: int = 0
    losses: int = 0
    backup_at: datetime | None = None
    backup_due: bool = False
    records_fault: str | None = None
    waiting: tuple[str, ...] = ()
    owners_missing: str | None = None
    unheard: dict[str, str] = field(default_factory=dict)

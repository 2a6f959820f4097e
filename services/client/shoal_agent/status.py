"""The status that a data holder shows its owner, in counts."""

from dataclasses import dataclass, field

from shoal_holder.crowds.status import CrowdStatus
from shoal_holder.status import JobStatus


@dataclass(frozen=True)
class HolderStatus:
    """All jobs that were joined or contributed to, in order, and why listed ones were not.

    `refusal` says why nothing is joined or answered: the ledger lacks what Compute nodes charged.
    `adopted` rounds were forgotten here, and taken for spent because the owner said so; `losses`
    of the state file were accepted, and what they held may be spent a second time.
    `isolation` says what of the network the process with the records is without.
    """

    clients: int
    enrolled: int
    isolation: str
    jobs: tuple[JobStatus, ...]
    refused: dict[str, str]
    refused_crowds: dict[str, str] = field(default_factory=dict)
    crowds: tuple[CrowdStatus, ...] = ()
    refusal: str | None = None
    adopted: int = 0
    losses: int = 0

"""Models of ledger pages that services serve, and of exported ledger files."""

from collections.abc import Iterable

import pydantic
from pydantic import ConfigDict, Field

from shoal_holder.crowds.status import CrowdSpending, RecordsLeft
from shoal_holder.exits import ReservedBudget
from shoal_protocol.privacy.ledger import Chain, LedgerEntry
from shoal_protocol.privacy.ledger_checks import verify_chain
from shoal_protocol.wire.encoding import Count, Delta, Loss
from shoal_protocol.wire.errors import MalformedDocument


class Line(LedgerEntry):
    """An entry on a page, with its digest."""

    model_config = ConfigDict(extra="ignore", serialize_by_alias=True)

    shown_digest: str = Field(alias="digest")

    def entry(self) -> LedgerEntry:
        """Return the entry.

        Raises:
            MalformedDocument: it has another digest than was shown.
        """
        entry = LedgerEntry(**{name: getattr(self, name) for name in LedgerEntry.model_fields})
        if entry.digest != self.shown_digest:
            raise MalformedDocument(f"ledger entry {entry.number} has another digest than is shown")
        return entry


class TrainerLine(Line):
    """A line of the trainer's ledger, and what its clients had spent by then."""

    cumulative_mu: Loss
    cumulative_epsilon: Loss | None  # None is infinite
    delta: Delta


class TrainerPage(pydantic.BaseModel):
    """A part of the trainer's ledger."""

    entries: list[TrainerLine]
    next: Count | None
    withdrawn: list[str]


class ChainPage(pydantic.BaseModel):
    """A part of a data holder's ledger."""

    entries: list[Line]
    next: Count | None = None


class Head(pydantic.BaseModel):
    """The last entry of a ledger when it was printed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    number: Count
    digest: str


class Exported(pydantic.BaseModel):
    """The output of a ledger command with --json."""

    entries: list[Line]
    head: Head | None = None

    def whole(self) -> Chain:
        """Return the ledger, checked.

        Raises:
            MalformedDocument: it is no unbroken chain, or does not end where its head says.
        """
        chain = verified(self.entries)
        end = Head(number=chain.head.number, digest=chain.head.digest)
        if "head" in self.model_fields_set and self.head != end:
            raise MalformedDocument(
                f"the head beside the entries is not the last of them, {end.number} with the "
                f"digest {end.digest}: entries were removed or added, or the head was changed"
            )
        return chain


class ClientLine(pydantic.BaseModel):
    """One client's charge for one round."""

    entry: Count
    job: str
    number: Count
    round: str
    client: Count
    mu: Loss
    epsilon: Loss | None  # None is infinite
    at: str


class Spread(pydantic.BaseModel):
    """The distribution of an amount over clients."""

    least: Loss | None  # None is infinite
    median: Loss | None
    most: Loss | None


class Left(pydantic.BaseModel):
    """The epsilon that the client with the least of it may still spend on either kind of job."""

    pure: Loss
    gaussian: Loss  # at the policy's delta


class Spent(pydantic.BaseModel):
    """The spending of a data holder's clients, and the budget left."""

    clients: Count
    delta: Delta
    epsilon: Spread
    maximum_epsilon: Loss
    left: Left
    left_to_records: RecordsLeft | None = None  # None: no crowd job is allowed


class AgentPage(pydantic.BaseModel):
    """A page of the data holder's charges, client by client."""

    spent: Spent
    crowds: list[CrowdSpending] = []
    reserved: list[ReservedBudget] = []
    entries: list[ClientLine]
    next: Count | None


class ChargedJob(pydantic.BaseModel):
    """What a job in rounds charged so far, newest of it `at`, and what is left to the slots."""

    job: str
    at: str
    rounds: Count
    slots: Count
    mu: Loss  # the most that the job cost one slot
    epsilon: Loss | None  # None is infinite
    left: Left  # to the slot with least of it of those that paid


class ChargedJobs(pydantic.BaseModel):
    """A page of jobs, the one charged last first; `next` is the entry before which to go on."""

    jobs: list[ChargedJob]
    next: Count | None


def verified(lines: Iterable[Line]) -> Chain:
    """Return the ledger of these lines.

    Raises:
        MalformedDocument: it is no unbroken chain, or a line has another digest than is shown.
    """
    return verify_chain(line.entry() for line in lines)

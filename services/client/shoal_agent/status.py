"""What a data holder shows its owner: its status, its jobs, its ledger and what its state keeps.

Also what `shoal ledger agent` exports.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pydantic
from nacl.signing import SigningKey

from shoal_holder.approvals import Asking
from shoal_holder.crowds.status import CrowdStatus
from shoal_holder.messages import Standing
from shoal_holder.state import ReservedBudget
from shoal_holder.status import JobStatus
from shoal_protocol.journal import Chain, Head, Shown, content_hash
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.wire.encoding import Count, Delta, Loss, canonical_json
from shoal_protocol.wire.errors import MalformedDocument, UnknownJob

# Nothing of the state goes by the consortium's `retention_days`: caps and the refusal of replays
# rest on it.


class ChainPage(pydantic.BaseModel):
    """A part of a data holder's journal."""

    entries: list[Shown]
    next: Count | None = None


def checked_journal(shown: Iterable[Shown]) -> Head:
    """Return the last of all entries of a journal, from the first one on.

    Raises:
        MalformedDocument: they are no unbroken chain, or their content is not what they stand for.
    """
    chain = Chain()
    for entry in shown:
        said = entry.statement
        if said is None or entry.content != content_hash(
            said.salt, said.kind, said.subject, canonical_json(said.document)
        ):
            raise MalformedDocument(f"journal entry {entry.number} was changed")
        chain.follow(Shown(**entry.link.model_dump(), content=entry.content))
    return chain.head


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


class AgentPage(pydantic.BaseModel):
    """What a data holder's clients spent, and what open jobs reserve."""

    spent: Spent
    reserved: list[ReservedBudget] = []


class Parties(pydantic.BaseModel):
    """Who asks, who conducts the rounds, and who each answer is shared among.

    Each is a party's name with, in brackets, the organisation that runs it.
    """

    analyst: str
    trainer: str
    compute_nodes: list[str]


class JobView(pydantic.BaseModel):
    """A job with its signed request as JSON, whose digest is the job's id."""

    job: str
    request: dict[str, Any]
    parties: Parties


class AskingView(JobView, Asking):
    """A job of either kind that asked the owners."""


class ApprovalsView(pydantic.BaseModel):
    """A page of the jobs that ask an agent: `missing` says why none can be approved.

    `owners` has the listed names and keys in hex; `left` is before a job that is not joined yet.
    """

    approval: str
    needed: Count
    owners: dict[str, str]
    missing: str | None
    left: Left
    jobs: tuple[AskingView, ...]
    next: Count | None = None

    def asking(self, job: str) -> AskingView:
        """Return the job with this id.

        Raises:
            UnknownJob: it does not ask.
        """
        for each in self.jobs:
            if each.job == job:
                return each
        raise UnknownJob("no such job asks its owners; see `shoal agent approvals`")

    def owner_of(self, key: SigningKey) -> str:
        """Return the name under which an owner's key is listed.

        Raises:
            ValueError: it is not.
        """
        public = bytes(key.verify_key).hex()
        names = {listed: name for name, listed in self.owners.items()}
        if public not in names:
            raise ValueError(
                f"the data holder's policy does not list this key among its `owners`: {public}"
            )
        return names[public]


def job_view(job: str, encoded: bytes, manifest_of: Callable[[str], Manifest]) -> JobView:
    """Return the view of a job by its signed request; its parties are of the manifest it names."""
    request = json.loads(encoded)
    analyst, manifest = request["body"]["analyst"], manifest_of(request["body"]["manifest"])
    operators = {each.name: each.operator for each in manifest.analysts}
    parties = Parties(
        analyst=f"{analyst} ({operators.get(analyst, 'not in the manifest')})",
        trainer=f"{manifest.trainer.name} ({manifest.trainer.operator})",
        compute_nodes=[f"{each.name} ({each.operator})" for each in manifest.compute_nodes],
    )
    return JobView(job=job, request=request, parties=parties)


class HolderStatus(Standing):
    """All jobs that were joined or contributed to, in order, and why listed ones were not.

    `key` is the fingerprint of the key in force, by which the authority knows this data holder.
    `refusal` says why nothing is joined or answered: the journal lacks what Compute nodes charged,
    or the data holder was revoked.
    `isolation` says how the process with the records is cut off from the network. A backup is due
    where none was made since the agent came to other records.
    `unheard` says why the trainer lists no jobs, and Compute nodes do not say what they charged.
    Jobs in `waiting` wait for the owners' approval; `owners_missing` says why none can be approved.
    """

    jobs: tuple[JobStatus, ...]
    refused: dict[str, str]
    refused_crowds: dict[str, str]
    crowds: tuple[CrowdStatus, ...]
    waiting: tuple[str, ...]
    unheard: dict[str, str]

"""Asks the data holder's owners about jobs, and takes what they decide by signatures of their keys.

The policy says how many owners approve a job, and lists their verify keys. Neither process has
their private keys: the courier can keep a job from the owners, or a decision from the vault, but it
cannot decide. Each decision is verified by the policy as it is when it counts. A refusal is for
good.
"""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from shoal_holder import journal
from shoal_holder.letters import Draft, Settled
from shoal_holder.policy import Policy
from shoal_holder.site import Site
from shoal_holder.state_file import StateFile
from shoal_protocol.jobs.membership import (
    APPROVED,
    REFUSED,
    WAITS,
    Approval,
    Membership,
    check_approval,
)
from shoal_protocol.wire.documents import Role, Signed, decode, from_json, sign
from shoal_protocol.wire.encoding import (
    Count,
    Digest,
    format_time,
    sha256,
)
from shoal_protocol.wire.errors import (
    MalformedDocument,
    ProtocolError,
    RefusedJob,
    UnknownJob,
    WrongPhase,
)

REFUSED_BY_OWNER: Final = "refused by an owner of this data holder"
MOST_WAITING: Final = 100
"""Of one analyst's jobs: more would bury the others', and keep the vault from its rounds."""
_NOTHING: Final = "nothing"
"""What the trainer was told of a job at first."""
Stage = Literal["waits", "approved", "refused", "expired"]


class Asking(BaseModel):
    """A job that asked the owners: until when they decide, and what they said.

    `needed` is how many of them must approve it. One that is approved is joined or contributed to
    as far as budgets allow.
    """

    job: str
    asked_at: str
    until: str
    holder: Count | None
    needed: Count
    stage: Stage
    decisions: tuple[Approval, ...]


class JobAsking(Asking):
    """The same, with its request as the analyst signed it."""

    request: bytes


class Approvals:
    """The jobs that asked the owners, and their decisions, in the state file."""

    def __init__(self, site: Site, file: StateFile) -> None:
        self._site = site
        self._file = file

    def are_given(self, request: Signed[Any], *, until: datetime) -> bool:
        """Tell whether the owners let a job go ahead; they are asked from the first time on.

        Raises:
            RefusedJob: an owner refused it, or too many of its analyst's jobs wait already.
        """
        if not owners_needed(self._site.policy):
            return True
        if self._file.one("SELECT 1 FROM asked WHERE job = ?", request.digest) is None:
            if len(self.waiting(request.signer)) >= MOST_WAITING:
                raise RefusedJob(f"{MOST_WAITING} jobs of its analyst wait for the owners already")
            with self._file.transaction():
                self._forget_old()
                self._file.database.execute(
                    "INSERT INTO asked VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        request.digest,
                        request.signer,
                        request.body.manifest,
                        request.encode(),
                        format_time(self._site.clock()),
                        format_time(until),
                        _NOTHING,
                    ),
                )
        stage = self._stage(request.digest, format_time(until))
        if stage == REFUSED:
            raise RefusedJob(REFUSED_BY_OWNER)
        return stage == APPROVED

    def _forget_old(self) -> None:
        """Delete jobs that nobody decided about in time, once the policy keeps documents no longer.

        A clock that leapt deletes none for good: a job that still waits asks again.
        """
        days = self._site.book.current.manifest.policy.retention_days
        if days is not None:
            self._file.database.execute(
                "DELETE FROM asked WHERE until < ? AND job NOT IN"
                " (SELECT job FROM journal WHERE kind = 'decision')",
                (format_time(self._site.clock() - timedelta(days=days)),),
            )

    def take(self, encoded: bytes) -> str:
        """Keep an owner's decision; return the job. A later one replaces an approval, no refusal.

        Raises:
            UnknownJob: no such job asked.
            WrongPhase: the owner refused it already, the time to decide is over, or the job is
                taken part in.
            MalformedDocument: it is about another data holder, or another manifest.
            UnknownSigner, WrongSigner, BadSignature: no owner whose key is listed signed it.
        """
        signed = decode(encoded, Approval)
        body = signed.body
        check_approval(signed, self._site.policy.owners.get(signed.signer))
        asked = self._file.one("SELECT manifest, until FROM asked WHERE job = ?", body.job)
        if asked is None:
            raise UnknownJob("no such job asks this data holder's owners")
        if (body.holder, body.manifest) != (self._site.holder, asked[0]):
            raise MalformedDocument("the decision is about another data holder's part in a job")
        kept = self._signed(body.job).get(body.owner)
        if kept == signed:
            return body.job
        if kept is not None and kept.body.decision == "refuse":
            raise WrongPhase("this owner refused the job, which is for good")
        if self._file.takes_part(body.job):
            raise WrongPhase("the data holder takes part already: `shoal agent leave` ends that")
        if asked[1] <= format_time(self._site.clock()):
            raise WrongPhase("the time to decide about the job is over")
        with self._file.transaction():
            journal.append(
                *(self._file, "decision", sha256("decision", encoded)),
                job=body.job,
                document=signed.to_json(),
            )
        return body.job

    def waiting(self, analyst: str | None = None) -> tuple[str, ...]:
        """Return the jobs, of one analyst or of all, that owners have yet to decide about."""
        rows = self._file.rows(
            "SELECT job, until FROM asked WHERE until > ? AND analyst = coalesce(?, analyst)",
            format_time(self._site.clock()),
            analyst,
        )
        return tuple(job for job, until in rows if self._stage(job, until) == WAITS)

    def page(
        self,
        after: Count = 0,
        count: Annotated[int, Field(ge=1, le=10_000)] = 1000,
        job: Digest | None = None,
    ) -> list[JobAsking]:
        """Return `count` jobs that ever asked, without the first `after`, or only this one.

        Those that owners may still decide about come first, then the newest.
        """
        rows = self._file.rows(
            "SELECT job, request, asked_at, until FROM asked WHERE ? IN (job, '')"
            " ORDER BY until > ? DESC, asked_at DESC, job LIMIT ? OFFSET ?",
            *(job or "", format_time(self._site.clock()), count, after),
        )
        return [
            JobAsking(
                job=job,
                request=request,
                asked_at=asked_at,
                until=until,
                holder=self._site.holder,
                needed=owners_needed(self._site.policy),
                stage=self._stage(job, until),
                decisions=tuple(self._decisions(job)),
            )
            for job, request, asked_at, until in rows
        ]

    def letters(self) -> Iterator[Draft]:
        """Yield what tells the trainer of jobs that wait, or no longer do.

        A join tells it of an approval, where there is one: not of a crowd job.
        """
        trainer, holder = self._site.book.current.manifest.trainer.name, self._site.holder
        if holder is None:
            return
        for job, manifest, until, told, is_crowd in self._file.rows(
            "SELECT job, manifest, until, told, job IN"
            " (SELECT job FROM jobs WHERE opening IS NOT NULL) FROM asked"
            " WHERE told IN (?, ?) AND until > ? ORDER BY job",
            _NOTHING,
            WAITS,
            format_time(self._site.clock()),
        ):
            state = self._stage(job, until)
            by_join = state == APPROVED and not (is_crowd and told == WAITS)
            if state == "expired" or state == told or by_join:
                continue
            body = Membership(manifest=manifest, job=job, holder=holder, state=state)
            signed = sign(body, Role.HOLDER, self._site.key).encode()
            yield Draft(f"{state}/{job}", trainer, f"/v1/jobs/{job}/memberships", signed)

    def settle_notice(self, settled: Settled) -> None:
        """Record that the trainer answered a notice."""
        state, job = settled.kind, settled.about
        self._file.write("UPDATE asked SET told = ? WHERE job = ?", state, job)

    def _stage(self, job: str, until: str) -> Stage:
        decisions = self._decisions(job)
        if self._file.takes_part(job):
            return APPROVED
        if any(each.decision == "refuse" for each in decisions):
            return REFUSED
        if len(decisions) >= owners_needed(self._site.policy):
            return APPROVED
        return "expired" if until <= format_time(self._site.clock()) else WAITS

    def _decisions(self, job: str) -> list[Approval]:
        """Return the decisions about a job of owners whose keys are listed now."""
        found = []
        for _, signed in sorted(self._signed(job).items()):
            try:
                check_approval(signed, self._site.policy.owners.get(signed.signer))
            except ProtocolError:
                continue  # the policy lists this owner no more, or another key
            found.append(signed.body)
        return found

    def _signed(self, job: str) -> dict[str, Signed[Approval]]:
        """Return the last decision of each owner about a job, as it was signed."""
        rows = self._file.rows(
            "SELECT body FROM journal WHERE (kind, job) = ('decision', ?) ORDER BY number", job
        )
        signed = [from_json(json.loads(text)["document"], Approval) for (text,) in rows]
        return {each.body.owner: each for each in signed}


def owners_needed(policy: Policy) -> int:
    """Return how many owners must approve a job before the data holder takes part."""
    return {"automatic": 0, "one": 1, "two": 2}[policy.approval]


def owners_missing(policy: Policy) -> str | None:
    """Return why no job can be approved, None if it can."""
    missing = owners_needed(policy) - len(policy.owners)
    if missing <= 0:
        return None
    return (
        "no job can be approved: the policy's `owners` lists too few keys. "
        "`shoal agent owner-key` makes one"
    )

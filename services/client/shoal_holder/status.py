"""What a data holder did, in counts, and the events that it reports; neither names a client."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Protocol

from shoal_holder import spending
from shoal_holder.state_file import StateFile


class Report(Protocol):
    """Called with an event and its facts: digests, counts, codes. Never a client or a value."""

    def __call__(self, event: str, /, **facts: object) -> None: ...


def silent(event: str, /, **facts: object) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class RoundStatus:
    """One round. `envelopes` counts them by outcome: pending, acknowledged or a refusal's code.

    `answers` is how many slots the answer covers. It was charged `answered_at`, before the first of
    it was sent.
    """

    round_id: str
    number: int
    ended: str | None
    answers: int
    envelopes: dict[str, int]
    answered_at: str | None = None


@dataclass(frozen=True)
class JobStatus:
    """One job: the outcome of its join, and of its leave if it was left.

    `slots` is how many records it may use; `ended` says why we have no more part in it.
    """

    job: str
    ended: str | None
    slots: int
    join: str
    rounds: tuple[RoundStatus, ...]
    leave: str | None = None


def read_jobs(file: StateFile) -> tuple[JobStatus, ...]:
    """Count what the state file holds, job by job."""
    sent: dict[str, Counter[str]] = defaultdict(Counter)
    for round_id, outcome in file.rows("SELECT about, outcome FROM outbox WHERE kind = 'envelope'"):
        sent[round_id][outcome] += 1
    charged: dict[str, tuple[int, str | None]] = {}
    for each in spending.charges(file):
        if each.number is not None:
            count, at = charged.get(each.what, (0, each.at))
            charged[each.what] = count + len(each.clients), at
    rounds: dict[str, list[RoundStatus]] = {}
    for job, round_id, number, ended in file.rows(
        "SELECT job, round, number, ended FROM rounds ORDER BY rowid"
    ):
        answered, at = charged.get(round_id, (0, None))
        envelopes = dict(sent[round_id])
        counts = answered, envelopes, at
        rounds.setdefault(job, []).append(RoundStatus(round_id, number, ended, *counts))
    return tuple(
        JobStatus(
            job, ended, len(spending.joined(file, job)[0]), join, tuple(rounds.get(job, ())), leave
        )
        for job, ended, join, leave in file.rows(
            "SELECT job, ended,"
            " (SELECT outcome FROM outbox WHERE (kind, about) = ('join', job)),"
            " (SELECT outcome FROM outbox WHERE (kind, about) = ('leave', job))"
            " FROM jobs WHERE opening IS NULL ORDER BY rowid"
        )
    )

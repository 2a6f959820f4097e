"""Counts of what a data holder did; it names digests and codes, never a client."""

from dataclasses import dataclass, field
from typing import Final

from shoal_holder.state_file import StateFile

ADOPTED: Final = "the ledger holds rounds that were forgotten here and taken for spent"


@dataclass(frozen=True)
class RoundStatus:
    """One round. `envelopes` counts them by outcome: pending, acknowledged or a refusal's code.

    `complete` clients are those whose envelopes every node acknowledged; `reuploaded` envelopes
    were sent again because a node no longer had them.
    """

    round_id: str
    number: int
    ended: str | None
    answers: int
    envelopes: dict[str, int]
    complete: int
    reuploaded: int


@dataclass(frozen=True)
class JobStatus:
    """One job. `joins` counts them by outcome.

    `ended` says why we have no more part in it; `leaves` are counted as `joins` are.
    """

    job: str
    ended: str | None
    joins: dict[str, int]
    rounds: tuple[RoundStatus, ...]
    leaves: dict[str, int] = field(default_factory=dict)


def read_jobs(file: StateFile) -> tuple[JobStatus, ...]:
    """Count what the state file holds, job by job."""
    joins = _counts(file, "SELECT job, outcome, COUNT(*) FROM joins GROUP BY job, outcome")
    leaves = _counts(file, "SELECT job, outcome, COUNT(*) FROM leaves GROUP BY job, outcome")
    sent = _counts(file, "SELECT round, outcome, COUNT(*) FROM outbox GROUP BY round, outcome")
    complete = dict(
        file.rows(
            "SELECT round, COUNT(*) FROM (SELECT round, client FROM outbox GROUP BY round, client"
            " HAVING MIN(outcome = 'acknowledged')) GROUP BY round"
        )
    )
    answers = dict(file.rows("SELECT round, COUNT(*) FROM spending GROUP BY round"))
    rounds: dict[str, list[RoundStatus]] = {}
    for job, round_id, number, ended, reuploaded in file.rows(
        "SELECT job, round, number, ended, reuploaded FROM rounds ORDER BY rowid"
    ):
        answered, envelopes = answers.get(round_id, 0), sent.get(round_id, {})
        rounds.setdefault(job, []).append(
            RoundStatus(
                round_id,
                number,
                ended,
                answered,
                envelopes,
                complete.get(round_id, 0),
                reuploaded,
            )
        )
    return tuple(
        JobStatus(job, ended, joins.get(job, {}), tuple(rounds.get(job, ())), leaves.get(job, {}))
        for job, ended in file.rows("SELECT job, ended FROM jobs ORDER BY rowid")
    )


def count_adopted(file: StateFile) -> int:
    """Return how many rounds were adopted from the nodes' ledgers."""
    [(count,)] = file.rows("SELECT COUNT(*) FROM adopted")
    return int(count)


def _counts(file: StateFile, query: str) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for name, outcome, count in file.rows(query):
        counts.setdefault(name, {})[outcome] = count
    return counts

"""What an agent says that it did, on a terminal; it asks nobody."""

from collections import Counter

import pydantic
from rich.table import Table

from shoal_client.command.terminal import plain, say, show
from shoal_client.crowds.verdicts import is_cheating

_DIGITS = 12  # in tables: enough to tell jobs apart


class _Round(pydantic.BaseModel):
    answers: int
    complete: int


class _Job(pydantic.BaseModel):
    job: str
    ended: str | None
    joins: dict[str, int]
    rounds: list[_Round]
    leaves: dict[str, int] = {}


class Crowd(pydantic.BaseModel):
    """One crowd job: contributions by outcome, and what its closing said of the trainer."""

    job: str
    ended: str | None
    contributions: dict[str, int]
    verdict: str | None
    opening: str | None = None
    closing: str | None = None


class Left(pydantic.BaseModel):
    """A job that was left: by how many clients, and how many of its rounds they had answered."""

    job: str
    clients: int
    answered_rounds: int


class Status(pydantic.BaseModel):
    """What an agent did."""

    clients: int
    enrolled: int
    jobs: list[_Job]
    refused: dict[str, str]
    refused_crowds: dict[str, str] = {}
    crowds: list[Crowd] = []

    @property
    def cheats(self) -> list[Crowd]:
        """The crowd jobs in which the trainer did not keep to its word."""
        return [each for each in self.crowds if is_cheating(each.verdict)]


def tell(status: Status) -> None:
    """Print it all."""
    say(f"{status.enrolled:,} of {status.clients:,} clients are enrolled.")
    if status.jobs:
        table = Table("job", "clients joined", "rounds answered", "answers", "ended")
        for job in status.jobs:
            answered = [each.answers for each in job.rounds if each.answers]
            table.add_row(
                job.job[:_DIGITS],
                f"{job.joins.get('acknowledged', 0):,}",
                f"{len(answered):,}",
                f"{sum(answered):,}",
                plain(job.ended or "no"),
            )
        show(table)
        for job in status.jobs:
            if job.leaves:
                counts = (f"{count:,} {outcome}" for outcome, count in job.leaves.items())
                say(f"Left {job.job}; leaves at the trainer: {plain(', '.join(counts))}")
    if status.crowds:
        table = Table("crowd job", "contributions", "ended", "what the trainer signed")
        for crowd in status.crowds:
            counts = (f"{count:,} {outcome}" for outcome, count in crowd.contributions.items())
            table.add_row(
                crowd.job[:_DIGITS],
                plain(", ".join(counts)),
                plain(crowd.ended or "no"),
                plain(crowd.verdict or _without_verdict(crowd)),
            )
        show(table)
        for crowd in status.crowds:
            for what, each in (("Opening", crowd.opening), ("Closing", crowd.closing)):
                if each is not None:
                    say(f"{what} of {crowd.job}: {each}")
    for job_id, reason in status.refused.items():
        say(f"Refused {job_id}: {reason}")
    for reason, count in Counter(status.refused_crowds.values()).most_common():
        say(f"Crowd jobs that are open and not contributed to: {count:,}: {reason}")


def _without_verdict(crowd: Crowd) -> str:
    if crowd.ended is not None and not crowd.contributions:
        return "nothing was sent, so there is nothing to compare"
    if crowd.closing is not None:
        return "its closing is kept and not compared yet: the logs are still to be read"
    return "the job has shown no closing"

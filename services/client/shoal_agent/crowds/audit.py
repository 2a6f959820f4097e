"""Fetches the logs of crowd jobs from the trainer and has them checked."""

from collections.abc import Generator, Sequence
from typing import TypeVar

from shoal_agent.crowds.trainer import CrowdTrainer
from shoal_holder.crowds.audit import Kept, Wanted, faults, followed
from shoal_holder.crowds.crowd import Crowd
from shoal_protocol.crowds.documents import CrowdClosing, LogEntry

T = TypeVar("T")


async def find_faults(
    trainer: CrowdTrainer, crowd: Crowd, closing: CrowdClosing, kept: Sequence[Kept]
) -> dict[str, list[str]]:
    """Return the trainer's faults, as `shoal_holder.crowds.audit.faults`.

    Raises:
        Unavailable, CrowdRefused: the trainer does not show a log.
    """
    return await _fed(trainer, crowd.job, faults(crowd, closing, kept))


async def verify_logs(trainer: CrowdTrainer, crowd: Crowd, closing: CrowdClosing) -> None:
    """Check the log of every instance, from the opening to the closing.

    Raises:
        MalformedDocument: one is no unbroken chain between them, or not as the seed says.
        Unavailable, CrowdRefused: the trainer does not show it.
    """
    for instance in range(len(closing.heads)):
        await _fed(trainer, crowd.job, followed(crowd, closing, instance, ()))


async def _fed(
    trainer: CrowdTrainer, job: str, judgement: Generator[Wanted, Sequence[LogEntry], T]
) -> T:
    try:
        wanted = next(judgement)
        while True:
            page = await trainer.log(job, wanted.instance, after=wanted.after)
            wanted = judgement.send(page.entries)
    except StopIteration as end:
        found: T = end.value
        return found

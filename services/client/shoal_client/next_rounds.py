"""Asks the trainer for the next round of each job: whenever it is told to, or by long polls.

It judges no answer. A long poll goes on beside the data holder's steps, and wakes it.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from shoal_client.directory import Directory
from shoal_client.peer import ANSWER_SECONDS, Answer
from shoal_client.state import StoredJob

LONG_POLL_SECONDS: Final = int(ANSWER_SECONDS * 3 / 4)  # an answer is waited for no longer


class NextRounds:
    """The questions that are open at the trainer, at most one for each job."""

    def __init__(self, directory: Directory, wake: asyncio.Event | None) -> None:
        """Set `wake` whenever a long poll is answered; None is without long polls."""
        self._directory = directory
        self._wake = wake
        self._questions: dict[StoredJob, asyncio.Task[Answer]] = {}

    async def answer(self, job: StoredJob) -> Answer | None:
        """Return the trainer's answer about a job's next round; None while it is waited for.

        Raises:
            Unavailable: it did not answer.
        """
        if self._wake is None:
            return await self._directory.trainer.get(_path(job))
        question = self._questions.get(job)
        if question is None or not question.done():
            return None
        del self._questions[job]
        return question.result()

    async def follow(self, jobs: Collection[StoredJob]) -> None:
        """Keep a question open about the next round of each of these jobs, and about no others."""
        gone = [self._questions.pop(each) for each in self._questions.keys() - set(jobs)]
        for question in gone:
            question.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        if self._wake is not None:
            for job in set(jobs) - self._questions.keys():
                asking = self._directory.trainer.get(_path(job), wait=LONG_POLL_SECONDS)
                self._questions[job] = asyncio.create_task(asking)
                self._questions[job].add_done_callback(self._answered)

    def _answered(self, question: asyncio.Task[Answer]) -> None:
        # a failure waits for the next tick: the trainer is to be left in peace for a while
        if self._wake is not None and not question.cancelled() and question.exception() is None:
            self._wake.set()


def _path(job: StoredJob) -> str:
    return f"/v1/jobs/{job.job}/rounds/{job.next_number}"

"""Asks the trainer for the next round of each job, on each step or by long polls.

A long poll runs beside the data holder's steps, and wakes it when answered.
"""

import asyncio
from collections.abc import Collection
from typing import Final

from shoal_agent.directory import Directory
from shoal_holder.messages import OpenJob
from shoal_hosting.peers.exchange import ANSWER_SECONDS
from shoal_hosting.peers.peer import ACCEPTED, Answer

LONG_POLL_SECONDS: Final = int(ANSWER_SECONDS * 3 / 4)  # an answer is waited for no longer


class NextRounds:
    """Keeps long polls open at the trainer, at most one for each job."""

    def __init__(self, directory: Directory, wake: asyncio.Event | None) -> None:
        """Set `wake` whenever a long poll is answered; None is without long polls."""
        self._directory = directory
        self._wake = wake
        self._polls: dict[OpenJob, asyncio.Task[Answer]] = {}

    async def answer(self, job: OpenJob) -> Answer | None:
        """Return the trainer's answer about a job's next round; None while it is waited for.

        Raises:
            Unavailable: it did not answer.
        """
        if self._wake is None:
            return await self._directory.ask_trainer(_path(job))
        poll = self._polls.get(job)
        if poll is None or not poll.done():
            return None
        del self._polls[job]
        return poll.result()

    async def follow(self, jobs: Collection[OpenJob]) -> None:
        """Keep a long poll open about the next round of each of these jobs, and about no others."""
        gone = [self._polls.pop(each) for each in self._polls.keys() - set(jobs)]
        for poll in gone:
            poll.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        if self._wake is not None:
            for job in set(jobs) - self._polls.keys():
                self._polls[job] = asyncio.create_task(self._ask(_path(job), self._wake))

    async def _ask(self, path: str, wake: asyncio.Event) -> Answer:
        """Ask until there is news. A trainer that fails or does not wait is asked at the next tick.

        Raises:
            Unavailable: it did not answer.
        """
        loop = asyncio.get_running_loop()
        while True:
            asked_at = loop.time()
            answer = await self._directory.ask_trainer(path, wait=LONG_POLL_SECONDS)
            if answer.status != ACCEPTED:
                wake.set()
                return answer
            if loop.time() - asked_at < LONG_POLL_SECONDS / 2:
                return answer


def _path(job: OpenJob) -> str:
    return f"/v1/jobs/{job.job}/rounds/{job.next_number}"

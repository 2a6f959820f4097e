"""Opens crowd jobs and closes those that are due, each once, whichever process does it."""

from typing import Final

import structlog

from shoal_protocol.crowds.draws import (
    CrowdJobRequest,
    CrowdOpening,
    check_crowd_job,
    commitment,
    reach_refusal,
)
from shoal_protocol.jobs.membership import JobWithdrawal, check_ending
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.policy import passed_message
from shoal_protocol.wire.errors import RefusedJob, UnknownJob
from shoal_trainer.crowds import store
from shoal_trainer.crowds.store import CrowdBook
from shoal_trainer.dictionaries import Dictionaries
from shoal_trainer.resources import Resources
from shoal_trainer.schema import crowds

SEED_BYTES: Final = 32
ERASED_AT_ONCE: Final = 5_000

log = structlog.get_logger()


class Conductor:
    """Opens and closes crowd jobs."""

    def __init__(self, resources: Resources, book: CrowdBook, random_bytes: RandomBytes) -> None:
        """Draw seeds by `random_bytes`, which must be a cryptographic source."""
        self._resources = resources
        self._book = book
        self._random_bytes = random_bytes
        self._told_open: set[str] = set()  # the jobs that were open when it was last told

    async def open(self, encoded: bytes) -> tuple[str, bool]:
        """Open a crowd job that an analyst signed; return the job and whether it is new.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature, WrongManifest
            RefusedJob: the policy does not allow it, it is too late, or it begins off the lattice.
        """
        own = self._resources
        signed = await own.read(encoded, CrowdJobRequest)
        request = signed.body
        try:
            await self._book.find(request.digest)
        except UnknownJob:
            consortium = own.book.in_force(request.manifest)
        else:
            return request.digest, False
        consortium.verify(signed)
        check_crowd_job(request, consortium.manifest)
        task = request.task
        await Dictionaries(own).check([*task.features, task.target])
        now = own.clock()
        if request.closes_at <= now:
            raise RefusedJob(passed_message("closes_at", request.closes_at, now))
        if reason := reach_refusal(request, consortium.manifest.policy, now=now):
            raise RefusedJob(reason)
        seed = self._random_bytes(SEED_BYTES)
        opening = CrowdOpening(
            manifest=request.manifest,
            job=request.digest,
            commitment=commitment(seed),
            opened_at=now,
        )
        is_new = await own.storage.run(store.add_crowd, signed, own.sign(opening), seed)
        if is_new:
            log.info("crowd job opened", job=request.digest)
        return request.digest, is_new

    async def close(self, job: str, encoded: bytes) -> tuple[bytes, bool]:
        """Close a job because its analyst signed so; return the closing, and whether it is new.

        Draws that were not answered are refused from now on, as by any other closing. Of a job
        that is closed, the closing that there is is returned, whatever closed it.

        Raises:
            UnknownJob
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature, WrongManifest
        """
        own = self._resources
        crowd = await self._book.find(job)
        request = crowd.request.body
        signed = await own.read(encoded, JobWithdrawal)
        check_ending(signed, request, own.book.get(request.manifest))
        is_new = await own.storage.run(store.close, crowd, own.sign, now=own.clock(), asked=signed)
        if is_new:
            log.info("crowd job closed early", job=job)
            self._told_open.add(job)  # so that a step tells those who wait
            own.wake.set()
        column = crowds.jobs.c.closing
        return await own.storage.run(store.find_document, crowd.number, column), is_new

    async def step(self) -> None:
        """Close jobs that are due, and wake requests that wait for other processes' changes.

        Each step also erases a portion of closed jobs' counts of contributions by client.
        """
        own = self._resources
        now, still_open = own.clock(), set()
        for job, contributions in await own.storage.run(store.open_crowds):
            crowd = await self._book.find(job)
            request = crowd.request.body
            if now < request.closes_at and contributions < request.contributions:
                still_open.add(job)
            elif await own.storage.run(store.close, crowd, own.sign, now=now):
                log.info("crowd job closed", job=job)
                self._told_open.add(job)
        if await own.storage.run(store.erase_counts, ERASED_AT_ONCE):
            own.wake.set()  # the rest is due at once
        if changed := still_open ^ self._told_open:
            self._told_open = still_open
            for job in changed:
                own.changes.tell(job)

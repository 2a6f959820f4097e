"""Takes jobs, joins and leaves, and fixes a job's population."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from pyroaring import BitMap
from sqlalchemy import Connection

from shoal_protocol.jobs.membership import (
    JOINED,
    LEFT,
    REFUSED,
    STATES,
    WAITS,
    JobWithdrawal,
    Membership,
    check_ending,
)
from shoal_protocol.privacy.job_costs import epsilon_left
from shoal_protocol.rounds.round_spec import AskedHolders
from shoal_protocol.trust.dictionary import COUNTING
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import encode_clients, format_time
from shoal_protocol.wire.errors import (
    MalformedDocument,
    RefusedJob,
    UnknownJob,
    WrongPhase,
)
from shoal_protocol.wire.phases import JobEvent, JobPhase
from shoal_protocol.wire.service_errors import BudgetExceeded, HolderLeft
from shoal_studies.study_request import JobCheck, StudyRequest
from shoal_trainer import memberships, schema, store
from shoal_trainer.declarations import Declarations, in_words
from shoal_trainer.dictionaries import Dictionaries
from shoal_trainer.jobs import check_affordable, check_deadline, check_request
from shoal_trainer.peers import Peers
from shoal_trainer.releases import uncertified_jobs
from shoal_trainer.resources import Resources
from shoal_trainer.store import JobRecord

log = structlog.get_logger()

HEARING_SECONDS: Final = 5.0
HEARINGS: Final = 20  # in this time
AWAY: Final = "the agent does not run, or does not reach the trainer"
UNEXPLAINED: Final = (
    "heard of the job and did not join it, for a reason that only the owner sees: `shoal agent "
    "status` there"
)
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
WITHOUT_BUDGET: Final = "no budget left for the job"
NO_ROOM: Final = (
    "no room, since a data holder joins with all its slots: raise maximum_population to {}"
)
NOTICED: Final = {
    WAITS: (
        "the owners did not approve the job in time: more time to join helps only if the policy "
        "there lists owners, and they look"
    ),
    REFUSED: "the owners refused the job",
    LEFT: "left the job",
}


class Joining:
    """Takes jobs until they run; admits one join at a time, so none is counted twice."""

    def __init__(
        self,
        resources: Resources,
        dictionaries: Dictionaries,
        declarations: Declarations,
        peers: Peers,
    ) -> None:
        """Go on from what the storage holds, in the calling thread."""
        self._resources, self._dictionaries = resources, dictionaries
        self._declarations, self._peers = declarations, peers
        self._began_at = resources.clock()
        self._in_doubt: set[str] = set()  # jobs of which the storage did not say what is on file
        self._admission = asyncio.Lock()
        self._judging = asyncio.Lock()
        self._judged = ""  # the last job that was found possible
        resources.storage.run_here(self._restore)

    def _restore(self, db: Connection) -> None:
        own = self._resources
        over = set[str]()
        for job in store.find_jobs(db):
            if job.phase is JobPhase.JOINING:
                joined = memberships.joined_slots(db, job.job)
                own.reserve(job.job, _together(joined), job.study.privacy.cost)
            elif job.phase is JobPhase.RUNNING:
                own.reserve(job.job, job.clients, job.study.privacy.cost)
            else:
                over.add(job.job)
        for charged in own.ledger.follow(db):
            if charged.spec.job in over:
                charged.apply_to(own.committed)
        own.ledger.charges.check_rounds(db)

    async def is_busy(self) -> bool:
        """Tell whether a job has not ended, or has no certificate yet."""
        run = self._resources.storage.run
        return bool(
            await run(store.jobs_in, JobPhase.JOINING, JobPhase.RUNNING)
            or await run(uncertified_jobs)
        )

    async def submit(self, encoded: bytes) -> tuple[str, bool]:
        """Take a job request that an analyst signed; return the job and whether it is new.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature, WrongManifest
            RefusedJob, BudgetExceeded: it can never run, or too few clients could join it by what
                data holders declare.
        """
        own = self._resources
        asked_at = own.clock()
        signed = await own.read(encoded, StudyRequest)
        if await own.storage.run(store.find_jobs, schema.jobs.c.id == signed.digest):
            return signed.digest, False
        consortium = own.book.in_force(signed.body.manifest)
        consortium.verify(signed)
        if (trainer := consortium.manifest.trainer.name) != own.name:
            raise RefusedJob(f"{trainer} is the trainer now")
        await self._check(signed.body, consortium, now=asked_at)
        await self._declarations.check(signed.body, consortium)
        check_deadline(signed.body, own.clock())  # judging it takes time
        is_new = await own.storage.run(store.add_job, signed, at=own.clock())
        if is_new:
            log.info("job submitted", job=signed.digest)
        own.wake.set()
        return signed.digest, is_new

    async def check(self, encoded: bytes) -> dict[str, Any]:
        """Say whether `submit` would refuse a job, and who can pay for it. Nothing is stored.

        `able` are the slots with budget for it, by the public ledger; `left` the largest epsilon
        of one more job, pure or Gaussian, that each of them could pay instead. `services` says why
        Compute nodes and the aggregator cannot do their work now, None if they can; `heard` when
        data holders' agents asked for jobs last, for which a moment is waited after `asked_at`.

        Raises:
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature, WrongManifest
        """
        own, refusal = self._resources, None
        asked_at = own.clock()
        signed = await own.read(encoded, JobCheck)
        request = signed.body.request
        if (request.analyst, request.manifest) != (signed.body.analyst, signed.body.manifest):
            raise MalformedDocument("the job to be checked is another analyst's or manifest's")
        consortium = own.book.in_force(signed.body.manifest)
        consortium.verify(signed)
        try:
            await self._check(request, consortium, now=asked_at)
        except (RefusedJob, BudgetExceeded) as error:
            refusal = {"code": error.code, "detail": str(error)}
        enrolled, cap = consortium.roster.enrolled_set, consortium.manifest.policy.cap
        able = own.committed.affording(enrolled, request.privacy.cost, cap)
        pure, gaussian = epsilon_left(cap, own.committed.largest(able or enrolled))
        manifest = consortium.manifest
        services, _ = await asyncio.gather(
            self._peers.reach((*manifest.compute_nodes, manifest.aggregator)),
            self._hear(consortium.roster.in_force, since=asked_at),
        )
        return {
            "refusal": refusal,
            "able": encode_clients(able),
            "left": {"pure": pure, "gaussian": gaussian},
            "services": services,
            "asked_at": format_time(asked_at),
            "heard": {str(holder): format_time(at) for holder, at in own.heard.items()},
        }

    async def _hear(self, holders: int, *, since: datetime) -> None:
        """Wait a moment for so many data holders' agents, which ask for jobs again and again."""
        for _ in range(HEARINGS):
            if sum(at >= since for at in self._resources.heard.values()) >= holders:
                return
            await asyncio.sleep(HEARING_SECONDS / HEARINGS)

    async def _check(self, request: StudyRequest, consortium: Consortium, *, now: datetime) -> None:
        """Refuse a job that cannot run; one that is sent again meanwhile is judged once."""
        own, terms = self._resources, request.terms
        as_levels = set(terms.query_names) <= COUNTING
        await self._dictionaries.check(
            terms.read, as_levels=as_levels, event=request.task.coded_event
        )
        async with self._judging:
            if request.digest != self._judged:
                await asyncio.to_thread(check_request, request, consortium, now=now)
                self._judged = request.digest
        check_affordable(request, consortium, own.committed)

    async def take(self, job: str, encoded: bytes) -> int:
        """Take what a data holder signed of where it stands with a job: 201, or 200 if known.

        Who left before the population is fixed is not in it, and cannot join again. Crowd jobs are
        neither joined nor left.

        Raises:
            UnknownJob
            MalformedDocument, UnknownManifest, WrongSigner, BadSignature, WrongManifest
            UnknownHolder, RevokedHolder
            HolderLeft
            WrongPhase: it is too late, or the job has no room.
            BudgetExceeded: no slot has budget left by this ledger, which is public.
            StorageUnavailable: nothing was stored.
        """
        own = self._resources
        signed = await own.read(encoded, Membership)
        request, is_open = await own.storage.run(memberships.request_of, job)
        state = signed.body.state
        if signed.body.job != job:
            raise MalformedDocument("it names another job than the address that it was sent to")
        own.book.get(request.manifest).verify_in_force(signed, own.book.current)
        async with self._admission:
            before, slots = await own.storage.run(memberships.find, job, signed.body.holder)
            if before is not None and STATES.index(before) >= STATES.index(state):
                if (before, state) == (LEFT, JOINED):
                    raise HolderLeft
                return 200
            if state not in (JOINED, LEFT):
                if not is_open:
                    raise WrongPhase("the time to decide about the job is over")
                await own.storage.run(memberships.keep, signed)
            elif not isinstance(request, StudyRequest):
                raise UnknownJob
            elif state == JOINED:
                await self._admit(request, signed)
            else:
                await self._let_go(request, signed, slots)
        return 201

    async def _admit(self, request: StudyRequest, signed: Signed[Membership]) -> None:
        """Store a join, with its slots' budgets reserved."""
        own, job = self._resources, request.digest
        record = await own.storage.run(store.find_job, job)
        await self._recount(record)
        slots = own.book.current.roster.slots_of(signed.body.holder)
        cost, cap = request.privacy.cost, own.book.current.manifest.policy.cap
        able = own.committed.affording(slots, cost, cap)
        room = request.maximum_population - record.joined
        if record.phase is not JobPhase.JOINING or own.clock() >= request.join_deadline:
            raise WrongPhase("the job takes no more joins")
        if len(able) > room:
            raise WrongPhase("all slots of a data holder join, and fewer are free in the job")
        if not able:
            raise BudgetExceeded("the job would exceed the privacy budget of every slot")
        self._in_doubt.add(job)
        own.reserve(job, own.reserved[job] | able, cost)
        await own.storage.run(memberships.keep, signed, able, more=len(able))
        self._in_doubt.remove(job)
        if len(able) == room:
            own.wake.set()

    async def _let_go(
        self, request: StudyRequest, signed: Signed[Membership], slots: BitMap
    ) -> None:
        """Store a leave, and only then count no more the `slots` that had joined."""
        own, job = self._resources, request.digest
        record = await own.storage.run(store.find_job, job)
        await self._recount(record)
        if record.phase not in (JobPhase.JOINING, JobPhase.RUNNING):
            raise WrongPhase("the job has ended")
        is_joining = record.phase is JobPhase.JOINING
        self._in_doubt.add(job)
        await own.storage.run(memberships.keep, signed, more=-len(slots) if is_joining else 0)
        self._in_doubt.remove(job)
        if is_joining:
            own.reserve(job, own.reserved[job] - slots, request.privacy.cost)
        log.info("a data holder left", job=job)
        own.changes.tell(job)

    async def withdraw(self, job: str, encoded: bytes) -> bool:
        """End a job because its analyst signed so; tell whether this call ended it.

        The charges of its rounds stay; the rest of clients' budgets is freed.

        Raises:
            UnknownJob
            MalformedDocument, UnknownSigner, WrongSigner, BadSignature, WrongManifest
            WrongPhase: it has ended otherwise.
        """
        own = self._resources
        signed = await own.read(encoded, JobWithdrawal)
        record = await own.storage.run(store.find_job, job)
        request = await asyncio.to_thread(lambda: record.study)
        check_ending(signed, request, own.book.get(request.manifest))
        async with self._admission:
            record = await own.storage.run(store.find_job, job)
            await self._recount(record)  # so that what is reserved is known, and freed
            if record.phase is JobPhase.WITHDRAWN:
                return False
            if record.phase in (JobPhase.FINISHED, JobPhase.FAILED):
                raise WrongPhase(f"the job has {record.phase}: what it released and cost stays")
            spent = await own.journal.run(store.end_job, job, JobEvent.WITHDRAWN)
            own.end_job(job, "withdrawn", request.privacy.cost, spent)
        return True

    async def _recount(self, record: JobRecord) -> None:
        """Reserve what a job that takes joins may cost those on file, where that is in doubt.

        Raises:
            StorageUnavailable
        """
        own, job = self._resources, record.job
        if record.phase is JobPhase.JOINING and (job in self._in_doubt or job not in own.reserved):
            joined = await own.storage.run(memberships.joined_slots, job)
            own.reserve(job, _together(joined), record.study.privacy.cost)
            self._in_doubt.discard(job)

    async def close_due(self) -> Sequence[JobRecord]:
        """Fix the population of every job that is full or past its deadline, or fail it.

        Return the jobs that run. Of a job that is over on file, free what it reserved: the answer
        to the transaction that ended it may have been lost.
        """
        own, run = self._resources, self._resources.storage.run
        for record in await run(store.jobs_in, JobPhase.JOINING):
            request = record.study
            is_over = own.clock() >= request.join_deadline
            if is_over or record.joined >= request.maximum_population:
                async with self._admission:
                    await self._fix_population(request)
        going = await run(store.jobs_in, JobPhase.JOINING, JobPhase.RUNNING)
        for job in own.reserved.keys() - {each.job for each in going}:
            record = await run(store.find_job, job)
            if record.phase in (JobPhase.FINISHED, JobPhase.FAILED, JobPhase.WITHDRAWN):
                spent = await run(store.kept_charges, job)
                own.end_job(job, record.phase.value, record.study.privacy.cost, spent)
        return [each for each in going if each.phase is JobPhase.RUNNING]

    async def _fix_population(self, request: StudyRequest) -> None:
        own, job = self._resources, request.digest
        record = await own.storage.run(store.find_job, job)
        if record.phase is not JobPhase.JOINING:
            return  # it was withdrawn while others were decided on
        joined = await own.storage.run(memberships.joined_slots, job)
        own.reserve(job, _together(joined), request.privacy.cost)
        self._in_doubt.discard(job)
        population = _together(joined) & own.book.current.roster.enrolled_set  # less those revoked
        allowed = request.privacy.cost
        if len(population) < request.minimum_population:
            why = await self._why_not_joined(request, joined)
            reason = (
                f"{len(population)} clients joined, {request.minimum_population} are needed: {why}"
            )
            event = JobEvent.POPULATION_TOO_SMALL
            spent = await own.journal.run(store.end_job, job, event, reason)
            own.end_job(job, "failed", allowed, spent, reason=event.value)
        else:
            await own.storage.run(
                store.move_job,
                job,
                JobEvent.POPULATION_FIXED,
                population=encode_clients(population),
            )
            own.reserve(job, population, allowed)
            log.info("population fixed", job=job, size=len(population))
            own.changes.tell(job)

    async def _why_not_joined(self, request: StudyRequest, joined: Mapping[int, BitMap]) -> str:
        """Say why data holders in force did not join a job, as far as they or the ledger tell.

        Who did not say why, and has more slots than were free in the job, lacked room.
        """
        own, job = self._resources, request.digest
        roster = own.book.current.roster
        record = await own.storage.run(store.find_job, job)
        since = max(record.submitted_at, self._began_at)
        away = f"not heard of since {since:%Y-%m-%d %H:%M:%S} UTC: {AWAY}"
        asked = AskedHolders.of(roster.enrolled_set, roster).holders
        reasons = {
            holder: UNEXPLAINED if own.heard.get(holder, _NEVER) >= since else away
            for holder in asked - BitMap(joined)
        }
        able = own.committed.affording(
            roster.enrolled_set, request.privacy.cost, own.book.current.manifest.policy.cap
        )
        unable = asked - AskedHolders.of(able, roster).holders
        members = len(_together(joined))
        crowded = {
            holder: slots
            for holder, why in reasons.items()
            if why == UNEXPLAINED
            and len(slots := roster.slots_of(holder) & able) + members > request.maximum_population
        }
        no_room = NO_ROOM.format(members + len(_together(crowded)))
        told: dict[int, str] = dict.fromkeys(crowded, no_room)
        told |= dict.fromkeys(unable, WITHOUT_BUDGET)
        told |= await self._declarations.refusals(request)
        told |= {
            holder: NOTICED[state]
            for holder, state in (await own.storage.run(memberships.states, job)).items()
            if state in NOTICED
        }
        reasons |= {holder: why for holder, why in told.items() if holder in reasons}
        return in_words(reasons, roster) or "no other data holder is enrolled"


def _together(slots: Mapping[int, BitMap]) -> BitMap:
    return BitMap.union(BitMap(), *slots.values())

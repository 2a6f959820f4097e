"""Finds jobs, decides about each and sends the clients' signed joins; it answers no round."""

import re
from collections.abc import Sequence
from typing import Any, Final

from nacl.signing import SigningKey

from shoal_client.admission import check_request
from shoal_client.background import Background
from shoal_client.directory import Directory
from shoal_client.peer import ACCEPTED, ACKNOWLEDGED, OK, Answer, Peer, outcomes
from shoal_client.reporting import Report
from shoal_client.site import Site
from shoal_client.state import State
from shoal_hosting.exchange import Unavailable
from shoal_hosting.installed_models import refusal
from shoal_protocol.accounting import NOTHING, Cap, Cost, compose
from shoal_protocol.documents import Role, Signed, decode, sign
from shoal_protocol.errors import MalformedDocument, ProtocolError, RefusedJob, UnknownManifest
from shoal_protocol.jobs import JobRequest
from shoal_protocol.membership import Join

MOST_JOINS: Final = 500  # in one request
_JOB: Final = re.compile(r"[0-9a-f]{64}")


class Enrolment:
    """Decides once about each job that the trainer lists, and sees the joins through."""

    def __init__(
        self, site: Site, background: Background, directory: Directory, report: Report, bulk: bool
    ) -> None:
        self._site = site
        self._background = background
        self._directory = directory
        self._report = report
        self._bulk = bulk
        self._known: set[str] = set()
        self.refused: dict[str, str] = {}
        """Why jobs that the trainer lists are not joined; asked anew after a restart."""

    async def look_for_jobs(self) -> None:
        """Consider each job that is enrolling and was not considered yet."""
        trainer = self._directory.trainer
        try:
            listed = _listed_jobs(await trainer.get("/v1/jobs", phase="enrolling"))
            self.refused = {job: why for job, why in self.refused.items() if job in listed}
            for job in listed:
                if job not in self.refused and not await self._is_known(job):
                    await self._consider(trainer, job)
        except (Unavailable, MalformedDocument) as error:
            self._report("no list of jobs", reason=str(error))

    async def _is_known(self, job: str) -> bool:
        if job not in self._known and await self._background.disk(State.job_is_known, job):
            self._known.add(job)
        return job in self._known

    async def _consider(self, trainer: Peer, job: str) -> None:
        answer = await trainer.get(f"/v1/jobs/{job}/request")
        if answer.status != OK:
            return  # it may be gone since it was listed
        try:
            signed = decode(answer.body, JobRequest)
            await follow_to(signed.body.manifest, self._site, self._directory)
            await self._join(signed, job)
        except ProtocolError as error:
            self.refused[job] = str(error)
            self._report("job refused", job=job, reason=str(error))

    async def _join(self, signed: Signed[JobRequest], job: str) -> None:
        site, request = self._site, signed.body
        check_request(
            signed,
            job=job,
            consortium=site.book.current,
            policy=site.policy,
            columns=site.records.columns,
            now=site.clock(),
        )
        if reason := await self._background.work(refusal, request.task):
            raise RefusedJob(reason)
        committed = await self._background.disk(State.committed)
        cost, positions = request.privacy.cost, sorted(site.positions().items())
        # of records nothing is asked: who joins is told to everybody, and paid for by nobody
        joining = [
            (client, site.keys[here])
            for client, here in positions
            if site.policy.cap.allows(compose([committed.get(client, NOTHING), cost]))
        ]
        if not joining:
            raise RefusedJob(
                f"no client here can join: {len(positions)} of {len(site.keys)} keys are enrolled, "
                f"and none of these has budget left for {request.privacy.cap}"
            )
        joins = await self._background.work(sign_joins, request.manifest, job, joining)
        joined = await self._background.disk(
            store_joins,
            job,
            signed.encode(),
            cost=cost,
            cap=site.policy.cap,
            joins=joins,
        )
        if not joined:
            raise RefusedJob("no client here can join: their budgets went to crowd jobs meanwhile")
        self._report("job joined", job=job, joining=joined)

    async def send_joins(self) -> None:
        """Send the joins that nobody has answered, the same bytes as before."""
        for open_job in await self._background.disk(State.open_jobs):
            pending = await self._background.disk(State.pending_joins, open_job.job)
            size = MOST_JOINS if self._bulk else 1
            for start in range(0, len(pending), size):
                try:
                    await self._send(open_job.job, pending[start : start + size])
                except (Unavailable, MalformedDocument) as error:
                    self._report("joins not sent", job=open_job.job, reason=str(error))
                    break

    async def _send(self, job: str, joins: Sequence[tuple[int, bytes]]) -> None:
        documents = [document for _, document in joins]
        found = await hand_in(self._directory.trainer, f"/v1/jobs/{job}/joins", documents)
        settled = [
            (client, outcome)
            for (client, _), outcome in zip(joins, found, strict=True)
            if outcome is not None
        ]
        await self._background.disk(State.settle_joins, job, settled)
        taken = sum(outcome == ACKNOWLEDGED for _, outcome in settled)
        self._report("joins settled", job=job, taken=taken, not_taken=len(settled) - taken)


async def hand_in(trainer: Peer, path: str, documents: Sequence[bytes]) -> list[str | None]:
    """Send signed documents, and return what became of each, as `outcomes`.

    Raises:
        Unavailable, MalformedDocument: it is not known.
    """
    if len(documents) == 1:
        return [(await trainer.post(path, documents[0], "application/json")).outcome]
    # canonical documents in a canonical list are canonical
    body = b'{"documents":[' + b",".join(documents) + b"]}"
    return outcomes(await trainer.post(path, body, "application/json"), len(documents))


def store_joins(
    state: State,
    job: str,
    request: bytes,
    *,
    cost: Cost,
    cap: Cap,
    joins: Sequence[tuple[int, bytes]],
) -> int:
    """Store a job with (client, signed join) of those for whom it still fits under `cap`.

    While joins are signed, contributions to crowds are charged. Who has too little left by now
    does not join. Return how many join; if nobody does, nothing is stored.
    """
    committed = state.committed()
    solvent = [
        (client, document)
        for client, document in joins
        if cap.allows(compose([committed.get(client, NOTHING), cost]))
    ]
    if solvent:
        state.add_job(job, request, cost=cost, joins=solvent)
    return len(solvent)


async def follow_to(manifest: str, site: Site, directory: Directory) -> None:
    """See to it that a manifest version which was never seen here is asked for.

    Raises:
        Unavailable: the trainer did not answer.
        ProtocolError: there is no such version along our chain.
    """
    try:
        site.book.get(manifest)
    except UnknownManifest:
        await directory.catch_up()
        site.book.get(manifest)


def sign_joins(
    manifest: str, job: str, clients: Sequence[tuple[int, SigningKey]]
) -> list[tuple[int, bytes]]:
    """Return (client, signed join in its wire form) for each (client, key)."""
    return [
        (client, sign(Join(manifest=manifest, job=job, client=client), Role.CLIENT, key).encode())
        for client, key in clients
    ]


def _listed_jobs(answer: Answer) -> list[str]:
    body: Any = answer.json() if answer.status in (OK, ACCEPTED) else {"jobs": []}
    try:
        jobs = [each["job"] for each in body["jobs"]]
    except (KeyError, TypeError):
        raise MalformedDocument("the list of jobs is not one") from None
    if not all(isinstance(job, str) and _JOB.fullmatch(job) for job in jobs):
        raise MalformedDocument("a job is named by a digest")
    return jobs

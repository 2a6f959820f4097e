"""The data owner's pages, and the forms by which jobs are approved, refused and left.

They show what the agent tells its owner and nothing else, so nothing is kept here. A decision is
signed here: neither the agent nor anybody else sees the owner's key. No page names a slot.
"""

import asyncio
from functools import partial
from typing import Any, Final, get_args

from fastapi import FastAPI, Request
from nacl.signing import SigningKey
from starlette.responses import Response

from shoal_agent.client_files import DIGEST
from shoal_agent.console import sentences
from shoal_agent.console.own_agent import request_of, signed_decision
from shoal_agent.status import AgentPage, ApprovalsView, HolderStatus, JobView
from shoal_holder.policy import Policy
from shoal_holder.status import JobStatus
from shoal_kit.clock import Clock
from shoal_kit.pages.console import START, Console, Form, application, go
from shoal_kit.peers.service_calls import Endpoint, Refused
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.jobs.membership import WAITS, Decision
from shoal_protocol.wire.errors import ProtocolError, UnknownJob

JOBS, LEDGER, RULES = (f"{START}/{each}" for each in ("jobs", "ledger", "policy"))
JOB: Final = f"{JOBS}/{{job}}"
NEWEST_JOBS: Final = 25
ROWS: Final = 50  # of rounds on one page


def console_of(
    agent: Endpoint, *, token: str, clock: Clock, owner_key: SigningKey | None = None
) -> FastAPI:
    """Return the console of the owner of an agent; whoever has the `token` may sign in.

    It decides about jobs by `owner_key`, which no other process sees; without one it only shows.
    """
    pages = _Pages(agent, token=token, clock=clock, owner_key=owner_key)
    return application("Data owner's console", pages.console, token=token)


class _Pages:
    def __init__(
        self, agent: Endpoint, *, token: str, clock: Clock, owner_key: SigningKey | None
    ) -> None:
        self._agent, self._clock, self._key = agent, clock, owner_key
        self.console = Console(
            title="Shoal, data owner",
            sections={
                START: "Asks",
                JOBS: "Jobs",
                LEDGER: "Ledger",
                RULES: "Policy",
            },
            token=token,
            token_file="what “shoal agent console” printed at its start",
            package=__package__,
            clock=clock,
            is_encrypted=False,  # it never leaves the machine
        )
        pages = {
            START: self.asks,
            JOBS: self.jobs,
            JOB: self.job,
            LEDGER: self.ledger,
            RULES: self.rules,
        }
        decisions = {f"{JOB}/{each}": partial(self.decide, each) for each in get_args(Decision)}
        self.console.serve("The agent", pages, {}, {f"{JOB}/leave": self.leave, **decisions})

    async def _status(self) -> HolderStatus:
        return await self._agent.answer(HolderStatus, "/v1/status")

    async def _policy(self) -> Policy:
        return await self._agent.answer(Policy, "/v1/policy")

    async def _approvals(self, **only: Any) -> ApprovalsView:
        return await self._agent.answer(ApprovalsView, "/v1/approvals", **only)

    async def _job(self, job: str) -> JobView:
        return await self._agent.answer(JobView, f"/v1/jobs/{job}")

    def _show(self, request: Request, template: str, **values: Any) -> Response:
        now = self._clock()
        return self.console.shown(request, template, words=sentences, now=now, **values)

    async def asks(self, request: Request) -> Response:
        """Show what needs the owner: jobs that wait for a decision first."""
        status, shown = await self._status(), await self._approvals()
        refused = list(status.refused.items())[: -NEWEST_JOBS - 1 : -1]  # each is asked for
        return self._show(
            request,
            "asks.html",
            waiting=[(each, request_of(each)) for each in shown.jobs if each.stage == WAITS],
            decided=[(each, request_of(each)) for each in shown.jobs if each.stage != WAITS][
                :NEWEST_JOBS
            ],
            troubles=[*filter(None, [shown.missing]), *sentences.troubles(status)],
            approval=shown.approval,
            refused=[(job, reason, await self._known(job)) for job, reason in refused],
            older=len(status.refused) - len(refused),
            refused_crowds=status.refused_crowds,
        )

    async def job(self, request: Request) -> Response:
        """Show one job: what it asks, what was decided, and how each of its rounds was answered."""
        job, status = _job_of(request), await self._status()
        shown = await self._approvals(job=job)
        asking = next((each for each in shown.jobs if each.job == job), None)
        joined = next((each for each in status.jobs if each.job == job), None)
        if asking is None and joined is None and job not in status.refused:
            raise UnknownJob("no job with this id asks your agent")
        view = asking or await self._job(job)
        asked = request_of(view)
        left = cannot = owner = None
        if asking is not None and asking.stage == WAITS:
            left = sentences.left_after(asked, shown.left, (await self._policy()).cap)
            try:
                _, owner = self._owner_in(shown)
            except Refused as error:
                cannot = f"{error}."
        facts = sentences.asked(asked, view.parties, now=self._clock(), left=left)
        if asking is not None:
            facts["Who decides"] = sentences.decisions(asking)
        if joined is not None:
            facts["Records here"] = f"{joined.slots:,} slots take part"
        return self._show(
            request,
            "job.html",
            asking=asking,
            job=joined,
            asked=asked,
            facts=facts | {"Job": job},
            reason=status.refused.get(job),
            cannot=cannot,
            owner=owner,
            rounds=() if joined is None else joined.rounds[: -ROWS - 1 : -1],
        )

    async def decide(self, decision: Decision, request: Request, _: Form) -> Response:
        """Sign the owner's decision here, and hand it to the agent; the same twice is one."""
        shown = await self._approvals(job=_job_of(request))
        (key, owner), asking = self._owner_in(shown), shown.asking(_job_of(request))
        if (owner, decision) not in [(each.owner, each.decision) for each in asking.decisions]:
            signed = signed_decision(shown, asking.job, decision, key=key, now=self._clock())
            await self._agent.answer(dict, "/v1/approvals", method="POST", content=signed)
        return go(f"{JOBS}/{asking.job}")

    def _owner_in(self, shown: ApprovalsView) -> tuple[SigningKey, str]:
        """Return the owner's key, and the name under which the policy lists it.

        Raises:
            Refused: there is no key here, or it is not listed.
        """
        if self._key is None:
            raise Refused("This console only shows: `--owner KEYFILE` decides")
        try:
            return self._key, shown.owner_of(self._key)
        except ValueError as error:
            raise Refused(str(error)) from error

    async def jobs(self, request: Request) -> Response:
        """Show the newest jobs that were joined, and crowd jobs."""
        status = await self._status()
        newest = status.jobs[: -NEWEST_JOBS - 1 : -1]
        views = await asyncio.gather(*(self._job(each.job) for each in newest))
        return self._show(
            request,
            "jobs.html",
            jobs=[
                (each, _in_rounds(view), *_counts(each))
                for each, view in zip(newest, views, strict=True)
            ],
            crowds=status.crowds,
            older=len(status.jobs) - len(newest),
        )

    async def leave(self, request: Request, _: Form) -> Response:
        """Leave a job for good; the agent refuses if it was not joined."""
        job = _job_of(request)
        await self._agent.answer(dict, f"/v1/jobs/{job}/leave", method="POST")
        return go(f"{JOBS}/{job}")

    async def ledger(self, request: Request) -> Response:
        """Show what was spent, what is left, and what open jobs reserve."""
        return self._show(
            request,
            "ledger.html",
            page=await self._agent.answer(AgentPage, "/v1/ledger"),
            cap=(await self._policy()).cap,
        )

    async def rules(self, request: Request) -> Response:
        """Show what the owner allows, and how the agent stands."""
        status, policy = await self._status(), await self._policy()
        return self._show(
            request,
            "policy.html",
            policy=policy,
            rules=sentences.rules(policy),
            health=sentences.health(status),
            troubles=sentences.troubles(status),
        )

    async def _known(self, job: str) -> JobRequest | None:
        """Return the request of an open job, None if there is none with its digest."""
        try:
            return _in_rounds(await self._job(job))
        except (Refused, ProtocolError):
            return None


def _in_rounds(view: JobView) -> JobRequest:
    """Return the request of a job in rounds."""
    request = request_of(view)
    if isinstance(request, JobRequest):
        return request
    raise UnknownJob("it is a crowd’s")


def _job_of(request: Request) -> str:
    job = str(request.path_params["job"])
    if not DIGEST.fullmatch(job):
        raise UnknownJob("no job with this id asks your agent")
    return job


def _counts(job: JobStatus) -> tuple[int, int, int]:
    """Return how many rounds were answered, and how many envelopes were taken and still wait."""
    envelopes = [each.envelopes for each in job.rounds]
    taken, waiting = (
        sum(each.get(outcome, 0) for each in envelopes) for outcome in ("acknowledged", "pending")
    )
    return sum(bool(each.answered_at) for each in job.rounds), taken, waiting

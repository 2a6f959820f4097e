"""Asks a data holder's agent what its owner may ask, and says what to do where it does not tell."""

from http import HTTPStatus
from typing import Final, TypeVar

import httpx
import pydantic

from shoal_agent.deciding import ApprovalsView
from shoal_agent.deciding import request_of as checked_request
from shoal_agent.job_view import JobView
from shoal_agent.ledger_pages import AgentPage, ChargedJobs
from shoal_agent.status import HolderStatus
from shoal_holder.policy import Policy
from shoal_hosting.peers.exchange import Reply, Unavailable
from shoal_hosting.peers.service_calls import Endpoint, call
from shoal_protocol.crowds.draws import CrowdJobRequest
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError

OTHER_VERSION: Final = "Run the console in the agent's own version of Shoal."

Shape = TypeVar("Shape")


class Trouble(Exception):
    """The agent did not do what was asked; it says why and what to do, for the owner to read."""

    def __init__(self, status: HTTPStatus, heading: str, message: str) -> None:
        super().__init__(message)
        self.status, self.heading = status, heading


class OwnAgent:
    """The agent at an endpoint, with its owner's token. Whatever is asked may raise `Trouble`."""

    def __init__(
        self, endpoint: Endpoint, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """Ask over `transport` in place of the network, where it is given."""
        self._endpoint, self._transport = endpoint, transport
        self._jobs: dict[str, JobView] = {}  # which do not change

    async def status(self) -> HolderStatus:
        """Return what was done so far."""
        return await self.ask(HolderStatus, "/v1/status")

    async def policy(self) -> Policy:
        """Return what the owner allows."""
        return await self.ask(Policy, "/v1/policy")

    async def ledger(self) -> AgentPage:
        """Return what was spent in all, and one client's charge."""
        return await self.ask(AgentPage, "/v1/ledger", count=1)

    async def charges(self, *, before: int, count: int) -> ChargedJobs:
        """Return a part of what each job in rounds charged, newest first."""
        return await self.ask(ChargedJobs, "/v1/ledger/jobs", before=before, count=count)

    async def job(self, job: str) -> JobView:
        """Return a job that was joined."""
        if job not in self._jobs:
            found = await self.ask(JobView, f"/v1/jobs/{job}")
            self._jobs[job] = found
        return self._jobs[job]

    async def approvals(self, job: str | None = None) -> ApprovalsView:
        """Return the first jobs that asked the owners, or only this one, and what was decided."""
        if job is None:
            return await self.ask(ApprovalsView, "/v1/approvals")
        return await self.ask(ApprovalsView, "/v1/approvals", job=job)

    async def decide(self, approval: bytes) -> None:
        """Hand over an owner's signed decision."""
        await self.ask(dict, "/v1/approvals", method="POST", content=approval)

    async def leave(self, job: str) -> None:
        """Leave a job for good."""
        await self.ask(dict, f"/v1/jobs/{job}/leave", method="POST")

    async def ask(
        self,
        shape: type[Shape],
        path: str,
        *,
        method: str = "GET",
        content: bytes | None = None,
        **query: str | int,
    ) -> Shape:
        """Return the agent's answer, which must have the shape of a type."""
        try:
            reply = await call(
                self._endpoint, method, path, query, content=content, transport=self._transport
            )
        except Unavailable as error:
            raise Trouble(
                HTTPStatus.BAD_GATEWAY,
                "The agent does not answer",
                f"{self._endpoint.url}: {error}. See that it runs (`shoal agent run`), that --url "
                "names its host and port, and that --agent has its tls.crt.",
            ) from error
        _refuse(reply)
        try:
            return pydantic.TypeAdapter(shape).validate_json(reply.body)
        except pydantic.ValidationError as error:
            raise Trouble(
                HTTPStatus.BAD_GATEWAY,
                "The agent answers something else",
                f"{describe(error)}. {OTHER_VERSION}",
            ) from None


def request_of(view: JobView) -> JobRequest | CrowdJobRequest:
    """Return a job's request, whatever the agent shows: its digest is the job's id.

    Raises:
        Trouble: it is another job's, or none.
    """
    heading = "The agent does not show the job"
    try:
        return checked_request(view)
    except ValueError as error:
        raise Trouble(HTTPStatus.BAD_GATEWAY, heading, f"{error}.") from None
    except ProtocolError as error:
        raise Trouble(HTTPStatus.BAD_GATEWAY, heading, f"{error}. {OTHER_VERSION}") from None


def _refuse(reply: Reply) -> None:
    """Raise `Trouble` if the reply is a problem."""
    if reply.status < HTTPStatus.BAD_REQUEST:
        return
    if reply.status == HTTPStatus.UNAUTHORIZED:
        raise Trouble(
            HTTPStatus.FORBIDDEN,
            "The agent does not know this token",
            "Have --data name the agent's data directory, or a directory with a copy of its "
            "owner.token, and start the console anew.",
        )
    try:
        told = reply.json()
        said = f"{told['detail']}. {told['remedy']}"
    except (MalformedDocument, KeyError, TypeError):
        said = f"The agent answered with status {reply.status}. {OTHER_VERSION}"
    raise Trouble(HTTPStatus.CONFLICT, "The agent refuses", said)

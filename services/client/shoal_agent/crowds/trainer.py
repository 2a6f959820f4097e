"""A client of the trainer's crowd routes: asks, and verifies signed answers. It is stateless."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from shoal_holder.crowds.crowd import Crowd, LogPage, checked_closing
from shoal_holder.letters import listed_jobs
from shoal_kit.outcome import ACCEPTED, CREATED, OK
from shoal_kit.peers.exchange import JSON, Reply
from shoal_kit.peers.peer import Peer, outcomes
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    InstanceChain,
    check_opening,
)
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import MalformedDocument, UnknownJob

MOST_AT_ONCE: Final = 256  # draws or submissions in one request


class CrowdRefused(Exception):
    """The trainer refuses a request; the message holds the refusal's code and detail."""

    def __init__(self, answer: Reply) -> None:
        super().__init__(answer.reason)
        self.code = answer.code


class CrowdTrainer:
    """The trainer, asked about crowd jobs. Every method raises `Unavailable` as `Peer` does."""

    def __init__(self, peer: Callable[[], Peer]) -> None:
        """Ask the peer that `peer` returns: connections may be closed and opened again."""
        self._peer = peer

    async def open_jobs(self, query: bytes) -> list[str]:
        """Return the ids of the crowd jobs that are open, to who signed `query`.

        Raises:
            CrowdRefused: the trainer does not take the query.
            MalformedDocument: the answer is no list of jobs.
        """
        answer = await self._peer().post("/v1/crowds/list", query, JSON)
        _value(answer)
        return listed_jobs(answer.body, "crowds")

    async def request(self, job: str) -> Signed[CrowdJobRequest]:
        """Return a job's request, whose signature is the caller's to check.

        Raises:
            CrowdRefused: the trainer does not know the job.
            ProtocolError: it shows another one.
        """
        signed = decode(await self._document(f"/v1/crowds/{job}/request"), CrowdJobRequest)
        if signed.digest != job:
            raise UnknownJob("the request is of another job")
        return signed

    async def opening(self, job: str) -> Signed[CrowdOpening]:
        """Return a job's opening, which is the caller's to check.

        Raises:
            CrowdRefused, ProtocolError: as `request`.
        """
        return decode(await self._document(f"/v1/crowds/{job}/opening"), CrowdOpening)

    async def crowd(self, job: str, consortium: Consortium) -> Crowd:
        """Return a job whose request and opening were signed under `consortium`.

        Raises:
            CrowdRefused, ProtocolError: as `request`.
        """
        request, opening = await self.request(job), await self.opening(job)
        consortium.verify(request)
        consortium.verify(opening)
        check_opening(opening.body, request.body)
        return Crowd(request.body, opening.body, consortium)

    async def draw_documents(self, job: str, nonces: Sequence[str]) -> list[bytes]:
        """Return the draws of up to `MOST_AT_ONCE` nonces, in order, as they were sent.

        Their signatures are not checked. A busy trainer answers the first of them, at least one.

        Raises:
            CrowdRefused: there is nothing to draw: the job is closed.
            MalformedDocument: the answer holds no draws.
        """
        asked = canonical_json({"nonces": list(nonces)})
        answer = await self._peer().post(f"/v1/crowds/{job}/draws", asked, JSON)
        value = _value(answer)
        documents = value.get("documents") if isinstance(value, dict) else None
        if not isinstance(documents, list) or not 0 < len(documents) <= len(nonces):
            raise MalformedDocument("there must be draws, at most one for each nonce")
        return [_document_of(each) for each in documents]

    async def submit_documents(
        self, job: str, documents: Sequence[bytes]
    ) -> list[tuple[str, bytes] | None]:
        """Hand in up to `MOST_AT_ONCE` submissions; return outcomes and receipts as they came.

        None where the same submission may be sent again later.

        Raises:
            MalformedDocument: the answer does not say what became of each.
        """
        # canonical documents in a canonical list are canonical
        body = b'{"documents":[' + b",".join(documents) + b"]}"
        answer = await self._peer().post(f"/v1/crowds/{job}/submissions", body, JSON)
        if answer.is_refusal:
            return [(answer.code, b"") for _ in documents]
        found = outcomes(answer, len(documents))
        listed = answer.json()["outcomes"]
        return [
            None if outcome is None else (outcome, _document_of(told.get("receipt")))
            for outcome, told in zip(found, listed, strict=True)
        ]

    async def closing(self, crowd: Crowd, *, wait_seconds: int = 0) -> Signed[CrowdClosing] | None:
        """Return a job's closing, signed by the trainer; None while the job is open.

        Whether it follows from the opening is the caller's to check: `check_closing`.

        Raises:
            CrowdRefused: the trainer does not know the job.
            ProtocolError: it is another job's, or not signed by the trainer under its manifest.
        """
        document = await self.closing_document(crowd.job, wait_seconds=wait_seconds)
        return None if document is None else checked_closing(crowd, document)

    async def closing_document(self, job: str, *, wait_seconds: int = 0) -> bytes | None:
        """Return a job's closing as it was sent, None while the job is open.

        Raises:
            CrowdRefused: the trainer does not know the job.
        """
        answer = await self._peer().get(f"/v1/crowds/{job}/closing", wait=wait_seconds)
        if answer.status == ACCEPTED:
            return None
        if answer.status != OK:
            raise CrowdRefused(answer)
        return answer.body

    async def log(self, job: str, instance: int, *, after: int) -> bytes:
        """Return a part of an instance's log that follows revision `after`, as it was sent.

        Raises:
            CrowdRefused: the trainer does not know it.
        """
        return await self._document(f"/v1/crowds/{job}/log/{instance}", after=after)

    async def follow_log(self, crowd: Crowd, closing: CrowdClosing, instance: int) -> None:
        """Follow an instance's whole log from the opening to the closing.

        Raises:
            MalformedDocument: it is no unbroken chain between them, or not as the seed says.
            CrowdRefused: the trainer does not show it.
        """
        chain = InstanceChain(closing, crowd.request.task, instance)
        while chain.revision < closing.heads[instance].revision:
            page = LogPage.read(await self.log(crowd.job, instance, after=chain.revision))
            if not page.entries:
                raise MalformedDocument(f"the log of instance {instance} ends too early")
            chain.follow(page.entries)
        chain.end()

    async def _document(self, path: str, **parameters: int) -> bytes:
        answer = await self._peer().get(path, **parameters)
        if answer.status != OK:
            raise CrowdRefused(answer)
        return answer.body


def _value(answer: Reply) -> Any:
    if answer.status not in (OK, CREATED):
        raise CrowdRefused(answer)
    return answer.json()


def _document_of(value: Any) -> bytes:
    """Return the canonical bytes of a document given as JSON value; empty if it has none."""
    try:
        return b"" if value is None else canonical_json(value)
    except ValueError:
        return b""

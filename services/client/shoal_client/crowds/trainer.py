"""The trainer's crowd jobs as seen from here: asks, and believes only what is signed as it should.

It keeps nothing and decides about no job.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pydantic

from shoal_client.crowds.crowd import Crowd, verified
from shoal_client.peer import ACCEPTED, ACKNOWLEDGED, CREATED, NOT_FOUND, OK, Answer, outcomes
from shoal_protocol.documents import Signed, decode, describe, from_json
from shoal_protocol.draw_and_discard.documents import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    LogEntry,
    Submission,
    SubmissionReceipt,
    weights_digest,
)
from shoal_protocol.draw_and_discard.draws import check_beginning, check_opening
from shoal_protocol.encoding import canonical_json
from shoal_protocol.errors import MalformedDocument, ProtocolError, UnknownJob
from shoal_protocol.manifest import Consortium

MOST_AT_ONCE: Final = 256  # draws or submissions in one request
WRONG_RECEIPT: Final = "wrong-receipt"
_JSON: Final = "application/json"
_JOB: Final = re.compile(r"[0-9a-f]{64}")


class CrowdRefused(Exception):
    """The trainer refuses what was asked; the message holds the refusal's code and detail."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.reason)
        self.code = answer.code


@dataclass(frozen=True)
class Sent:
    """A submission that is under way: its bytes, and the nonce and weights that a receipt names."""

    document: bytes
    nonce: str
    weights: str  # `weights_digest`

    @classmethod
    def of(cls, submission: Signed[Submission]) -> "Sent":
        """Return a submission as it is sent."""
        body = submission.body
        return cls(submission.encode(), body.draw.body.nonce, weights_digest(body.weights))


@dataclass(frozen=True)
class Outcome:
    """What became of a submission: "acknowledged" with the receipt, or the code of a refusal."""

    outcome: str
    receipt: bytes | None = None


class Asked(Protocol):
    """What is asked of a connection to the trainer: as `Peer` answers, and raises."""

    async def get(self, path: str, **parameters: str | int) -> Answer:
        """Ask."""

    async def post(self, path: str, content: bytes, media_type: str) -> Answer:
        """Send."""


class LogPage(pydantic.BaseModel):
    """A part of an instance's log."""

    entries: list[LogEntry]
    next: int | None


class CrowdTrainer:
    """The trainer, asked about crowd jobs. Every method raises `Unavailable` as `Peer` does."""

    def __init__(self, peer: Callable[[], Asked]) -> None:
        """Ask what `peer` returns: connections may be closed and opened again."""
        self._peer = peer

    async def open_jobs(self) -> list[str]:
        """Return the ids of the crowd jobs that are open.

        Raises:
            MalformedDocument: the answer is no list of jobs.
        """
        answer = await self._peer().get("/v1/crowds", phase="open")
        if answer.status == NOT_FOUND:  # a trainer that serves no crowd jobs
            return []
        value = _value(answer)
        try:
            jobs = [each["job"] for each in value["crowds"]]
        except (KeyError, TypeError):
            raise MalformedDocument("the list of crowd jobs is not one") from None
        if not all(isinstance(job, str) and _JOB.fullmatch(job) for job in jobs):
            raise MalformedDocument("a job is named by a digest")
        return jobs

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
        check_beginning(opening.body, request.body)
        return Crowd(request.body, opening.body, consortium)

    async def draw(self, crowd: Crowd, nonces: Sequence[str]) -> list[Signed[Draw]]:
        """Return the draws of up to `MOST_AT_ONCE` nonces, verified, in order.

        A busy trainer answers the first of them, at least one.

        Raises:
            CrowdRefused: there is nothing to draw: the job is closed.
            ProtocolError: a draw is not one that an honest trainer makes.
        """
        asked = canonical_json({"nonces": list(nonces)})
        answer = await self._peer().post(f"/v1/crowds/{crowd.job}/draws", asked, _JSON)
        value = _value(answer)
        documents = value.get("documents") if isinstance(value, dict) else None
        if not isinstance(documents, list) or not 0 < len(documents) <= len(nonces):
            raise MalformedDocument("there must be draws, at most one for each nonce")
        return [
            verified(from_json(document, Draw), crowd, nonce)
            for document, nonce in zip(documents, nonces, strict=False)
        ]

    async def submit(self, crowd: Crowd, sent: Sequence[Sent]) -> list[Outcome | None]:
        """Hand in up to `MOST_AT_ONCE` submissions; None where the same may be sent again later.

        Raises:
            MalformedDocument: the answer does not say what became of each.
        """
        # canonical documents in a canonical list are canonical
        body = b'{"documents":[' + b",".join(each.document for each in sent) + b"]}"
        answer = await self._peer().post(f"/v1/crowds/{crowd.job}/submissions", body, _JSON)
        found = outcomes(answer, len(sent))
        if answer.is_refusal:
            return [Outcome(answer.code) for _ in sent]
        listed = answer.json()["outcomes"]
        return [
            None if outcome is None else _outcome(crowd, each, outcome, told)
            for each, outcome, told in zip(sent, found, listed, strict=True)
        ]

    async def closing(self, crowd: Crowd, *, wait_seconds: int = 0) -> Signed[CrowdClosing] | None:
        """Return a job's closing, signed by the trainer; None while the job is open.

        Whether it follows from the opening is the caller's to check: `check_closing`.

        Raises:
            CrowdRefused: the trainer does not know the job.
            ProtocolError: it is another job's, or not signed by the trainer under its manifest.
        """
        answer = await self._peer().get(f"/v1/crowds/{crowd.job}/closing", wait=wait_seconds)
        if answer.status == ACCEPTED:
            return None
        if answer.status != OK:
            raise CrowdRefused(answer)
        signed = decode(answer.body, CrowdClosing)
        crowd.consortium.verify(signed)
        if signed.body.job != crowd.job:  # anybody has such a document of a job that was closed
            raise MalformedDocument("the closing is another job's")
        return signed

    async def log(self, job: str, instance: int, *, after: int) -> LogPage:
        """Return a part of an instance's log that follows revision `after`.

        Raises:
            CrowdRefused: the trainer does not know it.
            MalformedDocument: the answer is no part of a log.
        """
        path = f"/v1/crowds/{job}/log/{instance}"
        value = _value(await self._peer().get(path, after=after))
        try:
            return LogPage.model_validate(value)
        except pydantic.ValidationError as error:
            raise MalformedDocument(describe(error, LogPage)) from None

    async def _document(self, path: str) -> bytes:
        answer = await self._peer().get(path)
        if answer.status != OK:
            raise CrowdRefused(answer)
        return answer.body


def _value(answer: Answer) -> Any:
    if answer.status not in (OK, CREATED):
        raise CrowdRefused(answer)
    return answer.json()


def _outcome(crowd: Crowd, sent: Sent, outcome: str, told: Mapping[str, Any]) -> Outcome:
    """Return an outcome; what was taken comes with what the trainer signed, whatever it is."""
    if outcome != ACKNOWLEDGED:
        return Outcome(outcome)
    try:
        signed = from_json(told.get("receipt"), SubmissionReceipt)
        crowd.consortium.verify(signed)
    except ProtocolError:
        return Outcome(WRONG_RECEIPT)
    entry = signed.body.entry
    fits = (entry.job, entry.nonce, entry.weights) == (crowd.job, sent.nonce, sent.weights)
    return Outcome(ACKNOWLEDGED if fits else WRONG_RECEIPT, signed.encode())

"""Reads the jobs that an agent shows its owner, and signs the owner's decisions about them.

It runs where the owner is, with the owner's key, and never in the agent.
"""

from datetime import datetime
from typing import Any

from nacl.signing import SigningKey

from shoal_agent.status import ApprovalsView, JobView
from shoal_protocol.crowds.draws import CrowdJobRequest
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.jobs.membership import Decision, approval_of
from shoal_protocol.wire.documents import Signed, decode, sign
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import MalformedDocument


def request_of(view: JobView) -> JobRequest | CrowdJobRequest:
    """Return a job's request, which an agent that lies might show for another job's.

    Raises:
        MalformedDocument: it is another job's, or none.
    """
    try:
        encoded = canonical_json(view.request)
    except ValueError as error:
        raise MalformedDocument("the agent shows no request: do not trust this agent") from error
    signed: Signed[Any] = decode(encoded, JobRequest, CrowdJobRequest)
    if signed.digest != view.job:
        raise MalformedDocument("the agent shows another job's request: do not trust this agent")
    request: JobRequest | CrowdJobRequest = signed.body
    return request


def signed_decision(
    shown: ApprovalsView, job: str, decision: Decision, *, key: SigningKey, now: datetime
) -> bytes:
    """Return an owner's decision about a job, signed.

    Raises:
        UnknownJob: the job does not ask.
        MalformedDocument: its request is another's.
        ValueError: the key is not listed, or the data holder is not enrolled.
    """
    view = shown.asking(job)
    request, owner = request_of(view), shown.owner_of(key)
    if view.holder is None:
        raise ValueError("the data holder is not enrolled: no job asks it")
    body = approval_of(request, holder=view.holder, owner=owner, decision=decision, now=now)
    return sign(body, owner, key).encode()

"""Shows a data holder's owner a job: its request, and the parties that it names or answers to."""

import json
from collections.abc import Callable
from typing import Any

import pydantic

from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.trust.manifest import Analyst, Manifest, ServiceParty
from shoal_protocol.wire.documents import decode


class PartyView(pydantic.BaseModel):
    """A party of the manifest, and the organisation that runs it."""

    name: str
    operator: str


class Parties(pydantic.BaseModel):
    """Who asks, who conducts the rounds, and who each answer is shared among."""

    analyst: PartyView
    trainer: PartyView
    compute_nodes: list[PartyView]


class JobView(pydantic.BaseModel):
    """A job with its signed request as JSON, whose digest is the job's id."""

    job: str
    request: dict[str, Any]
    parties: Parties


def parties_of(request: JobRequest, manifest: Manifest) -> Parties:
    """Return a job's parties, of the manifest that it is bound to."""
    analysts = {each.name: _view(each) for each in manifest.analysts}
    unknown = PartyView(name=request.analyst, operator="not in the manifest")
    return Parties(
        analyst=analysts.get(request.analyst, unknown),
        trainer=_view(manifest.trainer),
        compute_nodes=[_view(each) for each in manifest.compute_nodes],
    )


def job_view(job: str, signed: bytes, manifest_of: Callable[[str], Manifest]) -> JobView:
    """Return the view of a job with this signed request."""
    request = decode(signed, JobRequest).body
    parties = parties_of(request, manifest_of(request.manifest))
    return JobView(job=job, request=json.loads(signed), parties=parties)


def _view(party: ServiceParty | Analyst) -> PartyView:
    return PartyView(name=party.name, operator=party.operator)

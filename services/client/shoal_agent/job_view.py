"""Shows a data holder's owner a job: its request, and the parties that it names or answers to."""

import json
from collections.abc import Callable
from typing import Any

import pydantic

from shoal_holder.approvals import JobAsking, OwnerDecision, Stage
from shoal_protocol.trust.manifest import Analyst, Manifest, ServiceParty
from shoal_protocol.wire.encoding import Count


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


class AskingView(JobView):
    """A job of either kind that asked the owners, as `JobAsking`."""

    holder: Count | None
    asked_at: str
    until: str
    needed: Count
    stage: Stage
    decisions: tuple[OwnerDecision, ...]


def _parties_of(analyst_name: str, manifest: Manifest) -> Parties:
    analysts = {each.name: _view(each) for each in manifest.analysts}
    unknown = PartyView(name=analyst_name, operator="not in the manifest")
    return Parties(
        analyst=analysts.get(analyst_name, unknown),
        trainer=_view(manifest.trainer),
        compute_nodes=[_view(each) for each in manifest.compute_nodes],
    )


def job_view(job: str, encoded: bytes, manifest_of: Callable[[str], Manifest]) -> JobView:
    """Return the view of a job by its signed request; its parties are of the manifest it names."""
    request = json.loads(encoded)
    body = request["body"]
    parties = _parties_of(body["analyst"], manifest_of(body["manifest"]))
    return JobView(job=job, request=request, parties=parties)


def asking_view(asking: JobAsking, manifest_of: Callable[[str], Manifest]) -> AskingView:
    """Return the view of a job that asked the owners."""
    view = job_view(asking.job, asking.request, manifest_of)
    return AskingView(
        job=view.job,
        request=view.request,
        parties=view.parties,
        holder=asking.holder,
        asked_at=asking.asked_at,
        until=asking.until,
        needed=asking.needed,
        stage=asking.stage,
        decisions=asking.decisions,
    )


def _view(party: ServiceParty | Analyst) -> PartyView:
    return PartyView(name=party.name, operator=party.operator)

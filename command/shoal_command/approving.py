"""`shoal agent owner-key`, `approvals`, `approve` and `refuse`: an owner's decisions about jobs.

Decisions are signed by this process: the owner's key never goes to the agent.
"""

import secrets
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from nacl.signing import SigningKey
from rich.console import RenderableType

from shoal_agent.client_files import hex_line
from shoal_agent.console import sentences
from shoal_agent.deciding import ApprovalsView, request_of, signed_decision
from shoal_agent.job_view import AskingView
from shoal_command.connection import (
    AgentData,
    AgentDirectory,
    AgentUrl,
    JobId,
    checked_id,
    own_agent,
)
from shoal_command.rendering import rendered
from shoal_command.terminal import AsJson, Yes, confirm, now, say, show, tell
from shoal_holder.keys import read_holder_key
from shoal_holder.policy import Policy
from shoal_hosting.peers.service_calls import Endpoint
from shoal_hosting.private_files import write_new
from shoal_protocol.jobs.approvals import WAITS, Decision

_PATH: Final = "/v1/approvals"

OwnerKey = Annotated[Path, typer.Option("--owner", help="Your owner's key file.")]


def owner_key(
    file: Annotated[Path, typer.Argument(help="New file for your private key.")],
    name: Annotated[str, typer.Option(help="What your policy calls you.")] = "owner",
    as_json: AsJson = False,
) -> None:
    """Make a data owner's key, by which you approve or refuse jobs.

    Each owner makes one alone, elsewhere than on the agent's machine; policy.toml lists its public
    half.
    """
    key = SigningKey(secrets.token_bytes(32))
    write_new(file, hex_line(bytes(key)), private=True)
    public = bytes(key.verify_key).hex()
    tell(
        {"file": file, "name": name, "key": public},
        as_json,
        f"{file} decides about jobs: keep it where no agent is, and keep a copy.",
        "List it in policy.toml beside other owners, and start the agent anew:",
        f'owners = {{{name} = "{public}"}}',
    )


def approvals(
    directory: AgentDirectory, data: AgentData, url: AgentUrl, as_json: AsJson = False
) -> None:
    """List the jobs that asked the owners, and what these decided.

    Those that may still be decided come first, then the newest.
    """
    pages = list(own_agent(directory, url, data).pages(ApprovalsView, _PATH, count=100))
    jobs = tuple({each.job: each for page in pages for each in page.jobs}.values())
    found = pages[-1].model_copy(update={"jobs": jobs})
    sentence = found.missing or ("" if found.jobs else "No job has asked.")
    if not as_json:  # facts, not a table: it would fold the ids that are to be copied
        for each in found.jobs:
            show(rendered(_row(each)))
            say("")
    tell(found, as_json, *filter(None, [sentence]))


def approve(
    job: JobId,
    directory: AgentDirectory,
    data: AgentData,
    url: AgentUrl,
    owner: OwnerKey,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let your data holder take part in a job, after showing what it asks and costs."""
    _decide(own_agent(directory, url, data), job, "approve", owner, yes, as_json)


def refuse(
    job: JobId,
    directory: AgentDirectory,
    data: AgentData,
    url: AgentUrl,
    owner: OwnerKey,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Refuse a job that asks, for good, whatever other owners say."""
    _decide(own_agent(directory, url, data), job, "refuse", owner, yes, as_json)


def _decide(
    agent: Endpoint, job: str, decision: Decision, owner: Path, yes: bool, as_json: bool
) -> None:
    job = checked_id(job, listed_by="shoal agent approvals")
    key, shown = read_holder_key(owner), _asked(agent, job)
    encoded = signed_decision(shown, job, decision, key=key, now=now())
    confirm(f"{decision.capitalize()} this job?", _facts(agent, shown, shown.asking(job)), yes=yes)
    agent.ask(dict, _PATH, method="POST", content=encoded)
    after = _asked(agent, job).asking(job)
    said = sentences.stage(after)[0]
    if after.stage == WAITS:
        said = "Your approval is kept. Another owner must approve it, too."
    tell({"job": job, "decision": decision, "stage": after.stage}, as_json, said)


def _facts(agent: Endpoint, shown: ApprovalsView, asking: AskingView) -> RenderableType:
    """Return what a job asks, as its own signed request has it: an agent may lie about the rest."""
    request = request_of(asking)
    left = sentences.left_after(request, shown.left, agent.ask(Policy, "/v1/policy").cap)
    facts = dict(sentences.asked(request, asking.parties, now=now(), left=left))
    facts["Who decided"] = sentences.decisions(asking)
    return rendered(
        {name: each if isinstance(each, str) else "\n".join(each) for name, each in facts.items()}
    )


def _asked(agent: Endpoint, job: str) -> ApprovalsView:
    return agent.ask(ApprovalsView, _PATH, job=job)


def _row(asking: AskingView) -> dict[str, str]:
    request = request_of(asking)
    return {
        "job": asking.job,
        "asks": sentences.title(request),
        "analyst": sentences.party(asking.parties.analyst),
        "price": sentences.price(sentences.cost(request)),
        "until": sentences.ahead(datetime.fromisoformat(asking.until), now=now()),
        "stage": sentences.stage(asking)[0],
        "approved by": f"{sum(each.decision == 'approve' for each in asking.decisions)}"
        f" of {asking.needed}",
    }

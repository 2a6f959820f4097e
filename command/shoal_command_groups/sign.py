"""`shoal sign`: signs what an analyst asks, written by hand or by another program."""

from pathlib import Path
from typing import Final

import pydantic_core
import typer

from shoal_command.connection import PartyDirectory, read_file
from shoal_kit.party import load_party
from shoal_protocol.crowds.draws import CrowdJobRequest
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.wire import documents
from shoal_studies.study_request import JobCheck, JobsQuery, StudyRequest

_KINDS: Final = {
    each.model_fields["kind"].default: each
    for each in (
        StudyRequest,
        JobCheck,
        JobsQuery,
        JobWithdrawal,
        CrowdJobRequest,
    )
}


def sign(party: PartyDirectory) -> None:
    """Sign a document's body from standard input, and print the signed document.

    The body is JSON in any layout, with the fields that the protocol lists for its kind; those with
    a default may be missing. Only what analysts ask for is signed: job_request, job_check,
    jobs_query, job_withdrawal and crowd_job_request. What another party signs says what it saw, so
    its service alone writes that: a word that is wrong is held against it for ever.

    Exit status: 0 signed; 1 the body is malformed, or not this party's to sign; 2 wrong usage.
    """
    identity = load_party(party)
    body = pydantic_core.from_json(read_file(Path("-")), allow_inf_nan=False)
    kind = body.get("kind") if isinstance(body, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"`shoal sign` signs bodies of the kinds {', '.join(_KINDS)} only")
    document = _KINDS[kind].model_validate(body)
    if (identity.card.role, identity.name) != ("analyst", document.analyst):
        raise ValueError(f"{party} is not the directory of the analyst whom the document names")
    typer.echo(documents.sign(document, identity.name, identity.signing_key).encode(), nl=False)

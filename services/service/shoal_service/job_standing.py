"""Asks a trainer where a job stands: who was retired may be needed until the trainer moves on."""

import pydantic

from shoal_kit.manifest_book import at_present
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.jobs.job_state import JobState
from shoal_protocol.wire.errors import ProtocolError
from shoal_service.service import Resources


async def ask_standing(own: Resources, job: str, *, manifest: str) -> JobState | None:
    """Ask the trainer of the version `manifest` where its job stands; None: it does not say.

    The trainer's word is not signed.

    Raises:
        UnknownManifest: the version was never accepted here.
    """
    trainer = at_present(own.book, own.book.get(manifest).manifest.trainer)
    try:
        reply = await own.peers.to(trainer).ask("GET", f"/v1/jobs/{job}")
        return JobState.model_validate(reply.json())
    except (Unavailable, ProtocolError, pydantic.ValidationError):
        return None

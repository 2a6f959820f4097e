"""Asks a trainer where a job stands: who was retired may be needed until the trainer moves on."""

import pydantic

from shoal_kit.manifest_book import at_present
from shoal_kit.peers.exchange import Unavailable
from shoal_protocol.wire.encoding import Count
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.phases import FINISHED, JobPhase, Phase
from shoal_service.service import Resources


class _Round(pydantic.BaseModel):
    number: Count
    phase: Phase


class JobStanding(pydantic.BaseModel):
    """A job's phase and its newest rounds, by the trainer's word, which nobody signed."""

    phase: JobPhase
    rounds: tuple[_Round, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Tell whether the job ended without a result."""
        return self.phase in {JobPhase.FAILED, JobPhase.WITHDRAWN}

    def is_past(self, number: int) -> bool:
        """Tell whether the trainer knows what became of the job's round of this number."""
        if self.has_failed or self.phase is JobPhase.FINISHED:
            return True
        return any(
            each.number > number or (each.number == number and each.phase in FINISHED)
            for each in self.rounds
        )


async def ask_standing(own: Resources, job: str, *, manifest: str) -> JobStanding | None:
    """Ask the trainer of the version `manifest` where its job stands; None: it does not say.

    Raises:
        UnknownManifest: the version was never accepted here.
    """
    trainer = at_present(own.book, own.book.get(manifest).manifest.trainer)
    try:
        reply = await own.peers.to(trainer).ask("GET", f"/v1/jobs/{job}")
        return JobStanding.model_validate(reply.json())
    except (Unavailable, ProtocolError, pydantic.ValidationError):
        return None

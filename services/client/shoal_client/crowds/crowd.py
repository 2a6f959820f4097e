"""A crowd job whose documents were checked, and draws of it; it contributes nothing."""

from dataclasses import dataclass

from shoal_protocol.documents import Signed
from shoal_protocol.draw_and_discard.documents import CrowdJobRequest, CrowdOpening, Draw
from shoal_protocol.draw_and_discard.draws import check_draw
from shoal_protocol.manifest import Consortium


@dataclass(frozen=True)
class Crowd:
    """A crowd job that was checked, and the manifest version that it is bound to."""

    request: CrowdJobRequest
    opening: CrowdOpening
    consortium: Consortium

    @property
    def job(self) -> str:
        """Return the job's id."""
        return self.request.digest


def verified(draw: Signed[Draw], crowd: Crowd, nonce: str) -> Signed[Draw]:
    """Return a draw that the trainer signed in answer to `nonce`.

    Raises:
        RefusedDraw: it cannot be one; the detail says why.
        ProtocolError: the trainer did not sign it under the job's manifest.
    """
    crowd.consortium.verify(draw)
    check_draw(draw.body, crowd.opening, nonce=nonce)
    return draw

"""The trainer's crowd jobs, each with what its analyst signed and where it stands; opens none."""

import asyncio
from dataclasses import dataclass
from typing import Final

from shoal_client.crowds.analyst import AsyncCrowds
from shoal_client.crowds.states import CrowdState, ListedCrowd
from shoal_protocol.draw_and_discard.documents import CrowdJobRequest
from shoal_protocol.errors import ProtocolError
from shoal_protocol.phases import CrowdPhase

_ASKED_TOGETHER: Final = 8  # jobs


@dataclass(frozen=True)
class CrowdOverview:
    """A crowd job in a list.

    `request` is None if it cannot be verified here, as when it is bound to a manifest version that
    is not at hand.
    """

    job: str
    state: CrowdState
    request: CrowdJobRequest | None

    @property
    def phase(self) -> CrowdPhase:
        """Whether it is open, by the trainer's word."""
        return self.state.phase


async def overviews(crowds: AsyncCrowds) -> list[CrowdOverview]:
    """Return an overview of each crowd job of the trainer, of all analysts.

    Raises:
        JobFailed: the trainer serves no crowd jobs.
        MalformedDocument: an answer is no list, or no state.
        Unavailable: the trainer did not answer, several times.
    """
    together = asyncio.Semaphore(_ASKED_TOGETHER)

    async def overview(listed: ListedCrowd) -> CrowdOverview:
        async with together:
            state = await crowds.state(listed.job)
            try:
                request = await crowds.request_of(listed.job)
            except ProtocolError:
                return CrowdOverview(listed.job, state, None)
            return CrowdOverview(listed.job, state, request)

    return list(await asyncio.gather(*map(overview, await crowds.listed())))

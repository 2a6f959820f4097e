"""Keeps a running sum of each round's stored shares, so that the final sum is quick.

A running sum records which data holders it includes, so it may be incomplete or lost. Once the
cohort is known, missing holders' shares are read from the store and added, and surplus ones
subtracted.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import structlog
from pyroaring import BitMap

from shoal_compute.bulks import AcceptedShare, Packed
from shoal_compute.rounds import Round
from shoal_compute.summing import Adders, StoredShares, add_shares, sum_shares
from shoal_hosting.server.logs import describe_exception
from shoal_protocol.sharing import summation
from shoal_protocol.wire.encoding import Uint64Vector

log = structlog.get_logger()


@dataclass
class _Tally:
    total: Uint64Vector
    counted: BitMap = field(default_factory=BitMap)
    under_way: set[asyncio.Task[None]] = field(default_factory=set)


class Tallies:
    """One running sum for each round that has shares. For one event loop."""

    def __init__(self, adders: Adders) -> None:
        """Add up where `adders` say."""
        self._adders = adders
        self._tallies: dict[str, _Tally] = {}

    async def count(self, known: Round, stored: Sequence[AcceptedShare]) -> None:
        """Add shares of one kind, which were just stored, to the round's running sum.

        Waiting for it before more uploads are read bounds the memory in use.
        """
        if len(known.committees) > 1:
            return  # whose sums are weighted: they are added up apart, at the end
        tally = self._tallies.get(known.id)
        if tally is None:
            tally = _Tally(np.zeros(known.spec.body.dimension, np.uint64))
            self._tallies[known.id] = tally
        task = asyncio.get_running_loop().create_task(self._count(known, tally, stored))
        tally.under_way.add(task)
        task.add_done_callback(tally.under_way.discard)
        await asyncio.shield(task)

    async def _count(self, known: Round, tally: _Tally, stored: Sequence[AcceptedShare]) -> None:
        dimension, scheme = known.spec.body.dimension, known.intake.scheme
        shares = [
            Packed(stored[0].kind, len(stored), b"".join([share.payload for share in stored]))
        ]
        summing = self._adders.for_sum(len(stored), dimension)
        try:
            added = await add_shares(shares, dimension=dimension, scheme=scheme, summing=summing)
        except Exception as error:  # noqa: BLE001 -- uncounted shares are read from the store
            log.error("shares were not counted as they came", **describe_exception(error))
        else:
            tally.total = summation.plus(scheme, tally.total, added)
            tally.counted |= BitMap([share.holder for share in stored])

    async def total(self, known: Round, cohort: BitMap, stored: StoredShares) -> Uint64Vector:
        """Return the sum, shape (d,), of the shares of exactly the holders in `cohort`.

        Raises:
            SharesMissing: not all of them are stored.
            StorageUnavailable: try again later.
        """
        tally = self._tallies.get(known.id)
        if tally is not None and tally.under_way:
            await asyncio.wait(tally.under_way)

        async def over(holders: BitMap) -> Uint64Vector:
            dimension = known.spec.body.dimension
            return await sum_shares(
                stored,
                holders,
                dimension=dimension,
                scheme=known.intake.scheme,
                summing=self._adders.for_sum(len(holders), dimension),
            )

        if tally is None or len(tally.counted ^ cohort) >= len(cohort):
            return await over(cohort)
        counted, total, scheme = tally.counted, tally.total, known.intake.scheme
        lacking, beyond = await over(cohort - counted), await over(counted - cohort)
        return summation.minus(scheme, summation.plus(scheme, total, lacking), beyond)

    def drop(self, round_id: str) -> None:
        """Forget the running sum of a round that needs it no more."""
        self._tallies.pop(round_id, None)

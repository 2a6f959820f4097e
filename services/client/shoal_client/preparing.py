"""Works out several clients' answers and seals them; it decides about no round and sends nothing.

Records are read, chosen and encoded, and noise is drawn, before a moment that public numbers give.
What is done after it is the same, on as many bytes, whatever is in them.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from shoal_client import departure
from shoal_client.background import Background
from shoal_client.contribution import draw_noise, encoded, seal_contribution
from shoal_client.noise import NoiseSampler
from shoal_client.site import Site
from shoal_protocol.encoding import Int64Vector
from shoal_protocol.queries import Query
from shoal_protocol.rounds import RoundSpec
from shoal_protocol.sharing import RandomBytes


@dataclass(frozen=True)
class Assignment:
    """One client that is to answer; its key's seed, and what it contributes, without its noise."""

    client: int
    seed: bytes = field(repr=False)
    values: Int64Vector = field(repr=False)


class Preparing:
    """Works out answers for the clients of one data holder."""

    def __init__(self, site: Site, background: Background) -> None:
        self._site = site
        self._background = background

    def portion(self, spec: RoundSpec, clients: int, *, seconds: float) -> int:
        """Return how many of `clients` to work out together, with `seconds` until the deadline."""
        blocks, each = spec.noise_blocks(), _encoding_seconds(spec)
        return departure.portion(blocks, clients, encoding=each, seconds=seconds)

    async def work_out(
        self, spec: RoundSpec, clients: Sequence[int]
    ) -> tuple[Int64Vector, Int64Vector]:
        """Return contributions and their noise, (clients, spec.dimension), when they may leave."""
        timer = self._site.timer
        began = timer.now()
        records = await asyncio.to_thread(self._records, spec.query, clients)
        found = await self._background.work(work_out, spec, records, self._site.noise)
        allowed = departure.sampling_seconds(spec.noise_blocks(), len(clients))
        allowed += _encoding_seconds(spec) * len(clients)
        leaves = departure.departure(began=began, ready=timer.now(), allowed_seconds=allowed)
        await timer.sleep(leaves - timer.now())
        return found

    def _records(self, query: Query, clients: Sequence[int]) -> list[NDArray[np.float64]]:
        positions, most = self._site.positions(), query.records_per_client
        names = query.column_names
        return [self._site.records_of(positions[each], names, most=most) for each in clients]


def _encoding_seconds(spec: RoundSpec) -> float:
    query = spec.query
    return departure.encoding_seconds(
        columns=len(query.column_names),
        coordinates=query.dimension,
        records=query.records_per_client,
    )


def work_out(
    spec: RoundSpec, records: Sequence[NDArray[np.float64]], noise: NoiseSampler
) -> tuple[Int64Vector, Int64Vector]:
    """Return what clients contribute and their noise, each of shape (clients, spec.dimension).

    `records` are each client's own, shape (r, m); runs in a thread or another process.
    """
    values = np.array([encoded(spec.query, each) for each in records])
    return values, draw_noise(spec, len(records), noise)


def seal_batch(
    spec: RoundSpec,
    box_keys: Sequence[bytes],
    batch: Sequence[Assignment],
    noise: Int64Vector,
    *,
    random_bytes: RandomBytes,
) -> list[tuple[int, list[bytes]]]:
    """Return (client, its envelopes) for each assignment; runs in a thread or another process.

    `noise` has shape (assignments, spec.dimension): each client's own.
    """
    return [
        (
            each.client,
            seal_contribution(
                spec,
                box_keys,
                each.client,
                SigningKey(each.seed),
                each.values,
                drawn,
                random_bytes=random_bytes,
            ),
        )
        for each, drawn in zip(batch, noise, strict=True)
    ]

"""Makes clients' answers to a round from their records and noise, and charges for them.

An answer is on disk, and charged, before its first byte is handed over.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_holder import release_timing
from shoal_holder.contribution import box_keys, draw_noise, encoded, seal_contribution
from shoal_holder.noise import NoiseSampler
from shoal_holder.site import Site
from shoal_holder.state import State
from shoal_protocol.queries import Query
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.encoding import Int64Vector

SEALED_TOGETHER: Final = 256
"""Clients whose answers are charged and stored in one transaction."""


class Answers:
    """Makes answers for the clients of one data holder."""

    def __init__(self, site: Site, state: State) -> None:
        self._site = site
        self._state = state

    def make(self, round_id: str, spec: RoundSpec, clients: Sequence[int]) -> int:
        """Make, charge and store the answers of these clients; return of how many.

        All work that depends on records or noise is done before a moment that follows from public
        numbers; the method waits until then, lest the courier learn how long the work took. The
        work after that moment is the same for all answers.
        """
        site, began = self._site, self._site.timer.now()
        records = self._records(spec.query, clients)
        values, noise = work_out(spec, records, site.noise)
        leaves = release_timing.release_time(
            began=began, ready=site.timer.now(), allowed_seconds=allowed_seconds(spec, len(clients))
        )
        site.timer.sleep(leaves - site.timer.now())
        keys, made = box_keys(site.book.get(spec.manifest)), 0
        for start in range(0, len(clients), SEALED_TOGETHER):
            if site.clock() >= spec.deadline:
                break
            together = range(start, min(start + SEALED_TOGETHER, len(clients)))
            answers = [
                (
                    clients[place],
                    seal_contribution(
                        spec,
                        keys,
                        clients[place],
                        site.key,
                        values[place],
                        noise[place],
                        random_bytes=site.random_bytes,
                    ),
                )
                for place in together
            ]
            self._state.record_answers(round_id, spec.cost, site.clock(), answers)
            made += len(answers)
        return made

    def _records(self, query: Query, clients: Sequence[int]) -> list[NDArray[np.float64]]:
        positions, most = self._site.positions(), query.records_per_client
        names = query.column_names
        return [self._site.records_of(positions[each], names, most=most) for each in clients]


def allowed_seconds(spec: RoundSpec, clients: int) -> float:
    """Return how long working out so many clients' answers may take."""
    sampling = release_timing.sampling_seconds(spec.noise_blocks(), clients)
    return sampling + _encoding_seconds(spec) * clients


def portion(spec: RoundSpec, clients: int, *, seconds: float) -> int:
    """Return how many of `clients` to work out together, with `seconds` until the deadline."""
    blocks, each = spec.noise_blocks(), _encoding_seconds(spec)
    return release_timing.portion(blocks, clients, encoding=each, seconds=seconds)


def work_out(
    spec: RoundSpec, records: Sequence[NDArray[np.float64]], noise: NoiseSampler
) -> tuple[Int64Vector, Int64Vector]:
    """Return what clients contribute and their noise, each of shape (clients, spec.dimension).

    `records` are each client's own, shape (r, m).
    """
    values = np.array([encoded(spec.query, each) for each in records])
    return values, draw_noise(spec, len(records), noise)


def _encoding_seconds(spec: RoundSpec) -> float:
    query = spec.query
    return release_timing.encoding_seconds(
        columns=len(query.column_names),
        coordinates=query.dimension,
        records=query.records_per_client,
    )

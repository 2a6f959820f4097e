"""Makes a data holder's answer to a round from its records and noise, and charges for it.

An answer is on disk, and charged, before its first byte is handed over.
"""

import math
from collections.abc import Sequence

import numpy as np
from pyroaring import BitMap

from shoal_holder import machine, release_timing
from shoal_holder.choice import MOST_ROWS
from shoal_holder.contribution import (
    MOST_ENTRIES,
    box_keys,
    draw_noise,
    encoded_together,
    records_at_once,
    seal_contribution,
)
from shoal_holder.faults import Faults, without_failing
from shoal_holder.site import Site
from shoal_holder.state import State
from shoal_protocol.queries import Query, Tables
from shoal_protocol.queries.columns import factors_in
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.encoding import Int64Vector


class Answers:
    """Makes the answers of one data holder."""

    def __init__(self, site: Site, state: State, faults: Faults) -> None:
        self._site = site
        self._state = state
        self._faults = faults

    def make(
        self, round_id: str, spec: RoundSpec, *, holder: int, asked: BitMap, used: BitMap
    ) -> bool:
        """Make, charge and store the answer for the slots in `asked`; tell whether it may be sent.

        The records in `used` count. The other slots contribute zeros and their noise: nothing of
        them is used, and nothing is charged to them.

        All work that depends on records or noise is done before a moment that follows from public
        numbers; the method waits until then, lest the courier learn how long the work took. The
        work after that moment is the same for all answers. A slot whose records cannot be worked
        out contributes zeros, too, is charged, and stands in the owner's list of faults.
        """
        site, began = self._site, self._site.timer.now()
        values = self.encoded(round_id, spec.query, list(asked), used)
        [noise] = draw_noise(spec, len(asked), site.noise)
        leaves = release_timing.release_time(
            began=began, ready=site.timer.now(), allowed_seconds=allowed_seconds(spec, len(asked))
        )
        site.timer.sleep(leaves - site.timer.now())
        if site.clock() >= spec.deadline:
            return False
        envelopes = seal_contribution(
            spec,
            box_keys(site.book.get(spec.manifest)),
            holder,
            site.key,
            values,
            noise,
            epoch=machine.read(self._state.file).epoch,
            random_bytes=site.random_bytes,
        )
        members = spec.sharing.members(holder=holder, nodes=len(spec.compute_nodes))
        return self._state.record_answer(
            round_id,
            spec.cost,
            site.clock(),
            used=used,
            unused=asked - used,
            envelopes=dict(zip(members, envelopes, strict=True)),
        )

    def encoded(
        self, round_id: str, query: Query, slots: Sequence[int], used: BitMap
    ) -> Int64Vector:
        """Return what slots contribute before noise, shape (dimension,)."""
        positions, most = self._site.positions(), query.records_per_client

        def work(portion: Sequence[int]) -> Int64Vector:
            here = [positions[slot] if slot in used else None for slot in portion]
            gaps = isinstance(query, Tables)
            together = self._site.records_together(
                here, query.column_names, most=most, with_gaps=gaps
            )
            return encoded_together(query, *together)

        def failed(slot: int, error: BaseException) -> None:
            self._faults.write(f"the records in slot {slot} count for none in {round_id}", error)

        size, total = slots_at_once(query), np.zeros(query.dimension, np.int64)
        for start in range(0, len(slots), size):
            for found in without_failing(slots[start : start + size], work, failed):
                total += found
        return total


def slots_at_once(query: Query) -> int:
    """Return of how many slots records are chosen at once, so that arrays keep `MOST_ENTRIES`."""
    values = query.records_per_client * len(query.column_names)
    return max(1, MOST_ENTRIES // max(MOST_ROWS, values))


def allowed_seconds(spec: RoundSpec, slots: int) -> float:
    """Return how long working out the answer for so many slots may take."""
    blocks = [(coordinates, part.of(slots)) for coordinates, part in spec.noise_blocks()]
    return release_timing.sampling_seconds(blocks) + encoding_allowed(spec.query, slots)


def encoding_allowed(query: Query, slots: int, *, failing: int = 1) -> float:
    """Return how long choosing and encoding so many slots' records may take, whatever these are.

    It allows for `failing` slots whose records fail: the slots that were worked on together with
    such a slot are worked on again, in halves.
    """
    together = min(slots, slots_at_once(query))
    passes = math.ceil(together * query.records_per_client / records_at_once(query))
    return release_timing.encoding_seconds(
        columns=len(query.column_names),
        factors=factors_in(query.columns),
        coordinates=query.entries if isinstance(query, Tables) else query.dimension,
        records=query.records_per_client,
        slots=slots + failing * 2 * together,
        passes=math.ceil(slots / together) * passes
        + failing * 2 * (passes + together.bit_length()),
    )


def is_in_time(spec: RoundSpec, slots: int, *, seconds: float) -> bool:
    """Tell whether an answer for so many slots that is begun now leaves in `seconds`."""
    allowed = allowed_seconds(spec, slots)
    return release_timing.release_time(began=0.0, ready=0.0, allowed_seconds=allowed) < seconds

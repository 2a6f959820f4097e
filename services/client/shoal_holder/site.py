"""One data holder's keys, records, policy, trusted manifests, and sources of time and chance."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import nacl.utils
import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from shoal_holder.choice import bounded, chosen_records
from shoal_holder.noise import NoiseSampler
from shoal_holder.policy import Policy
from shoal_holder.records import Records
from shoal_holder.timer import SystemTimer, Timer
from shoal_hosting.clock import Clock, system_clock
from shoal_hosting.manifests.manifest_book import ManifestBook
from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.wire.encoding import Int64Vector


@dataclass(frozen=True)
class Sources:
    """Sources of time and chance: this machine's, except in tests and simulations."""

    noise: NoiseSampler
    clock: Clock = system_clock
    random_bytes: RandomBytes = nacl.utils.random
    timer: Timer = field(default_factory=SystemTimer)


@dataclass
class Site:
    """One data holder. The i-th key and the i-th client of the records belong together."""

    keys: Sequence[SigningKey] = field(repr=False)
    records: Records
    policy: Policy
    book: ManifestBook
    sources: Sources
    _positions: tuple[str, dict[int, int]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.records):
            raise ValueError(
                f"{len(self.keys)} keys for {len(self.records)} clients in the records: "
                "there must be one key for each client, in the same order"
            )
        self.records = bounded(self.records, [bytes(key) for key in self.keys])

    @property
    def timer(self) -> Timer:
        """Return the timer."""
        return self.sources.timer

    def clock(self) -> datetime:
        """Return the current time."""
        return self.sources.clock()

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes."""
        return self.sources.random_bytes(size)

    def noise(self, part: NoisePart, count: int) -> Int64Vector:
        """Return noise, as a `NoiseSampler` does."""
        return self.sources.noise(part, count)

    def records_of(
        self, position: int, columns: Sequence[str], *, most: int
    ) -> NDArray[np.float64]:
        """Return the records that count for the client at `position`, shape (at most `most`, m).

        Raises:
            ValueError: there is no such column.
        """
        rows = self.records.of(position, columns)
        return chosen_records(rows, bytes(self.keys[position]), most=most)

    def positions(self) -> dict[int, int]:
        """Return {client index: position here} of the clients enrolled in the current manifest."""
        consortium = self.book.current
        if self._positions is None or self._positions[0] != consortium.digest:
            indices = consortium.roster.indices(key.verify_key for key in self.keys)
            enrolled = {index: here for here, index in enumerate(indices) if index is not None}
            self._positions = (consortium.digest, enrolled)
        return self._positions[1]

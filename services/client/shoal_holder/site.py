"""One data holder's key, records, policy, trusted manifests, and sources of time and chance."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import nacl.utils
from nacl.signing import SigningKey
from pyroaring import BitMap

from shoal_holder import release_timing
from shoal_holder.faults import Faults
from shoal_holder.keys import KeyInForce
from shoal_holder.noise import NoiseSampler
from shoal_holder.policy import Policy
from shoal_holder.records import ALONE, Records, in_chosen_order
from shoal_holder.slots import slots_by_id
from shoal_holder.state import State
from shoal_holder.state_file import StateFile
from shoal_holder.status import Report
from shoal_kit.clock import Clock, system_clock
from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.jobs.membership import HolderQuery
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Role, sign


class Timer:
    """Measures time that has passed, and waits: as this machine does, whatever moves its clock."""

    def now(self) -> float:
        """Return seconds since some moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait; not at all if it is no time."""
        time.sleep(max(0.0, seconds))


REVOKED: Final = (
    "the consortium's authority revoked this data holder, for good: nothing is asked, joined or "
    "answered any more. Stop the agent, and keep its data directory, which says what was spent. If "
    "you think that this is a mistake, talk to the authority before anybody makes a new key: its "
    "slots would begin with nothing spent"
)
REPLACED: Final = (
    "the consortium's authority gave this data holder another key, for good: nothing is asked, "
    "joined or answered by this one any more. If the other key is yours, put it in the place of "
    "this one and start the agent again, over the same data directory. If you asked for none, tell "
    "the authority at once"
)


@dataclass(frozen=True)
class Sources:
    """Sources of time and chance: this machine's, except in tests and simulations."""

    noise: NoiseSampler
    clock: Clock = system_clock
    random_bytes: RandomBytes = nacl.utils.random
    timer: Timer = field(default_factory=Timer)


@dataclass
class Site:
    """One data holder."""

    key_in_force: KeyInForce = field(repr=False)
    records: Records
    policy: Policy
    book: ManifestBook
    sources: Sources
    _key: tuple[str, SigningKey] | None = field(default=None, init=False, repr=False)
    _positions: tuple[str, dict[int, int]] | None = field(default=None, init=False, repr=False)
    _slots_on: StateFile | None = field(default=None, init=False, repr=False)
    _is_ordered: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        sources = self.sources
        self.clock, self.random_bytes, self.noise = (
            sources.clock,
            sources.random_bytes,
            sources.noise,
        )

    def give_slots(self, file: StateFile) -> None:
        """Take from now on the slots that a state file gives each id among those of this holder.

        Raises:
            ValueError: as `slots_by_id`, or one of several slots would go to a record without an
                id.
        """
        if self.records.identity is ALONE and (slots := self.slots_ever) > 1:
            raise ValueError(f"{slots:,} slots, and a record without an id: add a column 'id'")
        self._slots_on = file
        self.positions()

    @property
    def key(self) -> SigningKey:
        """Return this holder's key under the current manifest."""
        consortium = self.book.current
        if self._key is None or self._key[0] != consortium.digest:
            self._key = (consortium.digest, self.key_in_force(consortium.roster))
        return self._key[1]

    @contextmanager
    def released_after(self, seconds: float) -> Iterator[None]:
        """End work that depends on records or noise at a moment that follows from `seconds` alone.

        So it ends if it fails, too. See `release_timing.release_time`: `seconds` are what the work
        may take.
        """
        timer, began = self.sources.timer, self.sources.timer.now()
        try:
            yield
        finally:
            leaves = release_timing.release_time(
                began=began, ready=timer.now(), allowed_seconds=seconds
            )
            timer.sleep(leaves - timer.now())

    def query(self) -> bytes | None:
        """Return the signed query for lists of jobs; None if this holder is not enrolled."""
        if self.holder is None:
            return None
        manifest = self.book.current.digest
        body = HolderQuery(manifest=manifest, holder=self.holder, at=self.clock())
        return sign(body, Role.HOLDER, self.key).encode()

    @property
    def holder(self) -> int | None:
        """Return this holder's index under the current manifest; None if it is not enrolled."""
        return self.book.current.roster.holder_with(self.key.verify_key)

    @property
    def shut_out(self) -> str | None:
        """Return why no party ever takes this key again, and what to do; None if that is not so.

        Its holder was revoked, or has another key.
        """
        if self.holder is not None or (listed := self._listed) is None:
            return None
        is_revoked = self.book.current.roster.key_if_enrolled(listed[1]) is None
        return REVOKED if is_revoked else REPLACED

    @property
    def slots_ever(self) -> int:
        """Return how many slots this holder has, or had until it was revoked or has another key."""
        listed = self._listed
        return 0 if listed is None else len(listed[0].roster.slots_of(listed[1]))

    @property
    def _listed(self) -> tuple[Consortium, int] | None:
        """Return the newest version that lists this holder's key, and its index there."""
        for version in reversed(self.book.versions):
            holder = version.roster.holder_with(self.key.verify_key)
            if holder is not None:
                return version, holder
        return None

    def positions(self) -> dict[int, int]:
        """Return {slot: position here} of this holder's slots under the current manifest.

        A slot in which nobody is has a position behind the last client's.

        Raises:
            ValueError: an individual gets no slot.
        """
        consortium = self.book.current
        if self._positions is None or self._positions[0] != consortium.digest:
            holder = self.holder
            slots = BitMap() if holder is None else consortium.roster.slots_of(holder)
            self._positions = (consortium.digest, self._placed(slots))
        return self._positions[1]

    def _placed(self, slots: BitMap) -> dict[int, int]:
        if self._slots_on is None:
            raise ValueError("slots are not given yet")
        placed = dict.fromkeys(slots, len(self.records))
        if slots:  # else the holder is not enrolled yet
            given = slots_by_id(self._slots_on, self.records.identity, slots, self.random_bytes)
            if not self._is_ordered:
                self.records = in_chosen_order(self.records, [digest for _, digest in given])
                self._is_ordered = True
            placed |= {slot: here for here, (slot, _) in enumerate(given) if slot in placed}
        return placed


@dataclass(eq=False)
class Part:
    """A part of the vault: it works for a site, over its state, and reports what it did."""

    _site: Site
    _state: State
    _report: Report
    _faults: Faults

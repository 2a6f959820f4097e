"""Makes exact decisions one by one from random bytes; no bit is used twice."""

from typing import Final

from shoal_protocol.sharing.shares import RandomBytes

_POOL_BYTES: Final = 512


class FairBits:
    """Decisions made from random bytes, each independent of all others."""

    def __init__(self, random_bytes: RandomBytes) -> None:
        self._random_bytes = random_bytes
        self._pool = 0
        self._bits = 0

    def take(self, size: int) -> int:
        """Return an integer of `size` fair bits."""
        while self._bits < size:
            fresh = int.from_bytes(self._random_bytes(_POOL_BYTES), "little")
            self._pool |= fresh << self._bits
            self._bits += 8 * _POOL_BYTES
        value = self._pool & ((1 << size) - 1)
        self._pool >>= size
        self._bits -= size
        return value

    def below(self, bound: int) -> int:
        """Return an integer that is uniform on 0, ..., bound - 1."""
        size = (bound - 1).bit_length()
        while (value := self.take(size)) >= bound:  # fewer than half the draws
            pass
        return value

    def chance(self, numerator: int, denominator: int) -> bool:
        """Return True with probability numerator / denominator, which is at most 1."""
        return self.below(denominator) < numerator

"""Randomness that is the same in every run: bytes and noise from a label; it protects nothing."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.wire.encoding import Int64Vector

_STANDARD = NormalDist()


def fixed_bytes(label: str) -> Callable[[int], bytes]:
    """Return a source of bytes that never repeats; the same label gives the same bytes."""
    draws = iter(range(2**62))

    def draw(size: int) -> bytes:
        return hashlib.shake_256(f"{label}/{next(draws)}".encode()).digest(size)

    return draw


class FixedNoise:
    """Rounded Gaussians of the right variance, from a label; it keeps what was drawn."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._drawn: dict[int, list[int]] = {}
        self.begin_again()

    def begin_again(self) -> None:
        """Draw from here on what was drawn from the start."""
        self._bytes = fixed_bytes(self._label)
        self._number = 0

    def __call__(self, part: NoisePart, count: int) -> Int64Vector:
        words = np.frombuffer(self._bytes(8 * count), "<u8") >> np.uint64(11)
        uniform = (words.astype(np.float64) + 0.5) / 2.0**53
        normal = np.array([_STANDARD.inv_cdf(each) for each in uniform])
        block = np.rint(math.sqrt(part.variance(clients=1)) * normal).astype(np.int64)
        self._drawn[self._number] = block.tolist()
        self._number += 1
        return block

    def blocks(self, coordinates: int) -> Counter[tuple[int, ...]]:
        """Return what was drawn, cut into blocks of so many; a draw may be for several clients."""
        return Counter(
            tuple(draw[start : start + coordinates])
            for draw in self._drawn.values()
            for start in range(0, len(draw), coordinates)
        )

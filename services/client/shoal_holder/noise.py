"""Draws an answer's noise: shares of Laplace noise here, the rest by OpenDP in another process.

That process gets public numbers and gives integers. OpenDP loads sockets and TLS, which the process
with the records never does. The other process is its child, and as isolated from the network.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Final

import numpy as np
from nacl.utils import random as system_random

from shoal_holder.negative_binomial import laplace_shares
from shoal_protocol.privacy.mechanisms import GaussianPart, LaplacePart, NoisePart
from shoal_protocol.wire.encoding import Int64Vector

NoiseSampler = Callable[[NoisePart, int], Int64Vector]
"""(part, count) -> `count` independent integers of an answer's noise, shape (count,)."""

_PROGRAM: Final = ("-P", "-m", "shoal_holder.sampling")
"""Nothing is imported from the working directory."""


class NoiseProcess:
    """A `NoiseSampler` over a process of its own, started at once: loading OpenDP takes time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *_PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._is_ready = False

    def __call__(self, part: NoisePart, count: int) -> Int64Vector:
        """Draw `count` integers of an answer's noise on a coordinate.

        Raises:
            ValueError: the scale is too large to draw, or `count` is not positive.
            OSError: the process has ended.
        """
        match part:
            case GaussianPart(scale=scale):
                return self._drawn("discrete_gaussian", scale, count)
            case LaplacePart(scale=scale, parties=parties, slots=slots) if slots == parties:
                return self._drawn("discrete_laplace", scale, count)
            case LaplacePart(scale=scale, parties=parties, slots=slots):
                return laplace_shares(
                    scale=scale,
                    parties=parties,
                    slots=slots,
                    count=count,
                    random_bytes=system_random,
                )

    def _drawn(self, name: str, scale: float, count: int) -> Int64Vector:
        asked, answers = self._process.stdin, self._process.stdout
        if asked is None or answers is None or count < 1:
            raise ValueError("a count of noise draws must be positive")
        if not self._is_ready and answers.readline() != b"ready\n":
            # whatever else was written would shift all that is drawn after it
            raise OSError("the process that draws noise did not start as it should")
        self._is_ready = True
        asked.write(f"{name} {scale.hex()} {count}\n".encode())
        asked.flush()
        drawn = answers.read(8 * count)
        if len(drawn) != 8 * count:
            raise OSError("the process that draws noise has ended")
        return np.frombuffer(drawn, "<i8").astype(np.int64)

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None and self._process.stdout is not None:
            self._process.stdin.close()
            self._process.stdout.close()
        self._process.wait()

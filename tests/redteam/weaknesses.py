"""Weaknesses to plant in what is most private: the noise, the budgets, the owner's own rules."""

from collections.abc import Callable

import numpy as np
import pytest

from shoal_client import answering
from shoal_client.noise import NoiseSampler
from shoal_protocol.encoding import Int64Vector
from shoal_protocol.rounds import RoundSpec

Plant = Callable[[pytest.MonkeyPatch], None]


def _noise_as(
    change: Callable[[Int64Vector, dict[tuple[int, ...], Int64Vector]], Int64Vector],
) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        draw, first = answering.draw_noise, {}

        def drawn(spec: RoundSpec, clients: int, noise: NoiseSampler) -> Int64Vector:
            return change(draw(spec, clients, noise), first)

        patch.setattr(answering, "draw_noise", drawn)

    plant.__name__ = change.__name__
    return plant


@_noise_as
def a_thousandth_of_the_noise(
    noise: Int64Vector, first: dict[tuple[int, ...], Int64Vector]
) -> Int64Vector:
    """A data holder adds 1/1000 of its noise."""
    return noise // 1000


@_noise_as
def half_the_noise(noise: Int64Vector, first: dict[tuple[int, ...], Int64Vector]) -> Int64Vector:
    """A data holder adds half of its noise."""
    return noise // 2


@_noise_as
def no_noise(noise: Int64Vector, first: dict[tuple[int, ...], Int64Vector]) -> Int64Vector:
    """A data holder adds no noise."""
    return np.zeros_like(noise)


@_noise_as
def the_same_noise(noise: Int64Vector, first: dict[tuple[int, ...], Int64Vector]) -> Int64Vector:
    """A data holder draws noise once, for all rounds."""
    return first.setdefault(noise.shape, noise)


@_noise_as
def shared_noise(noise: Int64Vector, first: dict[tuple[int, ...], Int64Vector]) -> Int64Vector:
    """A data holder draws noise once for all its clients of a round."""
    return np.repeat(noise[:1], len(noise), axis=0)

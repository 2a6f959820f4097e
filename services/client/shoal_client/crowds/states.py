"""What the trainer says of its crowd jobs by its word alone; nothing here is signed or checked."""

from collections.abc import Callable
from datetime import datetime

import pydantic

from shoal_protocol.phases import CrowdPhase


class CrowdState(pydantic.BaseModel):
    """What the trainer says of a crowd job; nothing of it is signed.

    `contributions` of `wanted` were taken, from `contributors` clients. `spread` is the variance
    of each weight over the instances, None with a single instance.
    """

    job: str
    phase: CrowdPhase
    contributions: int
    wanted: int
    contributors: int
    instances: int
    spread: tuple[float, ...] | None
    closes_at: datetime


class ShownInstance(pydantic.BaseModel):
    """An instance as it is now."""

    revision: int
    weights: tuple[int, ...]


class Snapshot(pydantic.BaseModel):
    """All instances, at one moment."""

    contributions: int
    instances: tuple[ShownInstance, ...]


class ListedCrowd(pydantic.BaseModel):
    """A crowd job in the trainer's list."""

    job: str
    phase: CrowdPhase


class CrowdList(pydantic.BaseModel):
    """The trainer's crowd jobs."""

    crowds: tuple[ListedCrowd, ...]


CrowdProgress = Callable[[CrowdState], None]
"""What is called with each new state."""

"""Refuses a job of many rounds that was not simulated before at its size and price.

How far such a job comes, and whether clipping pulls it aside, no formula says beforehand.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from shoal.jobs.federation import Federation
from shoal_learning.simulation import Federation as Setting
from shoal_protocol.studies import Task
from shoal_protocol.studies.variational import VariationalStudy

_PRICE = ("epsilon", "delta", "dropouts", "colluders")
_INSTEAD = "or pass without_simulation=True"


@dataclass(frozen=True)
class Rehearsal:
    """A task that was fitted in a simulation, and the simulation's size and price."""

    task: Task
    setting: Setting


def require_rehearsal(task: Task, there: object, rehearsals: Iterable[Rehearsal]) -> None:
    """Refuse a real job of many rounds if no rehearsal was of its task, size and price.

    Raises:
        ValueError: none was; the message says in what they differ, and what to do.
    """
    if not isinstance(task, VariationalStudy) or not isinstance(there, Federation):
        return
    found = [_differences(task, there.settings, rehearsal) for rehearsal in rehearsals]
    if not all(found):
        return
    if found:
        said = ", ".join(found[-1])
        raise ValueError(f"what was simulated had another {said}: simulate this job, {_INSTEAD}")
    least, most = there.settings.minimum_population, there.settings.maximum_population
    raise ValueError(
        f"a job of {task.rounds:,} rounds is simulated before it is paid for: first fit this "
        f"estimator on a SimulatedFederation of {least:,} to {most:,} invented or public records "
        f"with the job's epsilon, delta, dropouts and colluders, {_INSTEAD}"
    )


def _differences(task: Task, settings: Any, rehearsal: Rehearsal) -> list[str]:
    asked, had = task.model_dump(), rehearsal.task.model_dump()
    names = [name for name in asked if had.get(name) != asked[name]]
    names += [
        each for each in _PRICE if getattr(settings, each) != getattr(rehearsal.setting, each)
    ]
    size = rehearsal.setting.population
    if not settings.minimum_population <= size <= settings.maximum_population:
        names.append("population")
    return names

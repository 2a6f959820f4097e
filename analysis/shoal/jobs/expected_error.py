"""Simulates a job on invented records before it costs anything: how far its numbers may be off.

The records are spread evenly over what the job reads, unrelated to each other, and the noise is
that of the job's price. Real values lie closer together than their bounds: errors are on the safe
side where bounds are wide, and a formula or a strong effect may change them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_learning.simulation import SimulatedFederation
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.queries.columns import Level
from shoal_protocol.studies import Task
from shoal_protocol.trust.dictionary import Category, Date, Flag, Number

ASSUMED: Final = (
    "Assumed: values spread evenly over what the job reads of each column, columns not related."
)
_MOST_CLIENTS: Final = 200_000
_CHOSEN: Final = frozenset({"classes", "levels"})
_SEED: Final = 1  # so that a second look says the same


@dataclass(frozen=True)
class ExpectedError:
    """Of one number of the posterior: its standard deviation, and half of its 95 % interval."""

    name: str
    sd: float
    reach: float


def expected_errors(
    request: StudyRequest,
    *,
    clients: int,
    variables: Iterable[Number | Flag | Category | Date] = (),
) -> tuple[ExpectedError, ...]:
    """Return what to expect of each number of the posterior if so many clients answer.

    `variables` are those of the data dictionary, as far as there is one.

    Raises:
        ValueError: the job cannot be simulated; the message says why.
    """
    size = min(max(clients, request.minimum_population), request.maximum_population)
    if size > _MOST_CLIENTS:
        raise ValueError(f"{size:,} clients are too many to be simulated here")
    if request.task.name == "numpyro_model":
        raise ValueError("a model of your own is simulated by a SimulatedFederation")
    records = _invented(request.task, {each.name: each for each in variables}, size)
    federation = SimulatedFederation(
        records, **request.privacy.model_dump(exclude={"mechanism"}), seed=_SEED
    )
    posterior = federation.learn(request.task).posterior
    reaches = np.diff(posterior.interval(0.95), axis=1)[:, 0] / 2.0
    return tuple(
        ExpectedError(name, float(sd), float(reach))
        for name, sd, reach in zip(posterior.names, posterior.sd, reaches, strict=True)
    )


def _invented(
    task: Task, known: Mapping[str, Number | Flag | Category | Date], size: int
) -> dict[str, NDArray[np.float64]]:
    """Return records by the names of the variables that the task reads."""
    levels = {each.variable: each.values for each in task.codings if each.kind in _CHOSEN}
    whole = {each.variable for each in task.codings if each.kind in ("event", "count")}
    lower: dict[str, float] = {}
    upper: dict[str, float] = {}
    for name, low, high, is_whole in _read(task):
        lower[name] = min(low, lower.get(name, low))
        upper[name] = max(high, upper.get(name, high))
        whole |= {name} if is_whole else set()
    generator = np.random.default_rng(_SEED)  # noqa: TID251 - of invented records
    records = {}
    for name, low in lower.items():
        variable = known.get(name)
        if name in levels:
            records[name] = generator.choice(levels[name], size)
            continue
        if isinstance(variable, Flag | Category) or name in whole:
            high = variable.limits[1] if isinstance(variable, Category) else upper[name]
            records[name] = generator.integers(int(low), int(high) + 1, size).astype(np.float64)
        else:
            records[name] = generator.uniform(low, upper[name], size)
    return records


def _read(task: Task) -> Iterator[tuple[str, float, float, bool]]:
    """Yield each variable that a column reads, between what, and whether as whole numbers."""
    for column in task.columns:
        if column.term is None:
            yield column.name, column.lower, column.upper, False
            continue
        for factor in column.term.factors:
            if isinstance(factor, Level):
                yield factor.variable, 0.0, max(1.0, factor.value), True
            else:
                yield factor.variable, factor.lower, factor.upper, False

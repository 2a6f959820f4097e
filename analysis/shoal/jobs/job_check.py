"""What an analyst can know before a job is submitted: whether it would run, and who would answer.

The trainer's word is whether it would take the job and which slots can pay. What data holders
declare is verified by their signatures, and judged here by the code that their vaults judge by.

How far the job's numbers may be off is estimated before it costs anything: by several simulations
of the job, at its price, on invented records. That is a guide and no bound (see `ASSUMED`): of
linear regressions on realistic records, medians were within a factor of two of those that it told
(`tests/federation/test_job_check.py`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import pydantic
from numpy.typing import NDArray

from shoal.jobs.job_failures import naming_columns
from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.jobs.declarations import HolderDeclaration
from shoal_protocol.trust.dictionary import Category, Date, Flag, Number
from shoal_protocol.wire.documents import from_json
from shoal_protocol.wire.encoding import Count, HolderIndex, Loss, decode_clients
from shoal_protocol.wire.errors import ProtocolError
from shoal_studies.catalogue.study import bounds_read
from shoal_studies.registry import Task
from shoal_studies.simulation import SimulatedFederation
from shoal_studies.study_request import Position, StudyRequest, foreseen_refusal

UNDECLARED: Final = "it has declared nothing: ask it whether it would answer"
BEYOND: Final = (
    "Known to data holders alone: caps that they do not declare, and what owners decide."
)


ASSUMED: Final = (
    "Simulated: the job is run several times on invented records, each time with other noise. "
    "Numbers are normal about the middle of what the job reads of a column, with a sixth of that "
    "range for standard deviation; columns are not related. This is a guide, and no bound: where "
    "values lie closer together than that, a slope's interval is wider in the same proportion. A "
    "SimulatedFederation of records like yours tells more."
)
_MOST_CLIENTS: Final = 200_000
_RUNS: Final = (3, 12)  # fewest and most; between them as `_MOST_ANSWERS` allows
_MOST_ANSWERS: Final = 2_000_000  # of clients in all rounds of all runs
_CHOSEN: Final = frozenset({"classes", "levels", "outcome"})
_SEED: Final = 1  # so that a second look says the same


class Refusal(pydantic.BaseModel):
    """Why the trainer would not take a job."""

    code: str
    detail: str


class EpsilonLeft(pydantic.BaseModel):
    """The largest epsilon of one more job, with discrete Laplace or with Gaussian noise."""

    pure: Loss
    gaussian: Loss


class Budget(pydantic.BaseModel):
    """How many clients have as much left; of `left`, each could pay either."""

    clients: Count
    left: EpsilonLeft


class TrainersWord(pydantic.BaseModel):
    """What the trainer says of a job that is not submitted.

    `able` are slots, as documents encode them. `services` says of Compute nodes and the aggregator
    why they cannot do their work now, None if they can; `heard` when data holders' agents asked for
    jobs last, by index, for which the trainer waited a moment after `asked_at`.
    """

    refusal: Refusal | None
    able: str
    left: EpsilonLeft
    services: dict[str, str | None]
    asked_at: datetime
    heard: dict[HolderIndex, datetime]


class DeclarationPage(pydantic.BaseModel):
    """Declarations as they were signed, and where to go on."""

    documents: list[dict[str, Any]]
    next: Position | None


@dataclass(frozen=True)
class ExpectedError:
    """Of one number of the posterior: its standard deviation, and half of its 95 % interval.

    Both are medians over the simulated jobs; one in ten had half an interval of `large_reach`.
    """

    name: str
    sd: float
    reach: float
    large_reach: float


@dataclass(frozen=True)
class HolderVerdict:
    """Whether a data holder would answer, by its declaration; `reason` says why not.

    `able` of its `slots` have budget left for the job. Its agent asked for jobs at `heard_at` last,
    None if it did not since the trainer started; who did not just now is away, and would not.
    """

    holder: int
    slots: int
    able: int
    reason: str | None
    heard_at: datetime | None


@dataclass(frozen=True)
class JobCheckReport:
    """What would become of a job. `left` is what each slot that can pay could pay instead.

    `services` says why Compute nodes and the aggregator cannot do their work now, by the trainer's
    word; None if they can. All of `nodes` are Compute nodes.
    """

    request: StudyRequest
    refusal: Refusal | None
    left: EpsilonLeft
    holders: tuple[HolderVerdict, ...]
    services: Mapping[str, str | None]
    nodes: tuple[str, ...]

    @property
    def answering(self) -> int:
        """Return how many slots would answer, as far as data holders declare and are there."""
        return sum(each.able for each in self.holders if each.reason is None)

    @property
    def fitting(self) -> int:
        """Return how many of them can join at most: each data holder with all its slots."""
        most = min(self.request.maximum_population, self.answering)
        sums = 1  # bit n tells whether some of the data holders have n slots together
        for slots, left in Counter(each.able for each in self.holders if not each.reason).items():
            part = 1
            while left:
                sums |= (sums << part * slots) & ((2 << most) - 1)
                left -= part
                part = min(2 * part, left)
        return sums.bit_length() - 1

    @property
    def reached(self) -> str:
        """Say which services the trainer reached just now."""
        there = [name for name, why in self.services.items() if why is None]
        away = [f"{name} is away: {why}" for name, why in self.services.items() if why is not None]
        return "; ".join([", ".join(["trainer", *there]), *away])

    @property
    def advice(self) -> tuple[str, ...]:
        """Return what to do before the job can run; nothing if it would."""
        advice = [] if self.refusal is None else [f"{self.refusal.code}: {self.refusal.detail}"]
        if self.answering < self.request.minimum_population:
            advice.append(
                f"{self.answering:,} clients would answer, {self.request.minimum_population:,} are "
                "needed: mend what data holders refuse, see that those away run, or ask for fewer"
            )
        elif self.fitting < self.request.minimum_population:
            advice.append(
                f"at most {self.fitting:,} of the {self.answering:,} clients that would answer fit "
                f"below maximum_population = {self.request.maximum_population:,}, since a data "
                f"holder joins with all its slots, and {self.request.minimum_population:,} are "
                f"needed: raise maximum_population to {self.answering:,}"
            )
        needed = self.request.sharing.needed(len(self.nodes))
        away = [name for name, why in self.services.items() if why is not None]
        if len(self.nodes) - len(away) < needed or set(away) - set(self.nodes):
            advice.append(
                f"of the services, there are {self.reached}. The aggregator and {needed} of "
                f"{len(self.nodes)} Compute nodes are needed: tell their operators"
            )
        return tuple(advice)

    @property
    def would_run(self) -> bool:
        """Tell whether the job would be taken, and enough clients join it."""
        return not self.advice

    def expected_errors(
        self, variables: Iterable[Number | Flag | Category | Date] = ()
    ) -> tuple[ExpectedError, ...]:
        """Simulate the job with the clients that would answer, by invented records.

        Returned is what to expect of each number of the posterior. `variables` are those of the
        data dictionary, as far as there is one.

        Raises:
            ValueError: the job cannot be simulated; the message says why.
        """
        request = self.request
        size = min(max(self.answering, request.minimum_population), request.maximum_population)
        if size > _MOST_CLIENTS:
            raise ValueError(f"{size:,} clients are too many to be simulated here")
        if request.task.name == "numpyro_model":
            raise ValueError("a model of your own is simulated by a SimulatedFederation")
        records = _invented(request.task, {each.name: each for each in variables}, size)
        federation = SimulatedFederation(
            records, **request.privacy.model_dump(exclude={"mechanism"}), seed=_SEED
        )
        runs = int(np.clip(_MOST_ANSWERS // (size * request.task.rounds), *_RUNS))
        errors: dict[str, list[tuple[float, float]]] = {}
        for _ in range(runs):
            posterior = federation.learn(request.task).posterior
            reaches = np.diff(posterior.interval(0.95), axis=1)[:, 0] / 2.0
            for name, sd, reach in zip(posterior.names, posterior.sd, reaches, strict=True):
                errors.setdefault(name, []).append((sd, reach))
        quantiles = {name: np.quantile(each, (0.5, 0.9), axis=0) for name, each in errors.items()}
        return tuple(
            ExpectedError(name, sd=float(sd), reach=float(reach), large_reach=float(large))
            for name, ((sd, reach), (_, large)) in quantiles.items()
        )


def _invented(
    task: Task, known: Mapping[str, Number | Flag | Category | Date], size: int
) -> dict[str, NDArray[np.float64]]:
    """Return records by the names of the variables that the task reads."""
    levels = {each.variable: each.values for each in task.codings if each.kind in _CHOSEN}
    whole = {each.variable for each in task.codings if each.kind in ("event", "count")}
    times = {each.variable for each in task.codings if each.kind == "time"}
    lower: dict[str, float] = {}
    upper: dict[str, float] = {}
    for name, low, high, is_whole in bounds_read(task.columns):
        lower[name] = min(low, lower.get(name, low))
        upper[name] = max(high, upper.get(name, high))
        whole |= {name} if is_whole else set()
    generator = np.random.default_rng(_SEED)  # noqa: TID251 - of invented records
    records = {}
    for name, low in lower.items():
        variable = known.get(name)
        if name in levels:
            records[name] = generator.choice(levels[name], size)
        elif isinstance(variable, Flag | Category) or name in whole:
            high = variable.limits[1] if isinstance(variable, Category) else upper[name]
            records[name] = generator.integers(int(low), int(high) + 1, size).astype(np.float64)
        elif name in times:
            records[name] = generator.uniform(low, upper[name], size)
        else:
            middle, sd = (low + upper[name]) / 2.0, (upper[name] - low) / 6.0
            records[name] = np.clip(generator.normal(middle, sd, size), low, upper[name])
    return records


def newest(
    documents: Iterable[Mapping[str, Any]], book: ManifestBook
) -> dict[int, HolderDeclaration]:
    """Return each holder's latest declaration of those that its key in force signed."""
    verified = []
    for document in documents:
        # one that is forged, or by a key that was replaced, is as if nothing were declared
        with suppress(ProtocolError):
            signed = from_json(document, HolderDeclaration)
            book.get(signed.body.manifest).verify_in_force(signed, book.current)
            verified.append(signed.body)
    verified.sort(key=lambda body: body.declared_at)
    return {body.holder: body for body in verified}


def report(
    request: StudyRequest,
    word: TrainersWord,
    declared: Mapping[int, HolderDeclaration],
    book: ManifestBook,
    *,
    now: datetime,
) -> JobCheckReport:
    """Judge a job by what trainer and data holders say."""
    roster, able = book.current.roster, decode_clients(word.able)
    variables = {name for each in declared.values() for name in each.variables}
    verdicts = []
    for holder in range(roster.holders):
        if slots := roster.slots_of(holder) & roster.enrolled_set:
            declaration, heard_at = declared.get(holder), word.heard.get(holder)
            reasons = [
                _away(heard_at, word.asked_at),
                UNDECLARED
                if declaration is None
                else foreseen_refusal(request, declaration, variables=variables, now=now),
            ]
            reason = "; ".join(filter(None, reasons)) or None
            verdicts.append(HolderVerdict(holder, len(slots), len(slots & able), reason, heard_at))
    nodes = tuple(node.name for node in book.current.manifest.compute_nodes)
    refusal = word.refusal
    if refusal is not None:
        detail = naming_columns(refusal.detail, request)
        refusal = refusal.model_copy(update={"detail": detail})
    return JobCheckReport(request, refusal, word.left, tuple(verdicts), word.services, nodes)


def _away(heard_at: datetime | None, asked_at: datetime) -> str | None:
    """Say that a data holder's agent did not ask for jobs while the trainer waited for that."""
    if heard_at is None:
        last = "since the trainer started"
    elif heard_at < asked_at:
        last = (
            f"for {(asked_at - heard_at).total_seconds():,.0f} s, since "
            f"{heard_at:%Y-%m-%d %H:%M:%S} UTC"
        )
    else:
        return None
    return f"it is away, not heard of {last}: see that its agent runs and reaches the trainer"

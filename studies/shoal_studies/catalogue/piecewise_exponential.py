"""Hazard ratios from piecewise exponential regression, in five rounds of everybody."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.jobs.job_request import RoundTerms
from shoal_protocol.queries import Column, HazardScoreSum, WeightedRowMatrix
from shoal_protocol.queries.columns import ColumnBounds, Level, Term
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.scores import MOST_INTERVALS
from shoal_protocol.trust.dictionary import Coding, codings_of_events
from shoal_protocol.wire.encoding import Finite, Real
from shoal_studies.catalogue import regression as rules
from shoal_studies.catalogue.regression import MeasuredCoefficients
from shoal_studies.catalogue.study import EventStudy, FixedStudy, round_terms
from shoal_studies.posteriors.base import LEVEL, BasePosterior, normal_intervals, rows_of


class SurvivalCurves(NamedTuple):
    """Survival of n rows at the ends of J intervals, shape (n, J), with `intervals`, (n, J, 2).

    `times`, shape (J + 1,), are the edges: at the first survival is 1. `bands` hold a whole curve.
    """

    times: Floats
    survival: Floats
    intervals: Floats
    bands: Floats


class PiecewiseExponentialPosterior(MeasuredCoefficients):
    """Log hazard ratios of the features, then baseline log hazards of the intervals of `edges`.

    The baseline is that of a record whose features are the `centres`. The `target` is the event.
    `scatter` is how many times as much as the model says scores scatter.
    """

    name: Literal["piecewise_exponential_regression"] = "piecewise_exponential_regression"
    time: str
    edges: Annotated[tuple[Finite, ...], Field(min_length=2)]
    centres: tuple[Finite, ...]

    @model_validator(mode="after")
    def _features_first(self) -> Self:
        due = names_of(self.features, self.edges)
        if self.names != due or len(self.centres) != len(self.spreads):
            raise ValueError("names must be the features and then the intervals")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, in order."""
        return self.names[: len(self.spreads)]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record: the features, then time and event."""
        return (*self.features, self.time, self.target)

    @property
    def title(self) -> str:
        return f"Piecewise exponential regression of {self.target} by {self.time}"

    @property
    def units(self) -> Floats:
        return np.array([*self.spreads, *[1.0] * (len(self.edges) - 1)])

    @property
    def slopes(self) -> list[int]:
        return list(range(len(self.features)))

    @property
    def ratio(self) -> str:
        return "hazard ratio"

    def survival(self, rows: Floats, level: float = LEVEL) -> SurvivalCurves:
        """Return how likely records with features `rows`, shape (n, q), are without event.

        By a normal approximation of the cumulative hazard's logarithm (Kalbfleisch and Prentice
        2002, section 1.4.2). Bands are by Bonferroni's inequality.

        Raises:
            ValueError: `rows` does not have one column per feature; or `level` is not strictly
                between 0 and 1.
        """
        rows = rows_of(rows, self.features)
        away = rows - np.array(self.centres)
        slopes, logs = np.split(self.mean, [len(self.features)])
        hazards = np.exp(np.clip(logs, -700.0, 700.0)) * np.diff(self.edges)
        whole = np.cumsum(hazards)
        shares = np.tril(np.ones((len(hazards), len(hazards)))) * hazards / whole[:, None]
        middles = np.log(whole) + (away @ slopes)[:, None]
        gradients = np.concatenate(
            [
                np.broadcast_to(away[:, None, :], (*middles.shape, away.shape[1])),
                np.broadcast_to(shares, (*middles.shape, len(hazards))),
            ],
            axis=2,
        )
        spreads = np.einsum("njk,kl,njl->nj", gradients, self.covariance_matrix, gradients)
        sds = np.sqrt(np.maximum(spreads, 0.0))
        ends = [
            normal_intervals(middles.ravel(), sds.ravel(), each).reshape(*middles.shape, 2)
            for each in (level, 1.0 - (1.0 - level) / len(hazards))
        ]
        intervals, bands = (_surviving(each)[..., ::-1] for each in ends)
        return SurvivalCurves(np.array(self.edges), _surviving(middles), intervals, bands)


def names_of(features: Sequence[str], edges: Sequence[float]) -> tuple[str, ...]:
    """Return the names of features and of the intervals' baseline log hazards, in order."""
    spans = (f"log hazard from {low:.6g} to {high:.6g}" for low, high in pairwise(edges))
    return (*features, *spans)


def _surviving(logs: Floats) -> Floats:
    return np.asarray(np.exp(-np.exp(np.clip(logs, -700.0, 700.0))))


_ASIDE: Final = 1024.0  # half ranges: a column so wide is 0 in a row
_LONG: Final = 3.0  # squared norm of features that is not shrunk, over the number of them
_LONGEST: Final = 330.0  # of whole rows: as `weighted_rows` has it


def moments_query(
    task: "PiecewiseExponentialTask", features: tuple[Column, ...], centre: float
) -> WeightedRowMatrix:
    """Return the query for moments of features, and of the event about its `centre`.

    The time's part in a row is nothing.
    """
    *_, time, event = (each.column() for each in task.columns)
    aside = time.model_copy(update={"scale": _ASIDE * time.scale})
    about = event.model_copy(update={"centre": centre, "scale": 1.0})
    return rules.unweighted_moments_query(task, (*features, aside, about), squared_radius(task))


def squared_radius(task: "PiecewiseExponentialTask") -> float:
    """Return the squared radius of constant and features, in spreads.

    It is wider than of other regressions: hazards are seldom linear in rows far out.
    """
    return min(1.0 + _LONG * len(task.features), _LONGEST)


def score_query(
    task: "PiecewiseExponentialTask",
    features: tuple[Column, ...],
    *,
    point: tuple[float, ...],
    basis: tuple[tuple[float, ...], ...],
    hazard_cut: float,
) -> HazardScoreSum:
    """Return the query at `point`: log hazards at the centres, then coefficients, in spreads.

    Scores are of the features times `basis`, a lower triangle.
    Times are told apart beyond the last edge, too: there events are left out.
    """
    places = len(task.times) - 1
    time, event = (each.column() for each in task.columns[-2:])
    wide = time.model_copy(update={"centre": task.time.upper, "scale": 2.0 * time.scale})
    return HazardScoreSum(
        **rules.parts(task, (*features, wide, event), intercept=rules.CONSTANT),
        radius=math.sqrt(squared_radius(task)) / rules.REACH,
        edges=task.times,
        basis=basis,
        point=(*point[:places], *rules.within_reach(point[places:])),
        hazard_cut=hazard_cut,
    )


class PiecewiseExponentialTask(EventStudy, FixedStudy):
    """How `features` multiply the hazard of an event, which is constant in each interval of time.

    A record's `time` is that of its event where `event` is 1, or is `event_value`, else when it was
    last seen without one. There are `intervals` of one width between the bounds of `time`, or
    between `edges`; what is later than the last of them is left out. Hazard ratios are those of
    Cox's regression, but for what the baseline hazard changes within an interval (Holford 1980;
    Laird and Olivier 1981).

    A first round measures centres and spreads, a second the features' moments, and three rounds
    release events, hazards and scores, each where those before lead to. `prior_sd` is the prior
    standard deviation of a log hazard ratio, for one standard deviation of the feature.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (PiecewiseExponentialPosterior,)
    example: ClassVar[str] = """\
[task]
name = "piecewise_exponential_regression"
event = "died"                 # 1 where the time is that of an event, or
# event_value = 2              # what it is there
intervals = 8

[features]                     # public bounds, from general knowledge, never from the data
age = [18, 100]
treatment = [0, 1]

[time]                         # from where records are at risk
weeks = [0, 120]

"""

    name: Literal["piecewise_exponential_regression"] = "piecewise_exponential_regression"
    features: Annotated[tuple[ColumnBounds, ...], Field(min_length=1, max_length=250)]
    intervals: Annotated[int, Field(ge=1, le=MOST_INTERVALS, strict=True)] = 8
    edges: (
        Annotated[tuple[Real, ...], Field(min_length=2, max_length=MOST_INTERVALS + 1)] | None
    ) = None
    prior_sd: Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)] = 2.5

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.kinds_of_rounds(least=2, most=2)  # names that are distinct
        return self

    @property
    def columns(self) -> tuple[ColumnBounds, ...]:
        """The features in order, then time and event: the columns of a client's records."""
        value, term = self.event_value, None
        if value is not None:
            term = Term(factors=(Level(variable=self.event, value=value),))
        event = ColumnBounds(name=self.event, lower=0.0, upper=1.0, term=term)
        return (*self.features, self.time, event)

    @property
    def codings(self) -> tuple[Coding, ...]:
        events = codings_of_events(self.time, self.event, self.event_value)
        return (*super().codings, *events)

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        features = tuple(each.column() for each in self.features)
        zero = (0.0,) * (len(self.times) - 1 + len(features))
        scores = score_query(self, features, point=zero, basis=(), hazard_cut=1.0)
        return (
            round_terms(rules.first_query(self)),
            rules.measured_terms(moments_query(self, features, 0.5)),
            rules.measured_terms(scores, rounds=rules.SCORE_ROUNDS),
        )

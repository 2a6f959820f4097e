"""The second moments of many columns: one matrix that answers many questions afterwards.

The learner chooses the ball where noise and what rows lose are least together.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator
from scipy.special import ndtr, ndtri

from shoal_protocol.jobs.job_request import Range, RoundTerms
from shoal_protocol.queries import Column, SecondMomentMatrix
from shoal_protocol.queries.columns import ColumnBounds, ColumnName, distinct
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.moments import NORM_RATIO
from shoal_protocol.queries.sums import largest_norms
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Finite, PositiveSize
from shoal_studies.catalogue.measurements import query_of
from shoal_studies.catalogue.regression import (
    CONSTANT,
    REACH,
    first_query,
    length_query,
    measured_terms,
    misplaced,
    parts,
)
from shoal_studies.catalogue.study import FixedStudy, require_due, round_terms
from shoal_studies.contract import Learner, RequestedRound
from shoal_studies.posteriors.base import LEVEL, BasePosterior, cut_normal_moments
from shoal_studies.posteriors.summaries import Summary
from shoal_studies.regression.linear import noise_sd, sure_norms
from shoal_studies.regression.measured import Measured, measured, records_of

MOST_SHOWN: Final = 40
"""Correlations in a summary: those that are surest not to be 0."""

_SCATTER: Final = 1.2
"""Of correlations' sampling variance, over that of normal records."""

_UNSURE: Final = 0.15  # relative, of a variance in measured spreads, beside their looseness
_VARIES: Final = 0.25  # of the variance that the first round measured
_LEAST_KEPT: Final = 0.4
_MOST_LOST: Final = 0.5
_NEAREST: Final = 0.999  # to 1, of a correlation whose sampling is looked at
_FARTHEST: Final = 6.0  # standard deviations outside of what a correlation can be


class MeasuredColumn(Model):
    """A column with its public bounds, and the centre and spread by which a round measured it.

    A spread may well be as small as `spread` over `looseness`. `is_binary`: all values seem to be
    at the bounds.
    """

    name: ColumnName
    lower: Finite
    upper: Finite
    centre: Finite
    spread: PositiveSize
    looseness: PositiveSize
    is_binary: bool


class MomentsPosterior(BasePosterior):
    """Correlations of columns, and the noisy matrix from which they and more are computed.

    A row is 1 and the columns, less their centres and over their spreads; one whose squared norm is
    above `squared_radius` was shrunk to that. `sums` are over records: the squares of a row's
    coordinates, then the products of each with those after it, row by row, with noise of
    `square_sd` and `product_sd`. `record_count` is how many records the noisy count says.
    """

    name: Literal["moments"] = "moments"
    variables: Annotated[tuple[MeasuredColumn, ...], Field(min_length=2, max_length=250)]
    sums: tuple[Finite, ...]
    square_sd: PositiveSize
    product_sd: PositiveSize
    squared_radius: PositiveSize
    record_count: PositiveSize
    record_count_sd: PositiveSize

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        size = len(self.variables) + 1
        if len(self.sums) != size * (size + 1) // 2:
            raise ValueError("sums must be the squares and products of a constant and the columns")
        if len(set(self.columns)) != len(self.columns):
            raise ValueError("two columns have the same name")
        if self.names != pairs_of(self.columns):
            raise ValueError("names must be those of all pairs of columns, in order")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record."""
        return tuple(each.name for each in self.variables)

    @cached_property
    def matrix(self) -> Floats:
        """The sums as a symmetric matrix, shape (m + 1, m + 1), the constant first."""
        size = len(self.variables) + 1
        matrix = np.zeros((size, size))
        matrix[np.triu_indices(size, 1)] = self.sums[size:]
        matrix += matrix.T
        matrix[np.diag_indices(size)] = self.sums[:size]
        return matrix

    @property
    def kept(self) -> float:
        """The mean square of the factors by which rows were shrunk, from .4 to 1."""
        return float(np.clip(self.sums[0] / self.record_count, _LEAST_KEPT, 1.0))

    @property
    def lost(self) -> float:
        """The share that rows lost of their squares when they were shrunk, about: up to .5."""
        expected = self.record_count * len(self.matrix)
        return float(np.clip(1.0 - np.trace(self.matrix) / expected, 0.0, _MOST_LOST))

    @cached_property
    def variances(self) -> tuple[Floats, Floats]:
        """Variances of the shrunk rows' columns, in spreads, and the relative noise, shapes (m,).

        Where noise hides them they are what the first round's spreads let expect.
        """
        seen = np.maximum(np.diagonal(self._covariance), 0.0)
        loose = np.array([each.looseness for each in self.variables])
        expected = self.kept * np.sqrt(_UNSURE**2 + 2.0 * np.log(loose))
        error = self.square_sd / self.record_count
        weights = expected**2 / (expected**2 + error**2)
        variances = self.kept + weights * (seen - self.kept)
        return variances, np.sqrt(weights) * error / variances

    @cached_property
    def _covariance(self) -> Floats:
        count, kept = self.record_count, self.kept
        means = self.matrix[0, 1:] / (count * kept)
        sure = means**2 - (self.product_sd / (count * kept)) ** 2  # noise alone is no mean
        means = np.sign(means) * np.sqrt(np.maximum(sure, 0.0))
        return np.asarray(self.matrix[1:, 1:] / count - kept * np.outer(means, means))

    @cached_property
    def seen(self) -> Floats:
        """Correlations as the noisy matrix has them, shape (m, m): possibly impossible ones."""
        roots = np.sqrt(self.variances[0])
        seen: Floats = self._covariance / np.outer(roots, roots)
        np.fill_diagonal(seen, 1.0)
        return seen

    @cached_property
    def _seen(self) -> tuple[Floats, Floats]:
        """What is seen of each pair, and its standard deviation, shapes (k,).

        This counts noise, what is not known of the spreads, the sampling of records that are about
        normal, and what shrinking may have pulled.
        """
        rows, others = np.triu_indices(len(self.variables), 1)
        variances, errors = self.variances
        found = self.seen[rows, others]
        nearest = np.clip(found, -_NEAREST, _NEAREST)
        noise = (self.product_sd / self.record_count) ** 2 / (variances[rows] * variances[others])
        spread = noise + nearest**2 / 4.0 * (errors[rows] ** 2 + errors[others] ** 2)
        spread += (self.lost * nearest) ** 2
        spread += _SCATTER * (1.0 - nearest**2) ** 2 / self.record_count
        sd = np.sqrt(spread)
        reach = 1.0 + _FARTHEST * sd
        return np.clip(found, -reach, reach), sd

    @cached_property
    def _ends(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Which correlations are below 0; of all, without their sign, where -1 and 1 are.

        As shares of a standard normal's values, and in its standard deviations, shapes (k,).
        """
        seen, sd = self._seen
        low, high = (-1.0 - np.abs(seen)) / sd, (1.0 - np.abs(seen)) / sd
        return np.where(seen < 0.0, -1.0, 1.0), ndtr(low), low, high

    def _at(self, shares: Floats) -> Floats:
        """Return the quantiles at `shares`, shape (n, k): a normal's between -1 and 1."""
        seen, sd = self._seen
        sign, least, _, high = self._ends
        inner = np.where(sign > 0.0, shares, 1.0 - shares)
        below = least + inner * (ndtr(high) - least)
        values = np.abs(seen) + sd * ndtri(below)
        return np.asarray(sign * np.clip(values, -1.0, 1.0))

    @cached_property
    def _moments(self) -> tuple[Floats, Floats]:
        seen, sd = self._seen
        sign, _, low, high = self._ends
        shift, spread = cut_normal_moments(low, high)
        mean = sign * np.clip(np.abs(seen) + sd * shift, -1.0, 1.0)
        return mean, sd * np.sqrt(np.maximum(spread, 1e-6))

    @property
    def mean(self) -> Floats:
        return self._moments[0]

    @property
    def sd(self) -> Floats:
        return self._moments[1]

    def _quantiles(self, low: float, high: float) -> Floats:
        return self._at(np.array([[low], [high]]) * np.ones(len(self.names))).T

    def sample(self, count: int, generator: np.random.Generator) -> Floats:
        """Return `count` draws of each correlation by itself, shape (count, k)."""
        return self._at(generator.random((count, len(self.names))))

    @property
    def title(self) -> str:
        """What it is a posterior of, in words."""
        return f"Correlations of {len(self.variables)} columns"

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        noise = self.product_sd / (self.record_count * self.kept)  # in a correlation of 0
        return (
            ("Noise", f"of sd {noise:.2g} in each correlation"),
            ("Lost by shrinking long rows", f"about {self.lost:.0%} of all squares"),
        )

    @property
    def unvaried(self) -> tuple[str, ...]:
        """Names of the columns that hardly vary, as far as noise lets that be seen.

        Or whose spread few records far out make up: rows of these were shrunk.
        """
        seen, error = np.diagonal(self._covariance), self.square_sd / self.record_count
        narrow = (seen + 2.0 * error < _VARIES * self.kept).tolist()
        return tuple(name for name, it_is in zip(self.columns, narrow, strict=True) if it_is)

    @property
    def caution(self) -> str | None:
        said = (
            misplaced(
                each.name,
                (each.lower, each.upper),
                centre=each.centre,
                spread=each.spread,
                looseness=each.looseness,
                is_binary=each.is_binary,
            )
            for each in self.variables
        )
        found = [f"{each}; its correlations are of what is left of it" for each in said if each]
        if self.unvaried:
            found.append(
                f"{', '.join(self.unvaried)} hardly varies, or few records far out make up most of "
                "it: its correlations are not defined, or tell nothing"
            )
        return "; ".join(found) or None

    def clearest(self) -> list[int]:
        """Return where the correlations are that are surest not to be 0, in order."""
        return sorted(np.argsort(-np.abs(self.mean) / self.sd, kind="stable")[:MOST_SHOWN].tolist())

    def summary(self, level: float = LEVEL) -> Summary:
        """Return means, standard deviations and intervals of the clearest correlations.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        whole = super().summary(level)
        if len(whole.rows) <= MOST_SHOWN:
            return whole
        rows = tuple(whole.rows[each] for each in self.clearest())
        shown = Summary(whole.title, whole.headings, rows, whole.facts)
        return shown.with_facts(("Shown", f"the clearest {MOST_SHOWN} of {len(whole.rows):,}"))


def pairs_of(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the correlations of columns, in the order of a posterior's numbers."""
    return tuple(
        f"correlation[{one}, {other}]" for one, other in itertools.combinations(columns, 2)
    )


def matrix_query(
    task: "MomentsTask", columns: tuple[Column, ...], squared_radius: float
) -> SecondMomentMatrix:
    """Return the query for the matrix; the radius is of constant and columns, in spreads."""
    radius = math.sqrt(squared_radius) / REACH
    return SecondMomentMatrix(**parts(task, columns, intercept=CONSTANT), radius=radius)


def squared_radii(task: "MomentsTask") -> tuple[float, ...]:
    """Return what the squared radius is chosen from, in spreads: 27 of them."""
    columns = tuple(bounds.column() for bounds in task.columns)
    norms = REACH * largest_norms(length_query(task, columns))
    return tuple((1.0 + norms**2).tolist())


class MomentsTask(FixedStudy):
    """The second moments of `columns`, bought once: `shoal.answers` answers from them alone.

    Correlations, and linear regressions of any column on any others, each with intervals that know
    of the noise, and at no further price.

    A first round measures centres and spreads of all columns, a second one counts rows by their
    norm in these units, and a third releases the matrix of rows that are shrunk into a ball. More
    columns mean longer rows and so more noise in each product: about in proportion to their number.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (MomentsPosterior,)
    example: ClassVar[str] = """\
[task]
name = "moments"

[columns]                      # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]
systolic_pressure = [60, 220]

"""

    name: Literal["moments"] = "moments"
    columns: Annotated[
        tuple[ColumnBounds, ...], Field(min_length=2, max_length=250), AfterValidator(distinct)
    ]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if "intercept" in [bounds.name for bounds in self.columns]:
            raise ValueError("no column may be called 'intercept': a model's constant term is")
        return self

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        as_stated = tuple(bounds.column() for bounds in self.columns)
        radii = squared_radii(self)
        smallest, largest = (
            matrix_query(self, as_stated, each).radius or 0.0 for each in (min(radii), max(radii))
        )
        matrix = matrix_query(self, as_stated, min(radii))
        return (
            round_terms(first_query(self)),
            measured_terms(length_query(self, as_stated)),
            measured_terms(matrix, radius=Range(least=smallest, most=largest)),
        )

    def learner(self) -> Learner:
        return Moments(self)


SHARES: Final = (0.16, 0.04, 0.8)
"""Shares of mu^2, or of epsilon, of the three rounds."""

_PULL: Final = 1.5
_SURELY: Final = 2.5


@dataclass(frozen=True)
class Moments:
    """The learner of one `MomentsTask`."""

    task: MomentsTask

    def next(
        self, population: int, sums: Sequence[ReleasedSum]
    ) -> RequestedRound | MomentsPosterior:
        """Return the next round, or the posterior when `sums` are those of all.

        Raises:
            ValueError: `population` is not positive, or `sums` do not answer this task's rounds.
        """
        require_due(self.task, population, sums)
        if not sums:
            return RequestedRound(query=first_query(self.task), share=SHARES[0])
        found = measured(sums[0], self.task.columns, records_of(sums[:1])[0])
        columns = found.features(self.task.columns)
        if len(sums) == 1:
            return RequestedRound(query=length_query(self.task, columns), share=SHARES[1])
        if len(sums) == 2:
            query = self._last_query(found, sums[1], records_of(sums)[0])
            return RequestedRound(query=query, share=SHARES[2])
        return self._posterior(found, sums[2], records_of(sums))

    def _last_query(
        self, found: Measured, counted: ReleasedSum, records: float
    ) -> SecondMomentMatrix:
        """Return the query with the ball for which noise and what rows lose are least together."""
        counts, norms = sure_norms(counted, surely=_SURELY)
        squares = 1.0 + (REACH * norms) ** 2 / NORM_RATIO
        mean = 1.0 + len(self.task.columns)  # of squared norms, in spreads
        costs, queries = [], []
        for squared_radius in squared_radii(self.task):
            columns = found.features(self.task.columns)
            queries.append(matrix_query(self.task, columns, squared_radius))
            # counts below 0 count, too: else noise would look like rows far out
            lost = max(float(counts @ np.maximum(squares - squared_radius, 0.0)), 0.0)
            spread = noise_sd(queries[-1], counted, part=SHARES[1] / SHARES[2], block=1) / records
            costs.append(spread**2 + (_PULL * lost / (mean * records)) ** 2)
            if squared_radius < mean:
                costs[-1] = math.inf
        return queries[int(np.argmin(costs))]

    def _posterior(
        self, found: Measured, released: ReleasedSum, records: tuple[float, float]
    ) -> MomentsPosterior:
        query = query_of(released, SecondMomentMatrix)
        unit = (query.grid / REACH) ** 2
        columns = tuple(
            MeasuredColumn(
                name=bounds.name,
                lower=bounds.lower,
                upper=bounds.upper,
                centre=centre,
                spread=spread,
                looseness=looseness,
                is_binary=not math.isnan(share),
            )
            for bounds, centre, spread, looseness, share in zip(
                self.task.columns,
                found.centres.tolist(),
                found.spreads.tolist(),
                found.looseness.tolist(),
                found.shares.tolist(),
                strict=True,
            )
        )
        return MomentsPosterior(
            names=pairs_of(tuple(each.name for each in columns)),
            records=max(1, round(records[0])),
            variables=columns,
            sums=tuple((released.values[:-1] / unit).tolist()),
            square_sd=float(released.noise_sd[0]) / unit,
            product_sd=float(released.noise_sd[-2]) / unit,
            squared_radius=((query.radius or 0.0) * REACH) ** 2,
            record_count=records[0],
            record_count_sd=records[1],
        )

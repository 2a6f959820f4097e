"""The query of a validation: sums of scores of predictions, and of what calibration is seen by."""

import math
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.queries.columns import Column
from shoal_protocol.queries.design import Mechanism, NoiseDesign
from shoal_protocol.queries.gradients import LARGEST_COORDINATE
from shoal_protocol.queries.moments import Moments
from shoal_protocol.queries.scores import Family, mean_of

Floats = NDArray[np.float64]
_CUT: Final = 0.5  # what a score that was cut counts for
_Coordinate = Annotated[float, Field(ge=-LARGEST_COORDINATE, le=LARGEST_COORDINATE)]
_Point = Annotated[tuple[_Coordinate, ...], Field(min_length=2, max_length=512)]


class PredictionScores(Moments):
    """Sums over the records of each site, each record scored by its own site's point.

    Columns are features, the target, and one for each of `points`: a record is of the first site
    whose column is above the middle of its bounds, or else of none. The prediction is the mean of
    the family at x'`point`, x the constant and the features, and p is where it is between the
    target's bounds, from 0 to 1; y is that of the target, and a class is 0 or 1.

    A site's block is, in units of B^2, the score; but for classes (2 y - 1)^2; half of the records
    whose score was cut; and then for each of `bins` of p the records, their p, and their y. The
    score is cut to [0, 1]: of a class minus the logarithm of what probability it was given, over
    `score_limit`, else (y - p)^2 over it.
    """

    name: Literal["prediction_scores"] = "prediction_scores"
    family: Literal["normal"] | Family
    points: Annotated[tuple[_Point, ...], Field(min_length=1, max_length=64)]
    score_limit: Annotated[float, Field(ge=1e-3, le=30.0)]
    bins: Annotated[int, Field(ge=1, le=20, strict=True)]

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.intercept != 1.0 or self.radius is not None:
            raise ValueError("predictions have a constant of 1 and no ball")
        if len(self.columns) < 2 + len(self.points):
            raise ValueError("predictions need a feature, a target, and a column for each point")
        if {len(each) for each in self.points} != {self.features + 1}:
            raise ValueError("a point has one coordinate for the constant and each feature")
        if self.family != "logistic" and self.score_limit > 1.0:
            raise ValueError("squares of numbers from 0 to 1 are not above 1")
        return self

    @property
    def features(self) -> int:
        """How many of the columns are features: the first."""
        return len(self.columns) - 1 - len(self.points)

    @property
    def target(self) -> Column:
        """The target's column."""
        return self.columns[self.features]

    @property
    def scores(self) -> int:
        """How many sums of a block come before those of the bins."""
        return 2 if self.family == "logistic" else 3

    @property
    def block(self) -> int:
        """Length of a site's block."""
        return self.scores + 3 * self.bins

    @property
    def dimension(self) -> int:
        """Length of the vector: all blocks, and the number of records."""
        return len(self.points) * self.block + 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere but on the number of records.

        All that a record adds is positive, in a block and a bin of its own: so two are apart by no
        more than the two lengths at a right angle. A length is largest where y = 1 was given the
        largest p that still scores 1, q: L2 3 + q^2 or 4 + q^2 squared, L1 3 + q or 4 + q; and 1/4
        and 1/2 more, for it is cut.
        """
        limit = self.score_limit
        largest = math.exp(-limit) if self.family == "logistic" else 1.0 - math.sqrt(limit)
        q = min(1.0, (math.floor(self.grid * largest) + 1) / self.grid)
        rest = self.scores + 1.0
        if mechanism == "discrete_gaussian":
            squared = rest + _CUT**2 + q * q
            changed, left_out = math.sqrt(2.0 * squared), math.sqrt(squared)
        else:
            changed, left_out = 2.0 * (rest + _CUT + q), rest + _CUT + q
        square = self.grid**2
        return self._with_count(
            mechanism,
            (self.dimension - 1, 1.0),
            changed=changed * square,
            left_out=left_out * square,
        )

    def _arranged(self, boxed: Floats) -> Floats:
        """Return site, bin, score, (2 y - 1)^2, p, y and half if it was cut, shape (r, 7)."""
        features, target = boxed[:, : self.features], boxed[:, self.features]
        of_site = boxed[:, self.features + 1 :] > 0.0
        site = np.where(of_site.any(axis=1), of_site.argmax(axis=1), -1)
        points = np.array(self.points)[site]
        predictors = points[:, 0] + np.sum(features * points[:, 1:], axis=1)
        if self.family == "logistic":
            y = np.asarray(target > 0.0, dtype=np.float64)
            p = mean_of("logistic", predictors)
            given = mean_of("logistic", np.where(y > 0.0, predictors, -predictors))
            score = -np.log(given)
        else:
            y = np.asarray(0.5 + 0.5 * target)
            mean = predictors if self.family == "normal" else mean_of(self.family, predictors)
            p = np.clip(0.5 + 0.5 * (mean - self.target.centre) / self.target.scale, 0.0, 1.0)
            score = (y - p) ** 2
        score = np.clip(score / self.score_limit, 0.0, 1.0)
        place = np.minimum(np.floor(p * self.bins), self.bins - 1)
        cut = _CUT * (score >= 1.0)
        return np.column_stack([site, place, score, (2.0 * y - 1.0) ** 2, p, y, cut])

    def _on_the_lattice(self, arranged: Floats) -> NDArray[np.int64]:
        units = np.array([1, 1, *[self.grid] * 5])
        return np.asarray(np.trunc(arranged * units), dtype=np.int64)

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the blocks of `rows`, shape (r, 7), and their number, shape (dimension,)."""
        blocks = np.zeros((len(self.points), self.block), np.int64)
        there = rows[rows[:, 0] >= 0]
        site, place = there[:, 0], there[:, 1]
        for at in range(self.scores - 1):
            np.add.at(blocks[:, at], site, there[:, 2 + at])
        np.add.at(blocks[:, self.scores - 1], site, there[:, 6])
        start = self.scores + place
        np.add.at(blocks, (site, start), self.grid)
        np.add.at(blocks, (site, start + self.bins), there[:, 4])
        np.add.at(blocks, (site, start + 2 * self.bins), there[:, 5])
        return self._counted(self.grid * blocks.ravel(), rows)

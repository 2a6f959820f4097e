"""Queries for sums of clipped gradients, and of scores at a public point and their squares.

`GradientSum` is the query of a mini-batch round. Each record's gradient is taken at a public point
and clipped by itself. The learner adds public terms such as prior and entropy, neither clipped nor
noised. The other queries are for scores of regressions, classes, predictions and hazards.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from shoal_protocol.queries import design
from shoal_protocol.queries.columns import Column, LatticeQuery, design_of, in_levels
from shoal_protocol.queries.design import Floats, Mechanism, NoiseBlock, NoiseDesign, rounded_up
from shoal_protocol.queries.models import GradientModel, InstalledModel, probability, rate
from shoal_protocol.queries.moments import Moments, RegressionMoments, shrinking
from shoal_protocol.queries.tables import ascending
from shoal_protocol.wire.encoding import LARGEST, Positive, Radius, Real

LARGEST_COORDINATE: Final = 1e6
"""Largest magnitude of a coordinate of a point or a basis: far beyond any sensible parameter."""

_LARGEST_CLIP: Final = 1 << 30  # in lattice units: its square and sums of squares fit 64 bits
_LARGEST_GRADIENT: Final = 2.0**400  # its square, and sums of many such, are still floats

Coordinate = Annotated[float, Field(ge=-LARGEST_COORDINATE, le=LARGEST_COORDINATE)]

Gradients = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""A model's gradients, shape (r, d), at a point, shape (d,), of records, shape (r, m)."""


class GradientSum(LatticeQuery):
    """Sum over a client's records of trunc(2^grid_bits clipped(gradient of log p(record | u))).

    u = `point` is in the model's unconstrained space, shape (d,). A record's gradient is shrunk
    into the l2 ball of radius `clip`, so that its direction stays; one that is not finite counts as
    zero. Columns are cut to [-1, 1] by their bounds first.
    """

    name: Literal["gradient_sum"] = "gradient_sum"
    model: GradientModel
    point: Annotated[tuple[Coordinate, ...], Field(min_length=1, max_length=10_000)]
    clip: Positive

    @model_validator(mode="after")
    def _consistent(self) -> "GradientSum":
        if len(self.point) != self.model.dimension(len(self.columns)):
            raise ValueError("the point does not have one coordinate for each latent of the model")
        if not 1.0 <= self.clip * self.grid <= _LARGEST_CLIP:
            raise ValueError("clip times 2^grid_bits must lie between 1 and 2^30")
        return self

    @property
    def dimension(self) -> int:
        """Length of the vector, d."""
        return len(self.point)

    @property
    def squared_norm_limit(self) -> int:
        """Largest squared norm of one record's vector, in lattice units."""
        return design.squared_radius_limit(radius=self.clip, grid_bits=self.grid_bits)

    @property
    def largest_value(self) -> int:
        """Largest magnitude that a coordinate of `encode` can have."""
        return math.isqrt(self.squared_norm_limit) * self.records_per_client

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere: L2 2 r C 2^grid_bits, and sqrt(d) times that in L1.

        Proof: docs/mathematics.md, proposition 2.14.
        """
        norm = rounded_up(math.sqrt(self.squared_norm_limit))
        factor = 1.0 if mechanism == "discrete_gaussian" else math.sqrt(self.dimension)
        return NoiseDesign(
            sensitivity=rounded_up(2.0 * self.records_per_client * norm * factor),
            blocks=(NoiseBlock(coordinates=self.dimension, relative_scale=1.0),),
        )

    def encode(
        self, records: NDArray[np.float64], gradients: Gradients | None = None
    ) -> NDArray[np.int64]:
        """Return the client's contribution, shape (d,), from `records`, shape (r, variables).

        `gradients` are those of an installed model, which this package does not load.

        Raises:
            ValueError: wrong shape, too many records, a number that is not finite, or no
                `gradients` for a model that is not built in.
        """
        return self.summed(self.rows(records, gradients)[in_levels(self.columns, records)])

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum of `rows`, shape (d,)."""
        return np.asarray(np.sum(rows, axis=0))

    def rows(
        self, records: NDArray[np.float64], gradients: Gradients | None = None
    ) -> NDArray[np.int64]:
        """Return each record's vector, shape (r, d): within the ball, in integers.

        Raises:
            ValueError: as `encode`.
        """
        records = design.usable(records, self.column_names, self.records_per_client)
        found = self._gradients(design_of(self.columns, records), gradients)
        if found.shape != (len(records), self.dimension):
            raise ValueError("the model's gradients do not have the shape (records, latents)")
        return design.to_lattice(_with_a_norm(found), radius=self.clip, grid_bits=self.grid_bits)

    def _gradients(
        self, records: NDArray[np.float64], gradients: Gradients | None
    ) -> NDArray[np.float64]:
        centres = np.array([column.centre for column in self.columns])
        scales = np.array([column.scale for column in self.columns])
        point = np.array(self.point)
        boxed = design.to_box(records, centres, scales)
        if not isinstance(self.model, InstalledModel):
            return self.model.gradients(point, boxed)
        if gradients is None:
            raise ValueError("the model of this query is not at hand: its gradients are needed")
        values = boxed if self.model.normalised else _cut(records, centres, scales)
        # always as many rows, so that how long it takes does not tell how many there are
        middle = np.zeros_like(centres) if self.model.normalised else centres
        padded = np.tile(middle, (self.records_per_client, 1))
        padded[: len(values)] = values
        return np.asarray(gradients(point, padded), dtype=np.float64)[: len(values)]


def _cut(
    records: NDArray[np.float64], centres: NDArray[np.float64], scales: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the records cut to their columns' bounds, in the data's own units."""
    with np.errstate(over="ignore"):
        return np.clip(records, centres - scales, centres + scales)


def _with_a_norm(gradients: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows whose norms are floats: a huge one is scaled down, one not finite is zero."""
    finite = np.isfinite(gradients).all(axis=1, keepdims=True)
    rows = np.where(finite, gradients, 0.0)
    largest = np.max(np.abs(rows), axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(largest / _LARGEST_GRADIENT, 1.0))


Family = Literal["normal", "logistic", "poisson", "negative_binomial", "gamma"]
"""What a target is: a number that scatters alike everywhere, one of two classes, a count, a count
that scatters more than Poisson's, a positive number that scatters in proportion to its mean."""

SQUARES_SCALE: Final[dict[Mechanism, float]] = {
    "discrete_gaussian": math.sqrt(2.0),  # the float is above the root, never below
    "discrete_laplace": 2.0,
}
"""Noise of squares of one record's scores over that of scores: the least that costs nothing."""
_CUT_SCALE: Final = 2.0  # the same of the number of cut residuals
LARGEST_PREDICTOR: Final = 30.0
"""Beyond it predictors of all families but the normal are cut: means are floats, far from data."""

_Positive = Annotated[float, Field(gt=0.0, le=LARGEST)]
_Basis = Annotated[tuple[tuple[Coordinate, ...], ...], Field(max_length=512)]


class _UnitScores(Moments):
    """Base of sums of rows w with |w| <= B, and of the squares of some of their coordinates.

    The squares are of the client's sum W over its records, not of each record's w, for records of
    one person are not independent (cluster-robust variances: Liang and Zeger 1986). Sums over the
    clients estimate the variance of the scores' total, however a client's records hang together.

    Scores are of z = A x[:s], where A is a lower-triangular matrix and the i-th row of the `basis`
    has its i + 1 numbers; without a basis z = x. A coordinate of x after the first s has no score,
    but counts in predictors.

    Noise of squares is r times `SQUARES_SCALE` times that of W, r the `records_per_client`. The
    sensitivity follows from |W| <= m B for m records, and hangs neither on A nor on anything else
    in the query. A client in another's place moves B W and the squares, in units of their noise, by
    2 r B^2 in L2 and by 2 sqrt(p + 1) r B^2 in L1, with p the coordinates that have squares. Proof:
    docs/mathematics.md, propositions 2.9 and 2.10.
    """

    basis: _Basis = ()

    @model_validator(mode="after")
    def _is_triangular(self) -> Self:
        if any(len(row) != place for place, row in enumerate(self.basis, start=1)):
            raise ValueError("row i of a basis, counted from 1, has i numbers")
        if len(self.basis) > max(self.coordinates, 0):
            raise ValueError("a basis has one row at most for each coordinate that has a score")
        return self

    @property
    @abstractmethod
    def coordinates(self) -> int:
        """p, the length of x."""

    @property
    def size(self) -> int:
        """s, the length of z = A x[:s]."""
        return len(self.basis) or self.coordinates

    @property
    @abstractmethod
    def squared(self) -> int:
        """How many coordinates of a row, the last, have their squares summed."""

    @property
    def counted(self) -> int:
        """How many numbers that are 0 or 1 come after a row's coordinates."""
        return 0

    @property
    def squared_norm_limit(self) -> int:
        """Largest squared norm of a row, in lattice units: B^2, for it is in the unit ball."""
        return self.grid**2

    @property
    def dimension(self) -> int:
        """Length of the vector: a row's, the squares, what is counted, and how many records."""
        return self.width + self.squared + self.counted + 1

    @property
    def largest_value(self) -> int:
        """Largest magnitude that a coordinate of `encode` can have: a square's, (r B)^2."""
        return self.unit * self.records_per_client**2

    def _scores_design(self, mechanism: Mechanism, changed: float, left_out: float) -> NoiseDesign:
        """Return the design whose bounds are `changed` and `left_out`, over r B^2."""
        squares = SQUARES_SCALE[mechanism] * self.records_per_client
        blocks = (self.width, 1.0), (self.squared, squares), (self.counted, _CUT_SCALE)
        return self._with_count(
            mechanism, *blocks, changed=changed * self.unit, left_out=left_out * self.unit
        )

    def _turned(self, x: Floats) -> Floats:
        """Return z, shape (r, s), of x, shape (r, p)."""
        if not self.basis:
            return x
        matrix = np.zeros((self.size, self.size))
        matrix[np.tril_indices(self.size)] = [number for row in self.basis for number in row]
        return np.asarray(x[:, : self.size] @ matrix.T)

    def _on_the_lattice(self, arranged: Floats) -> NDArray[np.int64]:
        return design.to_lattice(arranged, radius=1.0, grid_bits=self.grid_bits)

    def by_client(
        self, rows: NDArray[np.int64], clients: NDArray[np.intp], count: int
    ) -> NDArray[np.int64]:
        """Return each client's sum of `rows` and then how many it has, shape (count, columns + 1).

        `clients`, shape (r,), says whose each row is.
        """
        sums = np.zeros((count, rows.shape[1] + 1), np.int64)
        np.add.at(sums, clients, _with_number(rows))
        return sums

    def released(self, gathered: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what clients with these sums contribute together, shape (dimension,)."""
        sums, squared = gathered.sum(axis=0), gathered[:, self.width - self.squared : self.width]
        parts = self.grid * sums[: self.width], np.sum(squared * squared, axis=0)
        return np.concatenate([*parts, self.unit * sums[self.width :]])

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what clients with one of these `rows` each contribute together, (dimension,)."""
        return self.released(_with_number(rows))


def _with_number(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.column_stack([rows, np.ones(len(rows), np.int64)])


class ScoreSum(_UnitScores, RegressionMoments):
    """Sum over clients of B W and W^2, B^2 for each cut residual, and B^2 times their records.

    W is the client's sum of w = trunc(B s f cut(v (y - m)) z / (R c)): x is the constant and the
    features, z = A x[:s] by the `basis`, f = min(1, R / |z|) with R the `radius`, m the mean of the
    family at the predictor x'`point`, and v a weight that hangs on m alone. What is beyond +-c, the
    `residual_cut`, is cut to it. So |w| <= B, whatever the basis, the point, the `dispersion` and
    the cut. As f hangs on the features alone, scores are 0 in the mean at the truth.

    The target y is of two classes 1 above the middle of its bounds and 0 below it, else itself, cut
    to its bounds. Residuals are in its units.
    """

    name: Literal["score_sum"] = "score_sum"
    family: Family
    point: Annotated[tuple[Real, ...], Field(min_length=2, max_length=512)]
    dispersion: _Positive
    residual_cut: _Positive
    radius: Radius

    @model_validator(mode="after")
    def _has_features(self) -> Self:
        if len(self.regressed) < 2 or self.intercept == 0.0:
            raise ValueError("scores need a constant, a feature and a target")
        if len(self.point) != self.coordinates:
            raise ValueError("the point has one coordinate for the constant and each feature")
        return self

    @property
    def coordinates(self) -> int:
        """p, the length of x: one for the constant, and one for each feature."""
        return len(self.regressed)

    @property
    def width(self) -> int:
        """s, the length of a score."""
        return self.size

    @property
    def squared(self) -> int:
        """How many coordinates of a row have their squares summed: all."""
        return self.width

    @property
    def counted(self) -> int:
        """One: whether the residual was cut."""
        return 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """Noise of the number of cut residuals is twice that of scores.

        In L2 a client in another's place moves them by sqrt(4 + 1/4) r B^2, one left out by
        sqrt(3/2 + 1/4) r B^2. In L1, with n = sqrt(s + 1), by (2 n + 1/2) r B^2 and
        (3/2 n + 1/2) r B^2. Proof: docs/mathematics.md, proposition 2.10.
        """
        if mechanism == "discrete_gaussian":
            return self._scores_design(mechanism, math.sqrt(4.25), math.sqrt(1.75))
        root = math.sqrt(self.width + 1)
        return self._scores_design(mechanism, 2.0 * root + 0.5, 1.5 * root + 0.5)

    def _arranged(self, boxed: Floats) -> Floats:
        """Return scores over R c, within the unit ball, and whether each was cut: (r, s + 1)."""
        regressed, shares = self._parted(boxed)
        x, radius = super()._arranged(regressed[:, :-1]), self.radius
        means = mean_of(self.family, x @ np.array(self.point))
        weights = weight_of(self.family, means, self.dispersion)
        with np.errstate(over="ignore"):  # infinite residuals are cut, too
            residuals = (self._targets(regressed[:, -1]) - means) * weights
        cut = np.clip(residuals, -self.residual_cut, self.residual_cut)
        z = self._turned(x)
        sizes = shrinking(z, radius) * (cut / self.residual_cut) / radius * shares
        return np.column_stack([z * sizes[:, None], cut != residuals])

    def _targets(self, boxed: Floats) -> Floats:
        """Return targets as the family takes them, shape (r,), of those in [-1, 1]."""
        if self.family == "logistic":
            return np.asarray(boxed > 0.0, dtype=np.float64)
        target = self.regressed[-1]
        return target.centre + target.scale * boxed

    def _on_the_lattice(self, arranged: Floats) -> NDArray[np.int64]:
        scores = super()._on_the_lattice(arranged[:, :-1])
        return np.column_stack([scores, arranged[:, -1].astype(np.int64)])


def mean_of(family: Family, predictors: Floats) -> Floats:
    """Return the means of targets with these predictors, any shape.

    Normal and logistic models have their canonical link, all others the logarithm (McCullagh and
    Nelder 1989, section 2.2).
    """
    if family == "normal":
        return predictors
    cut = np.clip(predictors, -LARGEST_PREDICTOR, LARGEST_PREDICTOR)
    return probability(cut) if family == "logistic" else rate(cut)


def weight_of(family: Family, means: Floats, dispersion: float) -> Floats:
    """Return what a residual y - mean is multiplied by, which hangs on the features alone.

    So sums of weighted residuals are 0 at the truth. It is the weight that makes scores those of
    the likelihood: 1 / (1 + a m) of scattered counts with dispersion a, 1 / m of positive numbers,
    but 1 / (a + m) so that small means weigh no more than a, and 1 of all others.
    """
    match family:
        case "negative_binomial":
            return np.asarray(1.0 / (1.0 + dispersion * means))
        case "gamma":
            return np.asarray(1.0 / (dispersion + means))
        case "normal" | "logistic" | "poisson":
            return np.ones_like(means)


class ClassScoreSum(_UnitScores):
    """Sum over clients of B W and W^2, and B^2 times their records.

    W is the client's sum of w = trunc(B f (d_k - q_k) z / (sqrt(2) R)), one class after the other:
    x is the constant and the features, z = A x[:s] by the `basis`, f = min(1, R / |z|) with R the
    `radius`, d_k 1 if the record is of class k, else 0, and q_k its probability, exp(x'u_k) over
    the sum of all classes', u_k class k's part of the `point`. As a record is of one class at most,
    the sizes of d_k - q_k sum to at most 2, and their squares to 2. So |w| <= B, whatever the basis
    and the point.

    The last columns, one for each of the `classes`, say of which it is: the first that is above the
    middle of its bounds.
    """

    name: Literal["class_score_sum"] = "class_score_sum"
    classes: Annotated[int, Field(ge=2, le=64, strict=True)]
    point: Annotated[tuple[Coordinate, ...], Field(min_length=4, max_length=10_000)]
    radius: Radius

    @model_validator(mode="after")
    def _has_features(self) -> Self:
        if len(self.columns) <= self.classes or self.intercept == 0.0:
            raise ValueError("class scores need a constant, a feature and a column for each class")
        if len(self.point) != self.classes * self.coordinates:
            raise ValueError("the point has one coordinate for each class and constant or feature")
        return self

    @property
    def coordinates(self) -> int:
        """p, the length of x: one for the constant, and one for each feature."""
        return len(self.columns) - self.classes + 1

    @property
    def width(self) -> int:
        """K s, the length of a score: s for each class."""
        return self.classes * self.size

    @property
    def squared(self) -> int:
        """How many coordinates of a row have their squares summed: all."""
        return self.width

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """As `ScoreSum`, without cut residuals.

        L2 2 r B^2, and a client left out sqrt(3/2) r B^2. In L1 (2 sqrt(2 s) + 1) r B^2, and
        one left out half of that; or, if it is less, as of any rows, with n = sqrt(K s + 1),
        2 n r B^2 and 3/2 n r B^2. Proof: docs/mathematics.md, proposition 2.11.
        """
        if mechanism == "discrete_gaussian":
            return self._scores_design(mechanism, 2.0, math.sqrt(1.5))
        of_classes, root = math.sqrt(2.0 * self.size) + 0.5, math.sqrt(self.width + 1)
        bounds = min((2.0 * of_classes, of_classes), (2.0 * root, 1.5 * root))
        return self._scores_design(mechanism, *bounds)

    def _arranged(self, boxed: Floats) -> Floats:
        """Return scores over sqrt(2) R, within the unit ball, shape (r, K s)."""
        x, radius = super()._arranged(boxed[:, : -self.classes]), self.radius
        predictors = x @ np.array(self.point).reshape(self.classes, -1).T
        is_of = boxed[:, -self.classes :] > 0.0
        is_of &= np.cumsum(is_of, axis=1) == 1  # of the first, if columns say it of several
        residuals = is_of - class_probabilities(predictors)
        z = self._turned(x)
        weighted = z * (shrinking(z, radius) / (math.sqrt(2.0) * radius))[:, None]
        scores: Floats = residuals[:, :, None] * weighted[:, None, :]
        return scores.reshape(len(z), self.width)


def class_probabilities(predictors: Floats) -> Floats:
    """Return the probabilities of classes with these predictors, shapes (..., K), cut to +-30."""
    sizes = np.exp(np.clip(predictors, -LARGEST_PREDICTOR, LARGEST_PREDICTOR))
    return np.asarray(sizes / np.sum(sizes, axis=-1, keepdims=True))


_CUT: Final = 0.5  # what a score that was cut counts for
_Point = Annotated[tuple[Coordinate, ...], Field(min_length=2, max_length=512)]


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
    family: Family
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

        With q the largest p that still scores 1 where y = 1, what a record adds is at most as long
        as the square root of 4 + q^2 + 1/4 in L2, 4 + q + 1/2 in L1; of classes one less than 4.
        Two are apart by sqrt(2) and 2 times that. Proof: docs/mathematics.md, proposition 2.13.
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
            score = -np.log(mean_of("logistic", np.where(y > 0.0, predictors, -predictors)))
        else:
            y = np.asarray(0.5 + 0.5 * target)
            mean = mean_of(self.family, predictors)
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


MOST_INTERVALS: Final = 32
_ABOVE_ROUNDING: Final = 1.0 + 1e-9


class HazardScoreSum(_UnitScores):
    """Sum over clients of B W, of the squares of its last coordinates, and B^2 times their records.

    W is the client's sum of w = trunc(B f (k d, k m, (D - M) z) / (c R)): x are the features, z = A
    x[:s] by the `basis`, whose scores are the last coordinates, k the constant, f = min(1, R / |(k,
    z)|) with R the `radius`, d_j is 1 if the event was in interval j, m_j the hazard that the
    record passed through in it, D and M are their sums. The hazard in interval j is the exponential
    of the sum of the j-th of `point` and x times the last of it. A record is followed until M is c,
    the `hazard_cut`, and what happens to it later is left out.

    |w| <= B, whatever the basis, the point and the cut, for R^2 >= 2 k^2 and c >= 1. Proof:
    docs/mathematics.md, proposition 2.12.

    The last columns are the time, and what is above the middle of its bounds where the time is an
    event's. Interval j is from one of the `edges` to the next, without the former, and the first
    from the beginning of time.
    """

    name: Literal["hazard_score_sum"] = "hazard_score_sum"
    edges: Annotated[
        tuple[Real, ...],
        Field(min_length=2, max_length=MOST_INTERVALS + 1),
        AfterValidator(ascending),
    ]
    point: Annotated[tuple[Coordinate, ...], Field(min_length=2, max_length=544)]
    hazard_cut: Annotated[float, Field(ge=1.0, le=100.0)]
    radius: Radius

    @model_validator(mode="after")
    def _has_features(self) -> Self:
        if len(self.columns) < 3 or self.intercept == 0.0:
            raise ValueError("hazards need a constant, a feature, a time and an event")
        if len(self.point) != self.intervals + self.features:
            raise ValueError("the point has one coordinate for each interval and each feature")
        if self.radius**2 < 2.0 * self.intercept**2:
            raise ValueError("hazards need a radius of sqrt(2) times the constant at least")
        return self

    @property
    def intervals(self) -> int:
        """J, how many intervals there are."""
        return len(self.edges) - 1

    @property
    def features(self) -> int:
        """q, how many features there are: all columns but time and event."""
        return len(self.columns) - 2

    @property
    def coordinates(self) -> int:
        """q, the length of x: one for each feature."""
        return self.features

    @property
    def width(self) -> int:
        """2 J + s, the length of a row: events, hazards, scores."""
        return 2 * self.intervals + self.size

    @property
    def squared(self) -> int:
        """How many coordinates of a row have their squares summed: those of scores."""
        return self.size

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """As of `ScoreSum`, without cut residuals: fewer coordinates have squares.

        A client in another's place moves the sums by L2 2 r B^2, one left out by sqrt(3/2) r B^2.
        In L1, with n = sqrt(s + 1), by 2 (2 k / R + n) r B^2 and (2 k / R + 3/2 n) r B^2; or, with
        the width in place of s, by 2 n r B^2 and 3/2 n r B^2. Proof: docs/mathematics.md,
        proposition 2.12.
        """
        if mechanism == "discrete_gaussian":
            return self._scores_design(mechanism, 2.0, math.sqrt(1.5))
        counted = 2.0 * self.intercept / self.radius * _ABOVE_ROUNDING
        pairs = (counted, self.size), (0.0, self.width)
        roots = ((one, math.sqrt(size + 1)) for one, size in pairs)
        bounds = min((2.0 * (one + root), one + 1.5 * root) for one, root in roots)
        return self._scores_design(mechanism, *bounds)

    def _arranged(self, boxed: Floats) -> Floats:
        """Return events, hazards and scores over c R, within the unit ball: (r, 2 J + s)."""
        x, time = boxed[:, :-2], self.columns[-2]
        z = self._turned(x)
        rows = np.column_stack([np.full(len(x), self.intercept), z])
        log_hazards, slopes = np.split(np.array(self.point), [self.intervals])
        happened, passed = followed(
            time.centre + time.scale * boxed[:, -2],
            boxed[:, -1] > 0.0,
            np.array(self.edges),
            np.add.outer(x @ slopes, log_hazards),
            self.hazard_cut,
        )
        residuals = happened.sum(axis=1) - passed.sum(axis=1)
        sizes = shrinking(rows, self.radius) / (self.hazard_cut * self.radius)
        parts = (self.intercept * happened, self.intercept * passed, z * residuals[:, None])
        return np.column_stack(parts) * sizes[:, None]


def followed(
    times: Floats, events: NDArray[np.bool_], edges: Floats, log_hazards: Floats, cut: float
) -> tuple[Floats, Floats]:
    """Return in which interval each record's event was, and the hazard it passed in each: (r, J).

    `log_hazards`, shape (r, J), are in each interval. Times and `events` have shape (r,). A record
    is followed until its hazards add up to `cut`: a rule that knows of no event, so residuals are 0
    in the mean all the same (Andersen et al. 1993, section III.2).
    """
    rates = np.exp(np.clip(log_hazards, -LARGEST_PREDICTOR, LARGEST_PREDICTOR))
    spent = np.clip(times[:, None] - edges[:-1], 0.0, np.diff(edges))
    passed = np.cumsum(rates * spent, axis=1)
    places = np.searchsorted(edges[1:], times, side="left")  # an edge ends its interval
    counted = events & (times <= edges[-1]) & (passed[:, -1] <= cut)
    happened = counted[:, None] & (places[:, None] == np.arange(len(edges) - 1))
    within = np.diff(np.minimum(passed, cut), axis=1, prepend=0.0)
    return happened.astype(np.float64), within

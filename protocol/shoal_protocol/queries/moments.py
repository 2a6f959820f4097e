"""Queries for sums of rows, second moments and weighted moments, and counts of norms."""

import math
from functools import lru_cache
from typing import Annotated, Final, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from shoal_protocol.queries import design
from shoal_protocol.queries.columns import Column, LatticeQuery, design_of
from shoal_protocol.queries.design import Floats, Mechanism, NoiseDesign, rounded_up
from shoal_protocol.wire.encoding import Radius

OFF_DIAGONAL_SCALE: Final = math.sqrt(0.5)
"""Noise off the diagonal relative to the diagonal's: makes the noise isotropic in the Frobenius
norm, where each off-diagonal entry counts twice. The float is above 1/sqrt(2), never below."""


class Moments(LatticeQuery):
    """Base of the moment queries: a record becomes a row w of p integers.

    w = trunc(2^grid_bits r), r = (intercept, u_1, ..., u_m) shrunk into the l2 ball of `radius`,
    u = (x - centre) / scale cut to [-1, 1], x the m `columns`, which terms make of the record.
    Without `intercept` (0) its coordinate is left out.

    A contribution ends with B^2 times the number of the client's records, which is private: noise
    is added to it, as to everything else.
    """

    intercept: Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
    radius: Radius | None
    grid_bits: Annotated[int, Field(ge=4, le=15, strict=True)]

    @model_validator(mode="after")
    def _consistent(self) -> "Moments":
        if 0.0 < self.intercept * self.grid < 1.0:
            raise ValueError("the intercept is finer than the grid: raise grid_bits or set it to 0")
        if self.radius is not None and self.radius * self.grid < 1.0:
            raise ValueError("the radius is finer than the grid: raise grid_bits or the radius")
        return self

    @property
    def width(self) -> int:
        """p, the length of a row: one per column, and one for the intercept if there is one."""
        return len(self.columns) + (self.intercept > 0.0)

    @property
    def squared_norm_limit(self) -> int | None:
        """Largest squared norm of a row, in lattice units; None if the ball contains the box."""
        if self.radius is None:
            return None
        limit = design.squared_radius_limit(radius=self.radius, grid_bits=self.grid_bits)
        return limit if limit < self.width * self.grid**2 else None

    @property
    def constant(self) -> int:
        """k, what the intercept's coordinate is before the ball shrinks the row; 0 without one."""
        return int(self.intercept * self.grid)

    @property
    def unit(self) -> int:
        """B^2, lattice units in one record, and in the longest row's squares."""
        return self.grid**2

    def _counted(self, sums: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return sums over records, shape (d,), and after them the records' number."""
        return np.append(sums, self.unit * len(rows))

    def rows(self, records: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the integer rows w, shape (r, p), of `records`, shape (r, len(column_names)).

        Raises:
            ValueError: wrong shape, too many records, or a number that is not finite.
        """
        records = design.usable(records, self.column_names, self.records_per_client)
        boxed = design.to_box(
            design_of(self.columns, records),
            np.array([column.centre for column in self.columns]),
            np.array([column.scale for column in self.columns]),
        )
        return self._on_the_lattice(self._arranged(boxed))

    def _arranged(self, boxed: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what becomes of rows in [-1, 1], shape (r, m), before they are rounded: (r, p)."""
        return design.with_constant(boxed, self.intercept)

    def _on_the_lattice(self, arranged: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return rows in integers, within the ball."""
        radius = None if self.squared_norm_limit is None else self.radius
        return design.to_lattice(arranged, radius=radius, grid_bits=self.grid_bits)


class SecondMoments(Moments):
    """Sum over the records of (w_1^2, ..., w_p^2), and their number."""

    name: Literal["second_moments"] = "second_moments"

    @property
    def dimension(self) -> int:
        """Length of the vector, p + 1."""
        return self.width + 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere but on the number of records.

        A record in another's place moves each of q columns by B^2, and the intercept by k^2 if
        there is a ball to shrink it; one left out the intercept too. In the ball L2 sqrt(2) R^2 B^2
        and R^2 B^2, L1 2 R^2 B^2 and R^2 B^2. Proof: docs/mathematics.md, proposition 2.4.
        """
        gaussian = mechanism == "discrete_gaussian"
        limit, columns = self.squared_norm_limit, len(self.columns)
        column, rest = float(self.grid**2), float(self.constant**2)
        if gaussian:
            changed = math.sqrt(columns) * column
            left_out = math.hypot(changed, rest)
        else:
            changed = columns * column
            left_out = changed + rest
        if limit is not None:
            both = math.sqrt(2.0) if gaussian else 2.0
            changed, left_out = min(left_out, both * limit), min(left_out, float(limit))
        return self._with_count(mechanism, (self.width, 1.0), changed=changed, left_out=left_out)

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of squares and the number of `rows`, shape (p + 1,)."""
        return self._counted(np.sum(rows * rows, axis=0), rows)


class MomentMatrix(Moments):
    """Sum over the records of vech(w w'): the p squares, then w_i w_j for i < j row by row.

    Then the number of the records.
    """

    @property
    def dimension(self) -> int:
        """Length of the vector, p (p + 1) / 2 + 1."""
        return self.width * (self.width + 1) // 2 + 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """In a box the same noise everywhere; in a ball less off the diagonal.

        A record in another's place moves the products, with q columns, by L2 q B^2 + k^2 in the
        box, L1 q (q + 1) / 2 B^2 + q k B + k^2 q / (2 (q + 1)); one left out by L2
        sqrt(q (q + 1) / 2 B^4 + q k^2 B^2 + k^4), L1 q (q + 1) / 2 B^2 + q k B + k^2. In the ball
        L2 sqrt(2) R^2 B^2 and R^2 B^2, L1 sqrt(p (p + 1)) R^2 B^2 and sqrt(p (p + 1) / 2) R^2 B^2,
        or as in a box if that takes less noise. With p = 1 all are B^2 or R^2 B^2. Proof:
        docs/mathematics.md, propositions 2.2 and 2.3.
        """
        if self.width == 1:
            most = min(self.squared_norm_limit or self.grid**2, self.grid**2)
            return self._design(mechanism, (float(most), float(most)), off_diagonal=1.0)
        box = self._design(mechanism, self._in_a_box(mechanism), off_diagonal=1.0)
        if self.squared_norm_limit is None:
            return box
        limit = float(self.squared_norm_limit)
        limit *= 1.0 if mechanism == "discrete_gaussian" else math.sqrt(self.dimension - 1)
        norms = math.sqrt(2.0) * limit, limit
        ball = self._design(mechanism, norms, off_diagonal=OFF_DIAGONAL_SCALE)
        if mechanism == "discrete_gaussian":
            return ball
        return min(box, ball, key=_variance_of_products)

    def _in_a_box(self, mechanism: Mechanism) -> tuple[float, float]:
        """Return what exchanging a record, and leaving it out, moves at most."""
        columns, square, constant = self.width - bool(self.constant), self.grid**2, self.constant
        pairs = columns * (columns + 1) // 2
        if mechanism == "discrete_gaussian":
            least = pairs * square**2 + columns * square * constant**2 + constant**4
            return float(columns * square + constant**2), math.sqrt(least)
        varying = float(pairs * square + columns * self.grid * constant)
        whole = varying + constant**2
        if self.squared_norm_limit is not None:  # a ball may shrink the constant
            return whole, whole
        return varying + constant**2 * columns / (2 * (columns + 1)), whole

    def _design(
        self, mechanism: Mechanism, bounds: tuple[float, float], *, off_diagonal: float
    ) -> NoiseDesign:
        blocks = (self.width, 1.0), (self.dimension - 1 - self.width, off_diagonal)
        changed, left_out = bounds
        return self._with_count(mechanism, *blocks, changed=changed, left_out=left_out)

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of products and the number of `rows`, shape (dimension,)."""
        products = rows.T @ rows
        pairs = products[np.triu_indices(self.width, 1)]
        return self._counted(np.concatenate([np.diagonal(products), pairs]), rows)


def _variance_of_products(design: NoiseDesign) -> float:
    """Return the noise's variance summed over all but the count, where scale is sensitivity."""
    spread = sum(block.coordinates * block.relative_scale**2 for block in design.blocks[:-1])
    return design.sensitivity**2 * spread


class SecondMomentMatrix(MomentMatrix):
    """The moment matrix of the rows as they are."""

    name: Literal["second_moment_matrix"] = "second_moment_matrix"


LONGEST_VECTOR: Final = 10_000
"""Entries that a vector has at most."""


class FirstMoments(Moments):
    """Sum over the records of B (w_1, ..., w_p), and B^2 times their number.

    The factor B gives the noise as fine a grid as the squares have.
    """

    name: Literal["first_moments"] = "first_moments"

    @property
    def dimension(self) -> int:
        """Length of the vector, p + 1."""
        return self.width + 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere but on the number of records.

        A record in another's place moves each column by 2 B^2, and the intercept by k B if there is
        a ball to shrink it; one left out moves columns by B^2, the intercept by k B. In the ball L2
        2 R B^2 and R B^2, L1 sqrt(p) times that. Proof: docs/mathematics.md, proposition 2.5.
        """
        gaussian = mechanism == "discrete_gaussian"
        limit, columns = self.squared_norm_limit, self.width - bool(self.constant)
        rest = float(self.constant)
        shrunk = 0.0 if limit is None else rest
        if gaussian:
            column = math.sqrt(columns) * self.grid
            changed, left_out = math.hypot(2.0 * column, shrunk), math.hypot(column, rest)
        else:
            column = float(columns * self.grid)
            changed, left_out = 2.0 * column + shrunk, column + rest
        if limit is not None:
            norm = math.sqrt(limit if gaussian else limit * self.width)
            changed, left_out = min(changed, 2.0 * norm), min(left_out, norm)
        return self._with_count(
            mechanism, (self.width, 1.0), changed=changed * self.grid, left_out=left_out * self.grid
        )

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums and the number of `rows`, shape (p + 1,)."""
        return self._counted(self.grid * np.sum(rows, axis=0), rows)


class VectorSum(FirstMoments):
    """First moments of a vector, whose `entries` all have the bounds of the one column.

    Column `x` stands for the variables x_0, x_1, ..., so that a long vector takes a short query.
    """

    name: Literal["vector_sum"] = "vector_sum"  # type: ignore[assignment]
    entries: Annotated[int, Field(ge=1, le=LONGEST_VECTOR, strict=True)]

    @model_validator(mode="after")
    def _one_vector(self) -> Self:
        if len(self.columns) != 1 or self.columns[0].term is not None or self.intercept != 0.0:
            raise ValueError("a vector is one column, without a term, and without a constant")
        return self

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the variables of the records that are the vector's entries, in order."""
        return _entry_names(self.columns[0].name, self.entries)

    @property
    def width(self) -> int:
        """p, the length of the vector."""
        return self.entries


@lru_cache(maxsize=4)
def _entry_names(name: str, entries: int) -> tuple[str, ...]:
    return tuple(f"{name}_{place}" for place in range(entries))


_MOST_IN_L1 = 2.25  # of d (3 - d), at d = 3/2
_OF_SQUARES = 17.0 / 47.0  # what variance the noise of squares has, over that of sums


class ColumnMoments(Moments):
    """Sum over the records of B (w_1, ..., w_m) and (w_1^2, ..., w_m^2), and B^2 their number.

    There is neither a constant nor a ball. The factor B gives all sums one unit.
    """

    name: Literal["column_moments"] = "column_moments"
    intercept: Annotated[float, Field(ge=0.0, le=0.0)]
    radius: None

    @property
    def dimension(self) -> int:
        """Length of the vector, 2 m + 1."""
        return 2 * len(self.columns) + 1

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """Gaussian noise of squares is sqrt(17/47) = .60 times that of sums, Laplace's as wide.

        A record in another's place moves the two sums of a column by L2 2 B^2, as if there were no
        squares, L1 9/4 B^2. One left out moves them by L2 sqrt(64/17) B^2, so that the number of
        records costs nothing, L1 2 B^2. Proof: docs/mathematics.md, proposition 2.7.
        """
        columns, square = len(self.columns), float(self.grid**2)
        if mechanism == "discrete_gaussian":
            scale = rounded_up(math.sqrt(_OF_SQUARES))
            changed = 2.0 * math.sqrt(columns)
            left_out = math.sqrt((1.0 + 1.0 / _OF_SQUARES) * columns)
        else:
            scale, changed, left_out = 1.0, _MOST_IN_L1 * columns, 2.0 * columns
        blocks = (columns, 1.0), (columns, scale)
        return self._with_count(
            mechanism, *blocks, changed=changed * square, left_out=left_out * square
        )

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return sums, sums of squares and the number of `rows`, shape (2 m + 1,)."""
        sums = np.concatenate([self.grid * np.sum(rows, axis=0), np.sum(rows * rows, axis=0)])
        return self._counted(sums, rows)


NORM_BINS: Final = 27
NORM_RATIO: Final = 1.15
"""Each bin's largest norm relative to that of the bin before: 26 of them span a factor of 37."""


class NormCounts(Moments):
    """Counts the rows in each of 27 ranges of the norm |w|, shortest first, times B^2.

    The longest rows, of squared norm T = L in a ball and m B^2 + k^2 in the box, are in the last
    bin. Row w is in bin j if it is in none before and |w|^2 <= T 1.15^(-2 (26 - j)). The factor B^2
    gives the noise a grid to be rounded to. The number of rows follows, with noise of its own:
    that of the bins' sum is 27 times as large.
    """

    name: Literal["norm_counts"] = "norm_counts"

    @property
    def dimension(self) -> int:
        """Length of the vector, 28."""
        return NORM_BINS + 1

    def largest_squares(self) -> NDArray[np.float64]:
        """Return the largest squared norm of each bin, shape (27,), in lattice units."""
        top = self.squared_norm_limit
        if top is None:
            top = len(self.columns) * self.grid**2 + self.constant**2
        steps = np.arange(NORM_BINS - 1, -1, -1, dtype=np.float64)
        return np.asarray(top * np.power(NORM_RATIO, -2.0 * steps))

    def design(self, mechanism: Mechanism) -> NoiseDesign:
        """The same noise everywhere; L2 sqrt(2) r B^2, L1 2 r B^2.

        Proof: docs/mathematics.md, proposition 2.6.
        """
        square = float(self.grid**2)
        both = math.sqrt(2.0) if mechanism == "discrete_gaussian" else 2.0
        return self._with_count(mechanism, (NORM_BINS, 1.0), changed=both * square, left_out=square)

    def summed(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many `rows` are in each bin of norms, and their number, shape (28,)."""
        bins = np.searchsorted(self.largest_squares()[:-1], np.sum(rows * rows, axis=1))
        counts = self.grid**2 * np.bincount(bins, minlength=NORM_BINS).astype(np.int64)
        return self._counted(counts, rows)


TARGET_PART: Final = 0.7
"""The target's largest coordinate, over the largest norm of a row's features."""
LARGEST_RADIUS: Final = 1.4
"""Of the ball of whole rows: below sqrt(2), so that there is a ball, whatever the columns."""


class RegressionMoments(Moments):
    """Base of the queries whose last column is a target, or with `record_weights` comes before it.

    The last column is then s, what a record counts for, over its largest: cut to [0, 1], it makes
    no row longer, so what bounds rows bounds these. As a record, or a cut residual, it is one.
    """

    record_weights: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _weights_are_shares(self) -> Self:
        last = self.columns[-1]
        if self.record_weights and last.scale > last.centre:
            raise ValueError("weights of records have a lower bound of 0 or more")
        return self

    @property
    def regressed(self) -> tuple[Column, ...]:
        """The features, then the target."""
        return self.columns[:-1] if self.record_weights else self.columns

    @property
    def width(self) -> int:
        """p, the length of a row: a weight is no coordinate of it."""
        return len(self.regressed) + (self.intercept > 0.0)

    def _parted(self, boxed: Floats) -> tuple[Floats, Floats]:
        """Return columns without the weight, and s: 1 without one, shape (r,)."""
        if not self.record_weights:
            return boxed, np.ones(len(boxed))
        last = self.columns[-1]
        weights = last.centre + last.scale * boxed[:, -1]
        return boxed[:, :-1], np.clip(weights / (last.centre + last.scale), 0.0, 1.0)


class WeightedRowMatrix(RegressionMoments, MomentMatrix):
    """The moment matrix of rows f sqrt(s) (x, t y): x the constant and the features, y the target.

    f = min(1, R / |x|) shrinks x into the ball of radius R = radius / sqrt(1 + .7^2), and t = .7 R.
    A weight that hangs on the features alone leaves a regression of y on x without bias (Mallows
    weights: Hampel et al. 1986, section 6.3), other than one that hangs on y. Proof that rows are
    within the ball: docs/mathematics.md, proposition 2.8.

    With `unit_rows` rows are sqrt(s) (k, z, t y) instead: k the constant, and z the features, made
    so long that k and z have norm R, at most 1. So no row fills less of the ball than another.
    """

    name: Literal["weighted_row_matrix"] = "weighted_row_matrix"
    radius: Annotated[float, Field(gt=0.0, le=LARGEST_RADIUS)]
    unit_rows: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _has_features(self) -> Self:
        if len(self.regressed) < 2:
            raise ValueError("weighted rows need a feature and a target: name two columns or more")
        if self.unit_rows and self.intercept >= self.feature_radius:
            raise ValueError("the constant alone is as long as a row may be: raise the radius")
        if self.unit_rows and self.feature_radius > 1.0:  # no number of a row is beyond its bounds
            raise ValueError("rows of one length have features in the unit ball: lower the radius")
        return self

    @property
    def feature_radius(self) -> float:
        """R, the largest norm of a weighted row's constant and features."""
        return self.radius / math.hypot(1.0, TARGET_PART)

    @property
    def target_limit(self) -> float:
        """t, what the target is multiplied by."""
        return TARGET_PART * self.feature_radius

    def _arranged(self, boxed: Floats) -> Floats:
        regressed, shares = self._parted(boxed)
        whole = super()._arranged(regressed)
        whole[:, -1] *= self.target_limit
        if self.unit_rows:
            features = whole[:, -1 - len(self.regressed[:-1]) : -1]
            length = math.sqrt(self.feature_radius**2 - self.intercept**2)
            features *= length / np.maximum(np.linalg.norm(features, axis=1), 1e-12)[:, None]
            return np.asarray(whole * np.sqrt(shares)[:, None])
        sizes = shrinking(whole[:, :-1], self.feature_radius) * np.sqrt(shares)
        return np.asarray(whole * sizes[:, None])


def shrinking(rows: Floats, radius: float) -> Floats:
    """Return by what to multiply `rows`, shape (r, p), to have them in the ball, shape (r,)."""
    norms = np.linalg.norm(rows, axis=1)
    return np.asarray(radius / np.maximum(norms, radius))

"""Plausible distributions of the records' rows, given what two rounds released of them.

A public sample of the *variables* stands for the records, and terms are computed from it, so that
a square stays the square of its variable. Each variable has a marginal that two moments fix within
its public bounds, and the variables have a normal copula. A draw takes correlations and spreads
that are plausible under the noise. It then weighs the sample's rows so that its moments are those
released, as far as noise lets them be told, with fresh noise added: perturb and maximise
(Papandreou and Yuille 2011). The weights are those nearest to even ones: of least
Kullback-Leibler divergence.

A wide design has more moments than rows could meet. There rows are turned until their covariance is
the one that is expected given what was released; draws differ where noise hides how little features
vary along a direction. What else is wrong is left to the design's error, which the likelihood has
anyhow.

Nothing here is random but by the generator of the caller, which a learner seeds publicly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import betaincinv, ndtr, ndtri

from shoal_protocol.queries import Column, ColumnMoments, WeightedRowMatrix
from shoal_protocol.queries.columns import ColumnBounds, Level, design_of, variables_of
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.moments import MomentMatrix
from shoal_protocol.queries.sums import Values, in_units, matrix_from
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.measurements import query_of
from shoal_studies.catalogue.regression import REACH
from shoal_studies.catalogue.study import bounds_read
from shoal_studies.posteriors.base import evenly_spread, normal_density
from shoal_studies.regression import constants

_QUANTILES: Final = np.linspace(-4.8, 4.8, 128)  # of a normal, where marginals are tabulated
_LEAST_EIGENVALUE: Final = 1e-4
_LEAST_KEPT: Final = 0.1  # of the rows' squared lengths, on average: the ball is wider than they
_FAR: Final = 10.0  # standard deviations of noise: farther off no honest sum is
_LEAST_VARIANCE: Final = 1e-6  # in squared spreads: of a column that is the same in all rows
_LARGEST_CORRELATION: Final = 0.999
_TURNS: Final = 5  # of rows, since how they are shrunk hangs on them


@dataclass(frozen=True)
class DesignRows:
    """A public sample that stands for the records.

    `rows`, shape (s, p), are constant and features in spreads; `offsets`, shape (s,), are added to
    predictors. `weights`, shape (s,), sum to 1. `shrunk`, shape (s,), is the square of what rows
    are multiplied by in the round of moments. `noise_error` is the relative error up to which noise
    alone may make a wide design wrong; infinite if it may hide that two features are the same.
    """

    rows: Floats
    offsets: Floats
    weights: Floats
    shrunk: Floats
    noise_error: float = 0.0

    def predictors(self, point: Floats) -> Floats:
        """Return the rows' predictors by coefficients, shape (p,): shape (s,)."""
        return np.asarray(self.rows @ point + self.offsets)

    @property
    def means(self) -> Floats:
        """Means of the features, shape (p - 1,)."""
        return np.asarray(self.weights @ self.rows[:, 1:])

    @property
    def covariance(self) -> Floats:
        """Covariance of the features, shape (p - 1, p - 1), surely positive definite."""
        away = self.rows[:, 1:] - self.means
        least = _LEAST_VARIANCE * np.eye(away.shape[1])
        return np.asarray((away * self.weights[:, None]).T @ away + least)


@dataclass(frozen=True)
class Carrier:
    """The column that shows a variable by itself: its place, and values of column and variable."""

    place: int
    column_values: Floats
    variable_values: Floats

    def variable(self, parts: Floats) -> Floats:
        """Return the variable where its column is at `parts` of the way between its bounds."""
        low, high = self.column_values[0], self.column_values[-1]
        at = low + (high - low) * parts
        return np.asarray(np.interp(at, self.column_values, self.variable_values))


def _carrier(place: int, column: ColumnBounds) -> tuple[str, Carrier] | None:
    """Return the variable that a column shows alone and steadily, with how; None if it does not."""
    names = variables_of([column])
    if len(names) != 1:
        return None
    lower, upper = _bounds_of(column, names[0])
    grid = np.linspace(lower, upper, 401)
    shown = design_of([column], grid[:, None])[:, 0]
    steps = np.diff(shown)
    if np.all(steps > 0.0):
        return names[0], Carrier(place, shown, grid)
    return (names[0], Carrier(place, shown[::-1], grid[::-1])) if np.all(steps < 0.0) else None


def _bounds_of(column: ColumnBounds, variable: str) -> tuple[float, float]:
    """Return the public bounds of a variable that a column reads."""
    read = bounds_read([column])
    own = ((low, high) for name, low, high, is_level in read if name == variable and not is_level)
    return next(own, (0.0, 1.0))


def _has_two_values(column: ColumnBounds, mean: float, variance: float, error: float) -> bool:
    """Tell whether all values of a column are likelier at its bounds than spread between them.

    `mean` and `variance`, seen with `error`, are in half ranges. A variance between them is
    anything up to the widest that there is, as likely each.
    """
    widest = max(1.0 - mean**2, 1e-9)
    odds = np.exp(-0.5 * ((variance - widest) / error) ** 2) / (error * np.sqrt(2.0 * np.pi))
    between = (ndtr((widest - variance) / error) - ndtr(-variance / error)) / widest
    if (column.lower, column.upper) == (0.0, 1.0):
        odds *= constants.ODDS_OF_INDICATORS
    return bool(odds > between)


def _level(column: ColumnBounds) -> Level | None:
    """Return the level that a column is the indicator of, if it is one."""
    if column.term is None or len(column.term.factors) != 1:
        return None
    [factor] = column.term.factors
    return factor if isinstance(factor, Level) else None


_Levels = tuple[Floats, Floats]
"""Where the shares of a variable's levels end, and their codes, the last for all others."""


@dataclass(frozen=True)
class ReleasedDesign:
    """What the round of columns and that of moments released of the rows, over the records.

    `moments`, shape (m,), are means and mean squares of columns cut to their bounds, in half
    ranges, and then mean products of shrunk rows in spreads, with noise of `noise_sd`, shape (m,).
    `first` are the query's columns of the first round, and `columns` the predictors in spreads.
    Rows were shrunk into a ball of `squared_radius`; `aside`, of its square, was not the features'.
    """

    bounds: tuple[ColumnBounds, ...]
    first: tuple[Column, ...]
    columns: tuple[Column, ...]
    squared_radius: float
    moments: Floats
    noise_sd: Floats
    offset: float | None = None  # its coefficient, for one spread
    aside: float = 0.0

    @property
    def size(self) -> int:
        """q, the number of predictors."""
        return len(self.bounds)

    @property
    def farthest(self) -> float:
        """The norm of the longest row within `bounds`, in spreads, of uncorrelated columns."""
        ends = [
            max(each.upper - column.centre, column.centre - each.lower) / column.scale
            for each, column in zip(self.bounds, self.columns, strict=True)
        ]
        return float(np.sqrt(1.0 + np.sum((REACH * np.minimum(ends, 1.0)) ** 2)))

    @property
    def means(self) -> Floats:
        return self.moments[: self.size]

    @property
    def squares(self) -> Floats:
        return self.moments[self.size : 2 * self.size]

    def beyond(self, designs: Sequence["DesignRows"]) -> tuple[Floats, Floats]:
        """Return what part of predictors' variances `designs` lack: as seen, and as expected, (q,).

        Where few records lie far out, the first round shows a variance that no marginal of a design
        has. What noise hides of it is expected as far as it may be there. Both are 0 where the
        records' weights hide it.
        """
        halves = np.array([each.half_range for each in self.bounds])
        units = np.array([each.scale for each in self.columns]) / halves / REACH
        own = np.mean([np.diagonal(each.covariance) for each in designs], axis=0)
        count = len(own)
        own = own * units[:count] ** 2
        sds, squares_sds = self.noise_sd[: 2 * self.size].reshape(2, -1)[:, :count]
        means = self.means[:count]
        sd = np.hypot(squares_sds, 2.0 * means * sds)
        away = self.squares[:count] - means**2 - own
        expected = away * ndtr(away / sd) + sd * normal_density(away / sd)
        is_told = sd < constants.SHIFT_OF_WEIGHTED
        seen, expected = np.where(is_told, [np.maximum(away, 0.0), expected], 0.0)
        return seen / (own + seen), expected / (own + expected)

    def matrix(self, values: Floats) -> Floats:
        """Return the products among `values`, shape (m,), as a matrix, shape (q + 1, q + 1)."""
        found = np.zeros((self.size + 1, self.size + 1))
        found[np.triu_indices(self.size + 1)] = values[2 * self.size :]
        return found + np.triu(found, 1).T


def released_design(
    bounds: Sequence[ColumnBounds],
    columns_sum: ReleasedSum,
    moments_sum: ReleasedSum,
    *,
    records: float,
    weighted_records: float | None = None,
    offset: float | None = None,
    aside: float = 0.0,
) -> ReleasedDesign:
    """Return what two rounds released of `records` rows, of whose weights there are so many.

    Without the latter each has a weight of 1. `aside` is as in `ReleasedDesign`.
    """
    size = len(bounds)
    first, query = query_of(columns_sum, ColumnMoments), query_of(moments_sum, MomentMatrix)
    weighted_records = records if weighted_records is None else weighted_records
    radius = query.feature_radius if isinstance(query, WeightedRowMatrix) else query.radius
    assert radius is not None  # noqa: S101 - rows of regressions are in a ball

    def over_records(by_column: Values, products: Values) -> Floats:
        moments = in_units(first, by_column)[:-1].reshape(2, -1)[:, :size] / records
        matrix = matrix_from(query, products)[: size + 1, : size + 1]
        upper = matrix[np.triu_indices(size + 1)] * REACH**2 / weighted_records
        return np.concatenate([moments.ravel(), upper])

    noise_sd = over_records(columns_sum.noise_sd, moments_sum.noise_sd)
    limits, squared_radius = _FAR * noise_sd, (radius * REACH) ** 2
    limits += np.where(np.arange(len(limits)) < 2 * size, 1.0, squared_radius)
    if weighted_records != records:  # means of weighted records are others
        noise_sd[: 2 * size] = np.maximum(noise_sd[: 2 * size], constants.SHIFT_OF_WEIGHTED)
    return ReleasedDesign(
        bounds=tuple(bounds),
        first=first.columns[:size],
        columns=query.columns[:size],
        squared_radius=squared_radius,
        # a liar's sums are no further off than noise could have made any
        moments=np.clip(over_records(columns_sum.values, moments_sum.values), -limits, limits),
        noise_sd=noise_sd,
        offset=offset,
        aside=aside,
    )


@dataclass
class PlausibleDesigns:
    """Draws designs that are plausible given what was released."""

    released: ReleasedDesign
    generator: np.random.Generator
    two_valued: dict[str, float] = field(default_factory=dict, init=False)
    """Variables whose values are all at their bounds, and the share at the upper one."""

    def __post_init__(self) -> None:
        """Find how each variable is shown, its marginal, and what is known of correlations."""
        released = self.released
        self.names = variables_of(released.bounds)
        self._normals = self._public_normals()
        self._carriers: dict[str, Carrier] = {}
        self._levels: dict[str, _Levels] = {}
        self._variances: dict[str, tuple[float, float]] = {}
        self._quantiles: dict[str, Floats] = {}
        self._alone: list[tuple[str, int]] = []  # variables shown by one column, and its place
        self._find_marginals()
        self._settle_variances()
        self._chain = self._correlations()

    @property
    def is_wide(self) -> bool:
        """Whether moments are too many to be met by weights of rows."""
        return self.released.size > constants.WIDE

    def draws(self, count: int) -> list[DesignRows]:
        """Return so many plausible designs; fewer of a wide one."""
        if not self.is_wide:
            return [self._draw() for _ in range(count)]
        few = 1 if self.released.size > constants.WIDEST else constants.WIDE_DESIGNS
        return [self._turned(hides=few > 1) for _ in range(few)]

    def _public_normals(self) -> Floats:
        """Return independent normals of all variables, shape (s, k)."""
        count = len(self.names)
        if not self.is_wide:
            cube = evenly_spread(constants.SAMPLE_ROWS, count)
            return np.asarray(ndtri(np.clip(cube, 1e-6, 1.0 - 1e-6)))
        rows = max(constants.SAMPLE_ROWS, constants.ROWS_A_VARIABLE * count)
        half = self.generator.standard_normal((rows // 2, count))
        root = np.linalg.cholesky(half.T @ half / len(half))
        half = np.linalg.solve(root, half.T).T  # their correlations by chance are taken out
        return np.concatenate([half, -half])

    # marginals

    def _find_marginals(self) -> None:
        released, size = self.released, self.released.size
        mean_sd, square_sd = float(released.noise_sd[0]), float(released.noise_sd[size])
        of_levels: dict[str, list[tuple[int, Level]]] = {}
        for place, column in enumerate(released.bounds):
            if (level := _level(column)) is not None:
                of_levels.setdefault(level.variable, []).append((place, level))
            elif (shown := _carrier(place, column)) is not None:
                self._carriers.setdefault(*shown)
        for name in self.names:
            if name in self._carriers:
                carrier = self._carriers[name]
                mean, square = released.means[carrier.place], released.squares[carrier.place]
                error = float(np.hypot(square_sd, 2.0 * mean * mean_sd))
                self._alone.append((name, carrier.place))
                column = released.bounds[carrier.place]
                if _has_two_values(column, mean, square - mean**2, error):
                    self.two_valued[name] = float(np.clip((mean + 1.0) / 2.0, 0.005, 0.995))
                    share = np.array([self.two_valued[name]])
                    self._levels[name] = share, carrier.variable(np.array([1.0, 0.0]))
                else:
                    variance = max(square - mean**2, 0.02**2) / 4.0
                    self._variances[name] = float(variance), float(error / 4.0)
                    self._set_variance(name, float(variance))
            elif name in of_levels:
                self._set_levels(name, of_levels[name])
            else:
                column = next(each for each in released.bounds if name in variables_of([each]))
                lower, upper = _bounds_of(column, name)
                self._quantiles[name] = lower + (upper - lower) * ndtr(_QUANTILES)

    def _set_levels(self, name: str, levels: list[tuple[int, Level]]) -> None:
        means = self.released.means[[place for place, _ in levels]]
        shares = np.clip((means + 1.0) / 2.0, 0.003, 0.997)
        shares = shares / max(1.0, shares.sum() / 0.995)
        codes = [each.value for _, each in levels]
        among = levels[0][1].among or (*codes, max(codes) + 1.0)
        others = next((each for each in among if each not in codes), max(codes) + 1.0)
        if len(codes) == 1:
            self.two_valued[name] = float(shares[0])
            self._alone.append((name, levels[0][0]))
        self._levels[name] = np.cumsum(shares), np.array([*codes, others])

    def _set_variance(self, name: str, variance: float) -> None:
        """Give a variable the beta marginal of this variance, in squared ranges of its column."""
        carrier = self._carriers[name]
        mean = float(np.clip((self.released.means[carrier.place] + 1.0) / 2.0, 0.005, 0.995))
        widest = mean * (1.0 - mean)
        size = widest / np.clip(variance, 1e-4, 0.97 * widest) - 1.0
        parts = betaincinv(mean * size, (1.0 - mean) * size, ndtr(_QUANTILES))
        self._quantiles[name] = carrier.variable(parts)

    def _settle_variances(self) -> None:
        """Estimate the variances of numbers from both rounds: rows' weights hang on them."""
        released = self.released
        square_sd = np.diagonal(released.matrix(released.noise_sd))
        squares = np.diagonal(released.matrix(released.moments))
        first = dict(self._variances)
        for _ in range(3):
            rows, shrunk = self._rows(self._columns(np.eye(len(self._alone))))
            expected = np.mean(shrunk[:, None] * rows**2, axis=0)
            for name, (seen, error) in first.items():
                place = 1 + self._carriers[name].place
                ratio = expected[place] / max(self._variances[name][0], 1e-4)
                precision = error**-2.0 + (ratio / square_sd[place]) ** 2
                weighed = seen / error**2 + ratio * squares[place] / square_sd[place] ** 2
                self._variances[name] = max(weighed / precision, 1e-4), precision**-0.5
                self._set_variance(name, self._variances[name][0])

    # correlations

    def _correlations(self) -> Iterator[Floats]:
        """Yield latent correlations of variables that are shown alone, shape (k, k).

        Uniform on correlation matrices beforehand, and normal about those seen; by elliptical
        slices (Murray, Adams and MacKay 2010).
        """
        count = len(self._alone)
        if count < 2:
            while True:
                yield np.eye(count)
        at = [1 + place for _, place in self._alone]
        matrix = self.released.matrix(self.released.moments)[np.ix_(at, at)]
        sds = self.released.matrix(self.released.noise_sd)[np.ix_(at, at)]
        upper = np.triu_indices(count, 1)
        scale = self._latent_scale()
        seen, error = (matrix / scale)[upper], (sds / scale)[upper]
        state = np.clip(seen, -0.99, 0.99)
        while not np.isfinite(_log_prior(state, count)):
            state = 0.95 * state
        steps = 0
        while True:
            away, other = state - seen, error * self.generator.standard_normal(len(seen))
            angle = self.generator.uniform(0.0, 2.0 * np.pi)
            low, high = angle - 2.0 * np.pi, angle
            least = _log_prior(state, count) + np.log(self.generator.uniform())
            while True:
                proposed = seen + away * np.cos(angle) + other * np.sin(angle)
                if _log_prior(proposed, count) >= least:
                    break
                low, high = (angle, high) if angle < 0.0 else (low, angle)
                if high - low < 1e-9:
                    proposed = state
                    break
                angle = self.generator.uniform(low, high)
            state, steps = proposed, steps + 1
            if steps > constants.CHAIN_WARM_UP and steps % constants.CHAIN_STEPS == 0:
                yield _symmetric(state, count)

    def _latent_scale(self) -> Floats:
        """Return what a mean product of two columns is over their latent correlation, (k, k)."""
        at = [1 + place for _, place in self._alone]
        squares = np.diagonal(self.released.matrix(self.released.moments))[at]
        root = np.sqrt(np.maximum(squares, 0.2))
        for place, (name, _) in enumerate(self._alone):
            if name in self.two_valued:  # Pearson 1900: a normal and its indicator
                share = min(max(self.two_valued[name], 0.01), 0.99)
                density = float(normal_density(np.array(ndtri(share))))
                root[place] *= density / np.sqrt(share * (1.0 - share))
        return np.outer(root, root)

    # samples

    def _columns(self, correlation: Floats) -> Floats:
        """Return columns by a normal copula, shape (s, q), in the data's units."""
        normals = self._normals.copy()
        at = [self.names.index(name) for name, _ in self._alone]
        normals[:, at] = normals[:, at] @ np.linalg.cholesky(correlation).T
        values = []
        for place, name in enumerate(self.names):
            latent = normals[:, place]
            if name in self._levels:
                ends, codes = self._levels[name]
                values.append(codes[np.searchsorted(ends, 1.0 - ndtr(latent))])
            else:
                values.append(np.interp(latent, _QUANTILES, self._quantiles[name]))
        return design_of(self.released.bounds, np.column_stack(values))

    def _rows(self, columns: Floats) -> tuple[Floats, Floats]:
        """Return constant and columns in spreads, and the squares of what shrinks them."""
        boxed = REACH * _boxed(columns, self.released.columns)
        return _with_constant(boxed), self._shrunk(boxed)

    def _shrunk(self, features: Floats) -> Floats:
        lengths = 1.0 + np.sum(features**2, axis=1) + self.released.aside
        return np.asarray(np.minimum(1.0, self.released.squared_radius / lengths))

    def _design(self, rows: Floats, shrunk: Floats, weights: Floats) -> DesignRows:
        """Return the design of rows whose last column is the offset, if there is one."""
        offsets = np.zeros(len(rows))
        if self.released.offset is not None:
            rows, offsets = rows[:, :-1], self.released.offset * rows[:, -1]
        return DesignRows(rows, offsets, weights, shrunk)

    def _draw(self) -> DesignRows:
        """Return a plausible design, by rows of a copula, weighed."""
        released, correlation = self.released, next(self._chain)
        for name, (variance, error) in self._variances.items():
            self._set_variance(name, variance + error * self.generator.standard_normal())
        columns = self._columns(correlation)
        rows, shrunk = self._rows(columns)
        boxed = _boxed(columns, released.first)
        first, second = np.triu_indices(released.size + 1)
        products = rows[:, first] * rows[:, second] * shrunk[:, None]
        moments = np.hstack([boxed, boxed**2, products])
        weights = np.full(len(rows), 1.0 / len(rows))
        for part in (1.0, 0.5, 0.25, 0.0):
            noise = self.generator.standard_normal(len(released.moments))
            target = released.moments + part * released.noise_sd * noise
            sd = released.noise_sd.copy()
            self._meet_as_drawn(correlation, target, sd)
            weights, is_met = reweighted(moments, target, sd)
            if is_met:
                break
        return self._design(rows, shrunk, weights)

    def _turned(self, *, hides: bool) -> DesignRows:
        """Return rows of a copula, turned to the expected covariance and evenly weighed.

        If it `hides`, what noise hides of that is drawn. Mean squares of variables shown alone are
        those of their marginals, which both rounds tell.
        """
        released, size = self.released, self.released.size
        matrix, sd = released.matrix(released.moments), float(released.noise_sd[2 * size + 1])
        halves = [
            first.scale / each.scale
            for first, each in zip(released.first, released.columns, strict=True)
        ]
        centre_sd = REACH * np.array(halves) * released.noise_sd[:size]
        farthest = released.squared_radius**0.5
        means = np.clip(matrix[0, 1:] / max(matrix[0, 0], _LEAST_KEPT), -farthest, farthest)
        means /= 1.0 + (sd / centre_sd) ** 2
        seen = matrix[1:, 1:] - matrix[0, 0] * np.outer(means, means)
        told, vectors = expected_eigenvalues(seen, sd)
        values = np.maximum(told, max(constants.HIDDEN_EIGENVALUE * sd, _LEAST_EIGENVALUE))
        error = float(sd * np.sqrt(size) * np.mean(1.0 / values))
        if self._has_twins(seen, sd):
            error = np.inf
        if hides:
            smaller = values * constants.LEAST_HIDDEN ** self.generator.random(size)
            values = np.where(told < sd, np.maximum(smaller, _LEAST_EIGENVALUE), values)
        target = (vectors * values) @ vectors.T
        alone = np.array([place for _, place in self._alone], np.intp)
        correlation = denoised(target[np.ix_(alone, alone)] / self._latent_scale(), 0.0)
        roots = np.sqrt(np.diagonal(correlation))
        rows, shrunk = self._rows(self._columns(correlation / np.outer(roots, roots)))
        features, squares = rows[:, 1:], np.diagonal(target).copy()
        squares[alone] = np.mean(shrunk[:, None] * features[:, alone] ** 2, axis=0)
        scales = np.sqrt(np.maximum(squares, _LEAST_VARIANCE) / np.diagonal(target))
        root = scales[:, None] * np.linalg.cholesky(target)
        for _ in range(_TURNS):
            features = features - features.mean(axis=0)
            products = (features * self._shrunk(features + means)[:, None]).T @ features
            products = products / len(features) + _LEAST_VARIANCE * np.eye(size)
            features = np.linalg.solve(np.linalg.cholesky(products), features.T).T @ root.T
        features = features + means
        weights = np.full(len(features), 1.0 / len(features))
        design = self._design(_with_constant(features), self._shrunk(features), weights)
        return replace(design, noise_error=error)

    def _has_twins(self, seen: Floats, sd: float) -> bool:
        """Tell whether two features may be nearly the same, by products with noise of `sd`, (q, q).

        No record has two levels of one variable, whatever noise says.
        """
        squares = np.maximum(np.diagonal(seen), sd)
        apart = np.sqrt(np.outer(squares, squares)) - np.abs(seen)
        levels = [_level(column) for column in self.released.bounds]
        of = np.array(["" if each is None else each.variable for each in levels])
        exclusive = (of[:, None] == of) & (of != "")
        return bool(np.any(np.triu((apart < constants.TWINS_APART * sd) & ~exclusive, 1)))

    def _meet_as_drawn(self, correlation: Floats, target: Floats, sd: Floats) -> None:
        """Set products of numbers to what was drawn: the correlations have seen the noise."""
        size, scale = self.released.size, self._latent_scale()
        where = np.zeros((size + 1, size + 1), np.intp)
        where[np.triu_indices(size + 1)] = np.arange(2 * size, len(target))
        numbers = [k for k, (name, _) in enumerate(self._alone) if name not in self.two_valued]
        for one in numbers:
            for other in numbers:
                if one < other:
                    pair = sorted((1 + self._alone[one][1], 1 + self._alone[other][1]))
                    at = where[pair[0], pair[1]]
                    target[at] = correlation[one, other] * scale[one, other]
                    sd[at] *= constants.AS_DRAWN


def expected_eigenvalues(seen: Floats, sd: float) -> tuple[Floats, Floats]:
    """Return what a matrix, shape (k, k), is expected to be along the eigenvectors of a noisy one.

    The noise of its entries has deviation `sd`, and no direction is likelier than another (Bun,
    Allez, Bouchaud and Potters 2016). Then these vectors, the columns.
    """
    values, vectors = np.linalg.eigh(seen)
    away = values[:, None] - values
    pull = np.sum(
        away / np.maximum(away**2 + (constants.SAME_EIGENVALUE * sd) ** 2, 1e-300), axis=1
    )
    return isotonic_regression(values - 2.0 * sd**2 * pull).x, vectors


def denoised(seen: Floats, sd: float) -> Floats:
    """Return the matrix of these eigenvalues, shape (k, k), none below what noise hides.

    A round that asks where an earlier one led goes too far where they are too small.
    """
    told, vectors = expected_eigenvalues(seen, sd)
    return np.asarray(
        (vectors * np.maximum(told, max(constants.HIDDEN_EIGENVALUE * sd, _LEAST_EIGENVALUE)))
        @ vectors.T
    )


def _with_constant(features: Floats) -> Floats:
    return np.column_stack([np.ones(len(features)), features])


def _boxed(columns: Floats, units: Sequence[Column]) -> Floats:
    centres = np.array([each.centre for each in units])
    scales = np.array([each.scale for each in units])
    return np.asarray(np.clip((columns - centres) / scales, -1.0, 1.0))


def _symmetric(upper: Floats, count: int) -> Floats:
    whole = np.eye(count)
    whole[np.triu_indices(count, 1)] = upper
    return whole + np.triu(whole, 1).T


def _log_prior(upper: Floats, count: int) -> float:
    """Return the log prior density of correlations: |C|^-a, minus infinity where C is singular."""
    if np.abs(upper).max() >= _LARGEST_CORRELATION:
        return -np.inf
    values = np.linalg.eigvalsh(_symmetric(upper, count))
    if values[0] < _LEAST_EIGENVALUE:
        return -np.inf
    return -constants.NEAR_SINGULAR * float(np.log(values).sum())


def reweighted(moments: Floats, target: Floats, sd: Floats) -> tuple[Floats, bool]:
    """Return weights of rows, shape (s,), nearest to even ones, that meet `target`, shape (m,).

    `moments`, shape (s, m), are each row's. Weights minimise KL(w || even) + |(w'moments - target)
    / sd|^2 / 2, by damped Newton steps on the dual, whose ridge is sd^2. Then whether they did.
    """
    spread = moments.std(axis=0)
    kept = spread > 1e-6
    ridge = sd[kept] ** 2 + (constants.LEAST_MOMENT_ERROR * spread[kept]) ** 2
    away = moments[:, kept] - target[kept]

    def value(dual: Floats) -> tuple[float, Floats]:
        logs = away @ dual
        top = logs.max()
        weights = np.exp(logs - top)
        total = weights.sum()
        return float(np.log(total) + top + 0.5 * dual @ (ridge * dual)), weights / total

    dual = np.zeros(len(ridge))
    best, weights = value(dual)
    for _ in range(80):
        mean = weights @ away
        slope = mean + ridge * dual
        hessian = away.T @ (away * weights[:, None]) - np.outer(mean, mean)
        hessian[np.diag_indices(len(ridge))] += ridge
        step = np.linalg.solve(hessian, -slope)
        drop = float(slope @ step)
        if -drop < 1e-2:
            return weights, True
        # a long step in the weights' logarithms would leave one row alone
        size = min(1.0, 30.0 / max(float(np.ptp(away @ step)), 1e-12))
        while True:
            proposed, proposed_weights = value(dual + size * step)
            if np.isfinite(proposed) and proposed <= best + 1e-3 * size * drop:
                break
            size *= 0.5
            if size < 1e-7:
                return weights, False
        dual, best, weights = dual + size * step, proposed, proposed_weights
    return weights, False

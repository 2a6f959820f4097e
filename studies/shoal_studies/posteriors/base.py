"""Base classes of all posteriors: intervals, priors and tables.

Tables of records are read by their columns' names, as libraries of data frames have them. No such
library is imported, and numbers never come from texts.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from numbers import Integral
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy.optimize import brentq
from scipy.special import ndtr

from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.models import probability
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Finite, Place, Size, canonical_text
from shoal_studies.posteriors.summaries import Summary, quantile_headings


def require_level(level: float) -> None:
    """Check the level of an interval.

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
    """
    if not 0.0 < level < 1.0:
        raise ValueError("the level of an interval must lie strictly between 0 and 1")


def normal_intervals(mean: Floats, sd: Floats, level: float) -> Floats:
    """Return intervals that hold `level` of normals with this `mean` and `sd`, shape (n, 2).

    Raises:
        ValueError: `level` is not strictly between 0 and 1.
    """
    require_level(level)
    reach = NormalDist().inv_cdf(0.5 + level / 2.0) * sd
    return np.column_stack([mean - reach, mean + reach])


def mixture_quantiles(means: Floats, sds: Floats, shares: Floats, part: float) -> Floats:
    """Return the quantiles at `part` of mixtures of normals, shape (n,), by bisection.

    Components have `means`, shape (m, n), the standard deviations `sds`, shape (n,), and `shares`,
    shape (m,).
    """
    reach = abs(NormalDist().inv_cdf(part)) * sds
    low, high = means.min(axis=0) - reach, means.max(axis=0) + reach
    if len(means) == 1:
        return np.asarray(low if part < 0.5 else high)
    sds = np.maximum(sds, 1e-300)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        below = shares @ ndtr((middle - means) / sds) < part
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.asarray((low + high) / 2.0)


_HALVINGS: Final = 60


PRIOR_DECIDES: Final = 0.25
"""Of a posterior variance, relative to the prior's: from here on it decides, or"""
PRIOR_PULLS: Final = 0.5
"""posterior standard deviations by which the prior pulls a mean."""


class Prior(NamedTuple):
    """Means and standard deviations of independent normal priors of a posterior's numbers, (k,)."""

    mean: Floats
    sd: Floats

    def shares(self, sd: Floats) -> Floats:
        """Return each posterior variance, of `sd`, over the prior's, at most 1, shape (k,).

        A number that the prior fixes is all prior.
        """
        ratios = np.divide(sd, self.sd, out=np.ones_like(self.sd), where=self.sd > 0.0)
        return np.asarray(np.minimum(ratios, 1.0) ** 2)

    def caution(self, names: Sequence[str], mean: Floats, sd: Floats) -> str | None:
        """Return which numbers, posterior `mean` and `sd`, the prior decides; None if none."""
        away = np.zeros_like(self.sd)
        np.divide(np.abs(mean - self.mean), self.sd, out=away, where=self.sd > 0.0)
        shares = self.shares(sd)
        decides = (shares >= PRIOR_DECIDES) | (away * np.sqrt(shares) >= PRIOR_PULLS)
        return prior_caution(
            [
                name
                for name, it_does, free in zip(names, decides, self.sd > 0.0, strict=True)
                if it_does and free
            ]
        )


def prior_caution(names: Sequence[str]) -> str | None:
    """Return the caution that the prior decides `names`, None of no names."""
    if not names:
        return None
    return (
        f"THE PRIOR DECIDES {', '.join(names)}, or pulls values by half a posterior sd or more: "
        "what was believed before, and not the data, above all of strong effects; take a larger "
        "prior_sd where effects may be stronger, or more clients, or a larger epsilon"
    )


def expected_probabilities(mean: Floats, sd: Floats) -> tuple[Floats, Floats]:
    """Return means and standard deviations of probabilities with normal logits, shapes (n,).

    By Gauss and Hermite's rule.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    values, weights = probability(mean[:, None] + sd[:, None] * nodes), weights / weights.sum()
    expected = values @ weights
    return expected, np.sqrt(np.maximum((values - expected[:, None]) ** 2 @ weights, 0.0))


def semidefinite(matrix: Floats, least: float = 0.0) -> Floats:
    """Return a symmetric matrix with its eigenvalues raised to `least` where they are below."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)


def square_root(covariance: Floats) -> Floats:
    """Return R with R R' the covariance, shape (..., k, k), which may be singular."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :])


def to_data_units(centres: Floats, scales: Floats, unit: float = 1.0) -> Floats:
    """Return T, shape (k, k), that takes normalised coefficients to those of the data.

    They are of a constant, and of features less their `centres` and over their `scales`, shapes
    (k - 1,). A coefficient of 1 is `unit` of the target.
    """
    slopes = unit / scales
    transform = np.diag(np.append(unit, slopes))
    transform[0, 1:] = -centres * slopes
    return transform


def normal_density(values: Floats) -> Floats:
    """Return the standard normal density at values of any shape."""
    return np.asarray(np.exp(-0.5 * values**2) / math.sqrt(2.0 * math.pi))


def cut_normal_moments(low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of a standard normal between `low` and `high`, of any shape."""
    above = low + high > 0.0  # then the mass is taken from the other side, where nothing cancels
    mass = ndtr(np.where(above, -low, high)) - ndtr(np.where(above, -high, low))
    left, right = normal_density(low), normal_density(high)
    mean = (left - right) / mass
    return mean, 1.0 + (low * left - high * right) / mass - mean**2


def evenly_spread(count: int, size: int) -> Floats:
    """Return points that fill the unit cube evenly, shape (count, size).

    They are multiples of the powers of x, where x^(size + 1) = x + 1 (Roberts 2018).
    """
    base = brentq(lambda x: (size + 1) * math.log(x) - math.log1p(x), 1.0, 2.0, xtol=1e-15)
    return (0.5 + np.outer(np.arange(1, count + 1), base ** -np.arange(1.0, size + 1.0))) % 1.0


_MISSING: Final = frozenset({"NAType", "NaTType", "NoneType"})  # pandas' own, and Python's


def names_of(rows: object) -> tuple[Any, ...] | None:
    """Return the names of the columns of something that has names, None of an array without."""
    if isinstance(rows, Mapping):
        return tuple(rows)
    for attribute in ("column_names", "columns"):  # an Arrow table's columns are no names
        named = getattr(rows, attribute, None)
        if named is not None and not callable(named):
            return tuple(named)
    fields = getattr(getattr(rows, "dtype", None), "names", None)
    return None if fields is None else tuple(fields)


def columns_of(table: Any) -> dict[str, Any] | None:
    """Return the columns of a table by the canonical form of their names; None if it has no names.

    Raises:
        ValueError: the table is a lazy frame, a name is no text or stands twice, or columns of a
            mapping are pandas Series with different indexes, which belong to different rows.
    """
    if type(table).__name__ == "LazyFrame":
        raise ValueError("a lazy frame has no values yet: hand over what its .collect() returns")
    keys = names_of(table)
    if keys is None:
        return None
    by_name: dict[str, Any] = {}
    for key in keys:
        name = _name_of(key)
        if name in by_name:
            raise ValueError(f"two columns have the same name {name!r}: rename one, or drop it")
        by_name[name] = key
    columns = {name: table[key] for name, key in by_name.items()}
    require_one_index(columns)
    return columns


def require_one_index(columns: Mapping[str, Any]) -> None:
    """Check that those columns that have an index, as pandas Series do, have the same one.

    Raises:
        ValueError: two differ: their values belong to different rows.
    """
    indexes = {name: getattr(values, "index", None) for name, values in columns.items()}
    indexed: list[tuple[str, Any]] = [
        (name, each) for name, each in indexes.items() if hasattr(each, "equals")
    ]
    for (first, one), (second, other) in pairwise(indexed):
        if one is not other and not one.equals(other):
            raise ValueError(
                f"{first!r} and {second!r} have different indexes, so that their rows do not "
                "belong together by position: put them into one data frame, as pandas.concat does "
                "by index, or hand over arrays"
            )


def _name_of(key: object) -> str:
    if isinstance(key, bool) or not isinstance(key, str | Integral):
        raise ValueError(
            "a column's name is no text: give each column one name, without levels of names"
        )
    return canonical_text(str(key))


def array_of(values: Any) -> NDArray[Any]:
    """Return values as an array; lists of texts and other things keep each as it is.

    NumPy by itself would make texts of numbers, and of what is missing.
    """
    try:
        found = np.asarray(values)
    except ValueError:  # lists of unlike lengths
        return np.array(values, dtype=object)
    is_list = isinstance(values, Sequence) and found.dtype.kind in "US"
    return np.array(values, dtype=object) if is_list else found


def is_missing(value: object) -> bool:
    """Tell whether this is what libraries put for a value that is missing."""
    return type(value).__name__ in _MISSING or (isinstance(value, float) and value != value)


def require_plain(values: Any) -> None:
    """Check that no value is masked, or a category that is no text.

    What is under a mask is no value. Categories that are numbers are neither a quantity nor texts,
    by which levels are told apart.

    Raises:
        ValueError: one is; the message begins with what the values do.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError("holds a masked value: leave out what is missing, or fill it in")
    kinds = [getattr(values, each, None) for each in ("dtype", "type")]
    kinds.append(getattr(kinds[0], "pyarrow_dtype", None))
    if any(hasattr(each, "categories") or hasattr(each, "index_type") for each in kinds) and any(
        not (isinstance(each, str) or is_missing(each)) for each in array_of(values).tolist()
    ):
        raise ValueError(
            "has categories that are no texts: make them texts, as .cat.rename_categories(str) "
            "does, or make the column numbers, as .astype(float) does"
        )


_TEXTS: Final = (
    "texts: give their levels, or make them numbers: pandas.to_numeric reads numbers, and "
    '(column == "yes").astype(float) makes 0 and 1 of two texts where none is missing'
)
_DURATIONS: Final = "durations: make them numbers, as .dt.total_seconds() / 86400 does"
_NO_NUMBERS: Final = {
    "str": _TEXTS,
    "str_": _TEXTS,
    "timedelta": _DURATIONS,
    "timedelta64": _DURATIONS,
    "Timedelta": _DURATIONS,
    "Period": "periods: make them days, as .dt.to_timestamp() does",
    "Interval": "intervals: make them texts, as .astype(str) does",
}
"""What a column holds in place of numbers, by the name of its values' type, and what to do."""


def numbers_of(values: Any) -> NDArray[np.float64]:
    """Return values as numbers, in their shape; what is missing is NaN.

    Raises:
        ValueError: one is no number, masked, or a category; the message begins with what the
            values do.
    """
    require_plain(values)
    found = array_of(values)
    try:
        if found.dtype.kind == "O":
            listed = [_number(each) for each in found.ravel().tolist()]
            return np.array(listed, np.float64).reshape(found.shape)
        if found.dtype.kind in "biuf":
            return found.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    held = next((each for each in found.ravel().tolist() if not is_missing(each)), None)
    kind = "timedelta" if found.dtype.kind == "m" else type(held).__name__
    raise ValueError(f"holds {_NO_NUMBERS.get(kind, 'no numbers: every value must be a number')}")


def _number(value: Any) -> float:
    if is_missing(value):
        return np.nan
    if isinstance(value, str | bytes | date):
        raise TypeError
    return float(value)


def rows_of(rows: Any, features: Sequence[str]) -> NDArray[np.float64]:
    """Return rows as an array, shape (n, m), with one column for each of `features`, in order.

    Raises:
        ValueError: they have columns by name, a value is no number, or the shape is another one.
    """
    if names_of(rows) is not None:
        raise ValueError("rows are an array: only an estimator reads columns by name")
    try:
        found = numbers_of(rows)
    except ValueError:
        raise ValueError("every value of rows must be a number") from None
    if found.ndim != 2 or found.shape[1] != len(features):
        raise ValueError(f"rows must have shape (n, {len(features)}): one per feature")
    return found


_PRIOR_HEADINGS: Final = ("prior", "its share")

LEVEL: Final = 0.95
"""Default probability of an interval."""


class BasePosterior(Model):
    """A posterior of the parameters `names`, from about `records` records: seen through noise.

    Sums of gradients do not tell how many: of these it is the most that clients may hold.
    """

    name: str
    names: Annotated[tuple[str, ...], Field(min_length=1)]
    records: Place

    if TYPE_CHECKING:  # a field of some posteriors, so pydantic must not find a property here

        @property
        def columns(self) -> tuple[str, ...]:
            """Names of the columns of a record."""

    @property
    @abstractmethod
    def mean(self) -> Floats:
        """Posterior mean of each parameter, shape (k,), in the order of `names`."""

    @property
    @abstractmethod
    def sd(self) -> Floats:
        """Posterior standard deviation of each parameter, shape (k,)."""

    def interval(self, level: float) -> Floats:
        """Return central credible intervals that hold `level` of each margin, shape (k, 2).

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        require_level(level)
        return self._quantiles(0.5 - level / 2.0, 0.5 + level / 2.0)

    @abstractmethod
    def _quantiles(self, low: float, high: float) -> Floats:
        """Return two quantiles of each margin, as far from 0 as from 1, shape (k, 2)."""

    @abstractmethod
    def sample(self, count: int, generator: np.random.Generator) -> Floats:
        """Return `count` joint draws, shape (count, k): no privacy depends on them."""

    @property
    def title(self) -> str:
        """What it is a posterior of, in words."""
        return self.name.replace("_", " ").capitalize()

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What else a summary says, each with its name."""
        return ()

    @property
    def prior(self) -> Prior | None:
        """The prior of each parameter; None where it is not known, or not normal."""
        return None

    @property
    def caution(self) -> str | None:
        """A warning to read before the posterior is used; None if there is none."""
        return None

    def summary(self, level: float = LEVEL) -> Summary:
        """Return a table of means, standard deviations and central intervals of that level.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        intervals = self.interval(level)
        priors = self._prior_cells()
        rows = tuple(
            (name, f"{mean:.5g}", f"{sd:.3g}", f"{low:.5g}", f"{high:.5g}", *prior)
            for name, mean, sd, (low, high), prior in zip(
                self.names, self.mean, self.sd, intervals, priors, strict=True
            )
        )
        facts = [("Records", f"about {self.records:,}"), *self.facts]
        if self.caution is not None:
            facts.append(("Caution", self.caution))
        return Summary(
            self.title,
            ("", "mean", "sd", *quantile_headings(level), *_PRIOR_HEADINGS[: len(priors[0])]),
            rows,
            tuple(facts),
        )

    def _prior_cells(self) -> list[tuple[str, ...]]:
        """Return of each number its prior and that one's share in its variance; empty if unknown.

        A cell for each of `_PRIOR_HEADINGS`.
        """
        prior = self.prior
        if prior is None:
            return [()] * len(self.names)
        rows = zip(prior.mean, prior.sd, prior.shares(self.sd), strict=True)
        return [(f"{mean:.3g} ± {sd:.3g}", f"{share:.0%}") for mean, sd, share in rows]

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


class NormalCoefficients(BasePosterior):
    """Base of the normal posteriors of coefficients, in the data's own units.

    The covariance accounts for the records' scatter and for the privacy noise alike. Each prior is
    normal, with `prior_mean` and `prior_sd`.
    """

    coefficients: tuple[Finite, ...]
    covariance: tuple[tuple[Finite, ...], ...]
    prior_mean: tuple[Finite, ...]
    prior_sd: tuple[Size, ...]

    @model_validator(mode="after")
    def _shapes_agree(self) -> Self:
        vectors = (self.coefficients, self.prior_mean, self.prior_sd, self.covariance)
        if {len(each) for each in (*vectors, *self.covariance)} != {len(self.names)}:
            raise ValueError("names, coefficients, covariance and prior must have the same size")
        return self

    @property
    def mean(self) -> Floats:
        return np.array(self.coefficients)

    @property
    def covariance_matrix(self) -> Floats:
        """Posterior covariance of the coefficients, shape (k, k)."""
        return np.array(self.covariance)

    @property
    def sd(self) -> Floats:
        return np.sqrt(np.diagonal(self.covariance_matrix))

    def _quantiles(self, low: float, high: float) -> Floats:
        return normal_intervals(self.mean, self.sd, high - low)

    def sample(self, count: int, generator: np.random.Generator) -> Floats:
        """Return draws of the coefficients, shape (count, k): no privacy depends on them."""
        root = square_root(self.covariance_matrix)
        return np.asarray(self.mean + generator.standard_normal((count, len(root))) @ root.T)

    @property
    def prior(self) -> Prior:
        return Prior(np.array(self.prior_mean), np.array(self.prior_sd))


class RegressionPosterior(NormalCoefficients):
    """A posterior of the coefficients that predict `target`: "intercept", then the features'.

    Rows are arrays, shape (n, m), with one column for each of `features`, in order; only an
    estimator reads columns by name.
    """

    target: str

    @model_validator(mode="after")
    def _has_an_intercept(self) -> Self:
        if len(self.names) < 2 or self.names[0] != "intercept":
            raise ValueError("names must be the intercept and then the features")
        return self

    @property
    def title(self) -> str:
        """What it is a posterior of, in words."""
        return f"{super().title} of {self.target}"

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that `predict` expects, in order."""
        return self.names[1:]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of a record: the features, then the target."""
        return (*self.features, self.target)

    @abstractmethod
    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the target, shapes (n,), for `rows`, shape (n, m).

        Raises:
            ValueError: `rows` does not have one column per feature.
        """

    @abstractmethod
    def predict_interval(self, rows: Floats, level: float) -> Floats:
        """Return intervals that hold `level`, shape (n, 2), within what is predicted can be.

        Raises:
            ValueError: as `predict`; or `level` is not strictly between 0 and 1.
        """

    def _predictor(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the linear predictor, shapes (n,).

        Columns after those of the coefficients are offsets, and are added.
        """
        design, offsets = self._combinations(rows)
        variance = np.einsum("ni,ij,nj->n", design, self.covariance_matrix, design)
        return design @ self.mean + offsets, np.sqrt(np.maximum(variance, 0.0))

    def _combinations(self, rows: Floats) -> tuple[Floats, Floats]:
        """Return what multiplies coefficients for `rows`, shape (n, k), and offsets, (n,)."""
        checked = rows_of(rows, self.features)
        slopes = len(self.names) - 1
        design = np.column_stack([np.ones(len(checked)), checked[:, :slopes]])
        return design, checked[:, slopes:].sum(axis=1)

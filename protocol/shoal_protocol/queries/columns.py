"""Columns that queries are about: variables of records, terms worked out from them, and bounds.

A term is a product of factors, each a function of one variable. A factor cuts the variable to
public bounds first, and its own value to the range that follows from them. So a term's range
follows from public numbers alone, and no value of a record leaves it. Bounds come from general
knowledge and never from the data.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, model_validator

from shoal_protocol.queries.design import Floats, Mechanism, NoiseBlock, NoiseDesign, rounded_up
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import LARGEST, Positive, Real, canonical_text

Interval = tuple[float, float]

_NARROWEST: Final = 1e-9  # of a range, relative to its bounds: a float tells 1e6 places in it apart
_DEGREE: Final = 3
_LEAST_GAUSSIAN: Final = 1.0 / 4.0  # of what a record adds to the rest: costs 3 % more noise
_LEAST_LAPLACE: Final = 1.0 / 16.0  # and 6 %


def _column_name(written: str) -> str:
    name = canonical_text(written)
    if not name or not name.isprintable():
        raise ValueError("a column's name has one printable character or more, and no others")
    return name


ColumnName = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_column_name)]
"""A name as a person wrote it, in its canonical form; a signed document has no other."""


class _Range(Model):
    """A public range."""

    lower: Real
    upper: Real

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        if not self.lower < self.upper:
            raise ValueError("the lower bound of a column must be below its upper bound")
        largest = max(abs(self.lower), abs(self.upper))
        if self.upper - self.lower < max(_NARROWEST * largest, 1.0 / LARGEST):
            raise ValueError("the bounds of a column are too close to be told apart")
        return self

    @property
    def centre(self) -> float:
        """The middle of the range."""
        return self.lower / 2.0 + self.upper / 2.0

    @property
    def half_range(self) -> float:
        """Half the width of the range."""
        return self.upper / 2.0 - self.lower / 2.0


class _Bounded(_Range):
    """Base of the factors that cut their variable to public bounds."""

    variable: ColumnName

    def of(self, values: Floats) -> Floats:
        """Return the factor of finite values of its variable, shape (r,), within `range`."""
        return np.clip(self._of(np.clip(values, self.lower, self.upper)), *self.range)

    @property
    @abstractmethod
    def range(self) -> Interval:
        """Smallest and largest value of the factor."""

    @abstractmethod
    def _of(self, values: Floats) -> Floats:
        """Return the factor of values within the bounds, shape (r,)."""


class Power(_Bounded):
    """The variable to the power of `exponent`; 1 is the variable itself."""

    kind: Literal["power"] = "power"
    exponent: Annotated[int, Field(ge=1, le=6, strict=True)]

    @property
    def range(self) -> Interval:
        ends = math.prod([self.lower] * self.exponent), math.prod([self.upper] * self.exponent)
        if self.exponent % 2 == 0 and self.lower < 0.0 < self.upper:
            return 0.0, max(ends)
        return min(ends), max(ends)

    def _of(self, values: Floats) -> Floats:
        # by products: the library's power is another on each machine
        found = values
        for _ in range(self.exponent - 1):
            found = found * values
        return found


class Centred(_Bounded):
    """The variable less a public number `at`."""

    kind: Literal["centred"] = "centred"
    at: Real

    @property
    def range(self) -> Interval:
        return self.lower - self.at, self.upper - self.at

    def _of(self, values: Floats) -> Floats:
        return values - self.at


class Legendre(_Bounded):
    """The Legendre polynomial of `degree` of the variable, whose bounds are mapped to -1 and 1.

    Polynomials of different degrees are orthogonal over the bounds, and none exceeds 1 in magnitude
    (Abramowitz and Stegun 1964, 22.2.10 and 22.14.7).
    """

    kind: Literal["legendre"] = "legendre"
    degree: Annotated[int, Field(ge=1, le=6, strict=True)]

    @property
    def range(self) -> Interval:
        return -1.0, 1.0

    def _of(self, values: Floats) -> Floats:
        # Bonnet's recurrence, from the polynomials of degree 0 and 1
        mapped = (values - self.centre) / self.half_range
        before, polynomial = np.ones_like(mapped), mapped
        for degree in range(1, self.degree):
            after = ((2 * degree + 1) * mapped * polynomial - degree * before) / (degree + 1)
            before, polynomial = polynomial, after
        return np.asarray(polynomial)


class Log(_Bounded):
    """The natural logarithm of the variable, whose lower bound is above 0."""

    kind: Literal["log"] = "log"
    lower: Annotated[float, Field(gt=0.0, le=LARGEST)]

    @property
    def range(self) -> Interval:
        return math.log(self.lower), math.log(self.upper)

    def _of(self, values: Floats) -> Floats:
        return np.asarray(np.log(values))


class Spline(_Bounded):
    """One function of the basis of cubic splines on the range with these inner `knots`.

    The basis is of B-splines with each end of the range as a knot four times (de Boor 1978): there
    are len(knots) + 4 of them, which add up to 1; `place` counts from 0.
    """

    kind: Literal["spline"] = "spline"
    knots: Annotated[tuple[Real, ...], Field(max_length=32)]
    place: Annotated[int, Field(ge=0, le=32 + _DEGREE, strict=True)]

    @model_validator(mode="after")
    def _is_in_the_basis(self) -> Self:
        ends = (self.lower, *self.knots, self.upper)
        if any(
            after - before < _NARROWEST * (self.upper - self.lower)
            for before, after in pairwise(ends)
        ):
            raise ValueError("knots ascend between the bounds, and can be told apart")
        if self.place > len(self.knots) + _DEGREE:
            raise ValueError("the basis of splines has no such place")
        return self

    @property
    def range(self) -> Interval:
        return 0.0, 1.0

    def _of(self, values: Floats) -> Floats:
        ends = [self.lower] * (_DEGREE + 1), [self.upper] * (_DEGREE + 1)
        knots = [*ends[0], *self.knots, *ends[1]][self.place : self.place + _DEGREE + 2]
        # the last piece of the range has its end
        found = [
            ((begin <= values) & ((values < end) | (begin < end == self.upper))).astype(np.float64)
            for begin, end in pairwise(knots)
        ]
        for degree in range(1, _DEGREE + 1):
            found = [
                _share(values - knots[k], knots[k + degree] - knots[k]) * one
                + _share(knots[k + degree + 1] - values, knots[k + degree + 1] - knots[k + 1])
                * next_
                for k, (one, next_) in enumerate(pairwise(found))
            ]
        return found[0]


def _share(part: Floats, whole: float) -> Floats:
    if whole == 0.0:  # of a piece of no length, whose function is 0
        return np.zeros_like(part)
    return np.asarray(part / whole)


class Level(Model):
    """1 where the variable is exactly `value`, a level's place for one, else 0; nothing is cut.

    With `among` a record whose variable is none of these lacks a value: see `in_levels`.
    """

    kind: Literal["level"] = "level"
    variable: ColumnName
    value: Real
    among: Annotated[
        tuple[Real, ...], Field(max_length=1_000, exclude_if=lambda each: not each)
    ] = ()

    @property
    def range(self) -> Interval:
        return 0.0, 1.0

    def of(self, values: Floats) -> Floats:
        """Return the factor of finite values of its variable, shape (r,)."""
        return np.asarray(values == self.value, np.float64)


Factor = Annotated[Power | Centred | Legendre | Log | Spline | Level, Field(discriminator="kind")]


class Term(Model):
    """The product of its factors."""

    factors: Annotated[tuple[Factor, ...], Field(min_length=1, max_length=4)]

    @model_validator(mode="after")
    def _stays_small(self) -> Self:
        for end in range(1, len(self.factors) + 1):
            if max(map(abs, _product([each.range for each in self.factors[:end]]))) > LARGEST:
                raise ValueError("a term's values could be larger than 1e30")
        return self

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables that it reads, in order of appearance."""
        return tuple(dict.fromkeys(each.variable for each in self.factors))

    @property
    def range(self) -> Interval:
        """Smallest and largest value, as far as the factors' own ranges tell."""
        return _product([each.range for each in self.factors])

    def of(self, values: Mapping[str, Floats]) -> Floats:
        """Return the term of finite values of its variables, shape (r,), within `range`."""
        first, *others = (each.of(values[each.variable]) for each in self.factors)
        for each in others:
            first = first * each
        return first


def _product(ranges: list[Interval]) -> Interval:
    """Return the range of a product; multiplied in the order in which values are.

    Rounding is monotone, so that no product of values is beyond those of the ends.
    """
    lower, upper = ranges[0]
    for ends in ranges[1:]:
        products = [one * other for one in (lower, upper) for other in ends]
        lower, upper = min(products), max(products)
    return lower, upper


class Column(Model):
    """A column, and the affine map of its public range to [-1, 1].

    It is what `term` makes of a record's variables; without one, the variable that has its name.
    """

    name: ColumnName
    centre: Real
    scale: Positive
    term: Term | None = None


def variables_of(columns: Iterable["Column | ColumnBounds"]) -> tuple[str, ...]:
    """Return the names of the variables that columns read, each once, in order of appearance."""
    read = ((each.name,) if each.term is None else each.term.variables for each in columns)
    return tuple(dict.fromkeys(name for names in read for name in names))


NamedT = TypeVar("NamedT", bound="Column | ColumnBounds")


def distinct(columns: tuple[NamedT, ...]) -> tuple[NamedT, ...]:
    """Return columns whose names are different.

    Raises:
        ValueError: two have the same one.
    """
    if len({column.name for column in columns}) != len(columns):
        raise ValueError("two columns have the same name")
    return columns


Columns = Annotated[
    tuple[Column, ...], Field(min_length=1, max_length=512), AfterValidator(distinct)
]
"""The columns of a query."""


def factors_in(columns: Iterable["Column | ColumnBounds"]) -> int:
    """Return how many factors the columns' terms have."""
    return sum(len(each.term.factors) for each in columns if each.term is not None)


def design_of(
    columns: Sequence["Column | ColumnBounds"], records: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the columns, shape (r, len(columns)), of finite records, shape (r, variables)."""
    if all(each.term is None for each in columns):
        return records
    values = dict(zip(variables_of(columns), records.T, strict=True))
    return np.column_stack(
        [values[each.name] if each.term is None else each.term.of(values) for each in columns]
    )


def in_levels(
    columns: Sequence["Column | ColumnBounds"], records: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Tell which of finite records, shape (r, variables), have levels among those listed, (r,).

    Others lack a value, and count as none.
    """
    whole = np.ones(len(records), np.bool_)
    if all(each.term is None for each in columns):
        return whole
    values = dict(zip(variables_of(columns), np.asarray(records, np.float64).T, strict=True))
    for each in columns:
        for factor in () if each.term is None else each.term.factors:
            if isinstance(factor, Level) and factor.among:
                whole &= _is_among(values[factor.variable], np.sort(factor.among))
    return whole


def _is_among(values: Floats, levels: Floats) -> NDArray[np.bool_]:
    """Tell which values, shape (r,), are one of the ascending levels.

    Unlike `numpy.isin`, which sorts the values, it takes much the same time for any of them.
    """
    places = np.minimum(np.searchsorted(levels, values), len(levels) - 1)
    return np.asarray(levels[places] == values)


class LatticeQuery(Model):
    """Base of the queries: a client's records become a vector of integers, 2^grid_bits fine."""

    columns: Columns
    grid_bits: Annotated[int, Field(ge=4, le=30, strict=True)]
    records_per_client: Annotated[int, Field(ge=1, le=1000, strict=True)]

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of the records, in order: of the variables that are read."""
        return variables_of(self.columns)

    @property
    def grid(self) -> int:
        """B = 2^grid_bits: lattice units in one unit of what is summed."""
        return 1 << self.grid_bits

    @property
    def unit(self) -> int:
        """Lattice units in one record, or in one unit of what is summed."""
        return self.grid

    @property
    def largest_value(self) -> int:
        """Largest magnitude that a coordinate of `encode` can have."""
        return self.unit * self.records_per_client

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Length of the vector."""

    def _with_count(
        self, mechanism: Mechanism, *blocks: tuple[int, float], changed: float, left_out: float
    ) -> NoiseDesign:
        """Return the design of sums with the number of records as one more coordinate, the last.

        One record in another's place moves the sums by `changed` at most, and leaves the number as
        it is; one left out moves them by `left_out`, and the number by `unit` lattice units. Both
        are after division by the scales of `blocks`: each is of so many coordinates, and has a
        relative scale; empty ones are left out. So the number costs nothing where its noise is wide
        enough for the second not to exceed the first; it is at most 4.2 records wide for each unit
        of 1 / mu, 17 of 1 / epsilon, which costs 3 % and 6 % at most. Proof: docs/mathematics.md,
        proposition 2.1.
        """
        if mechanism == "discrete_gaussian":
            room = math.sqrt(max(changed**2 - left_out**2, 0.0))
            reach = max(room, _LEAST_GAUSSIAN * left_out)
            whole = math.hypot(left_out, reach)
        else:
            reach = max(changed - left_out, _LEAST_LAPLACE * left_out)
            whole = left_out + reach
        sensitivity = rounded_up(max(changed, whole)) * self.records_per_client
        return NoiseDesign(
            sensitivity=rounded_up(sensitivity),
            blocks=tuple(
                NoiseBlock(coordinates=size, relative_scale=scale)
                for size, scale in (*blocks, (1, rounded_up(self.unit / reach)))
                if size
            ),
        )

    @abstractmethod
    def rows(self, records: Floats) -> NDArray[Any]:
        """Return what `records`, shape (r, len(column_names)), are counted or summed by: (r, ...).

        Raises:
            ValueError: wrong shape, too many records, or a number that is not finite.
        """

    @abstractmethod
    def summed(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return what clients with one of these `rows` each contribute together, (dimension,)."""

    def by_client(
        self, rows: NDArray[Any], clients: NDArray[np.intp], count: int
    ) -> NDArray[np.int64]:
        """Return what `released` takes, of `rows` some of which may be of one client.

        `clients`, shape (r,), says whose each row is: a number from 0 to `count` - 1. Results for
        several parts of a client's rows may be added up.
        """
        return self.summed(rows)

    def released(self, gathered: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return what clients contribute together, shape (dimension,), from `by_client`."""
        return gathered

    def encode(self, records: Floats) -> NDArray[np.int64]:
        """Return the client's contribution, shape (dimension,), from `records`.

        Shape (r, len(column_names)).

        Raises:
            ValueError: as `rows`.
        """
        rows = self.rows(records)[in_levels(self.columns, records)]
        return self.released(self.by_client(rows, np.zeros(len(rows), np.intp), 1))

    def encode_apart(self, records: Floats) -> NDArray[np.int64]:
        """Return what clients contribute together that have one of `records` each, (dimension,).

        Shape (clients, len(column_names)), of any number of clients.

        Raises:
            ValueError: as `rows`.
        """
        whole = self.model_copy(update={"records_per_client": len(records)})
        return self.summed(whole.rows(records)[in_levels(self.columns, records)])


class ColumnBounds(_Range):
    """A column's name and the public range that its values are assumed to lie in.

    What a `term` makes of a record's variables is in the range that follows from theirs: see
    `of_term`.
    """

    name: ColumnName
    term: Term | None = None

    @classmethod
    def of_term(cls, name: str, term: Term) -> "ColumnBounds":
        """Return the column of a term, with the bounds that follow from its variables'.

        Raises:
            ValueError: the term is the same of all records.
        """
        lower, upper = term.range
        return cls(name=name, lower=lower, upper=upper, term=term)

    def column(self) -> Column:
        """Return the column of a query that takes the range to [-1, 1]."""
        return Column(name=self.name, centre=self.centre, scale=self.half_range, term=self.term)

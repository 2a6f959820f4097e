"""The consortium's data dictionary: which variables there are, what they mean, how they are coded.

The authority signs it beside the manifest, and each version names the one before. A variable never
changes: what is measured otherwise gets a new name, so that a column means the same everywhere.

Studies say how they take a variable's values. Only the records' owner is told what was found in
them.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Annotated, ClassVar, Final, Literal, Self

import numpy as np
import pydantic
from nacl.signing import VerifyKey
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, StringConstraints

from shoal_protocol.queries.columns import ColumnBounds, ColumnName, Factor, Level, Term
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Parties
from shoal_protocol.wire.documents import Document, Model, Role, Signed, decode
from shoal_protocol.wire.encoding import (
    MOST_VALUES,
    Digest,
    Name,
    Place,
    Real,
    VerifyKeyHex,
    canonical_text,
)
from shoal_protocol.wire.errors import MalformedDocument, WrongSigner

EPOCH: Final = date(1970, 1, 1)
"""Dates are days since then, as numbers of records."""

COUNTING: Final = frozenset({"counts", "tables"})
"""The queries that may read places of levels: they count them."""

MOST_VARIABLES: Final = 10_000
MOST_LEVELS: Final = 1_000
_Text = Annotated[str, StringConstraints(min_length=1, max_length=1_000, strip_whitespace=True)]
_Level = Annotated[
    str, StringConstraints(max_length=200), AfterValidator(canonical_text), Field(min_length=1)
]


class _Variable(Model):
    """What all variables have. `missing` says what becomes of a record without a value.

    As a `complete_case` such a record counts as none. With an `indicator` it holds the middle of
    the bounds (a flag 0, a category its first level), and a further column, `NAME_missing`, is 1.
    """

    name: ColumnName
    meaning: _Text
    missing: Literal["complete_case", "indicator"] = "complete_case"
    retired: bool = False

    @property
    def limits(self) -> tuple[float, float]:
        """Return the smallest and the largest number that a record may hold."""
        raise NotImplementedError

    @pydantic.model_validator(mode="after")
    def _usable(self) -> Self:
        self.bounds  # noqa: B018 - the same rules for names and bounds as in jobs
        self.indicator  # noqa: B018
        return self

    @property
    def in_place_of_missing(self) -> float:
        """Return what a record without a value holds, where an indicator says so."""
        return 0.0 if isinstance(self, Flag | Category) else self.bounds.centre

    @property
    def indicator(self) -> "Flag | None":
        """Return the column that says whether the value is missing, where there is one."""
        if self.missing != "indicator":
            return None
        return Flag(
            name=f"{self.name}_missing",
            meaning=f"1 where {self.name} has no value",
            retired=self.retired,
        )

    @property
    def bounds(self) -> ColumnBounds:
        """Return the column's public range, as jobs name it."""
        lower, upper = self.limits
        return ColumnBounds(name=self.name, lower=lower, upper=upper)


class Number(_Variable):
    """A number between public bounds, which come from general knowledge and never from data."""

    type: Literal["number"] = "number"
    unit: Annotated[str, StringConstraints(max_length=100)] = ""
    lower: Real
    upper: Real

    @property
    def limits(self) -> tuple[float, float]:
        """Return the bounds."""
        return self.lower, self.upper


class Flag(_Variable):
    """Yes or no: 1 or 0."""

    type: Literal["flag"] = "flag"

    @property
    def limits(self) -> tuple[float, float]:
        """Return 0 and 1."""
        return 0.0, 1.0


class Category(_Variable):
    """One of some public levels: its place among them, from 0."""

    type: Literal["category"] = "category"
    levels: Annotated[tuple[_Level, ...], Field(min_length=2, max_length=MOST_LEVELS)]

    @pydantic.field_validator("levels")
    @classmethod
    def _levels_are_distinct(cls, levels: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(levels)) != len(levels):
            raise ValueError("two levels are the same")
        return levels

    @property
    def limits(self) -> tuple[float, float]:
        """Return the first place and the last."""
        return 0.0, float(len(self.levels) - 1)


class Date(_Variable):
    """A day between two public ones, in days since 1970-01-01."""

    type: Literal["date"] = "date"
    earliest: date
    latest: date

    @property
    def limits(self) -> tuple[float, float]:
        """Return the first day and the last, in days."""
        return float((self.earliest - EPOCH).days), float((self.latest - EPOCH).days)


Variable = Annotated[Number | Flag | Category | Date, Field(discriminator="type")]


class DataDictionary(Document):
    """One version of the consortium's data dictionary, signed by its authority."""

    signed_by: ClassVar[Role] = Role.AUTHORITY
    most_values: ClassVar[int] = MOST_VALUES

    kind: Literal["data_dictionary"] = "data_dictionary"
    consortium: Name
    authority: VerifyKeyHex
    sequence: Place
    previous: Digest | None
    variables: tuple[Variable, ...] = Field(min_length=1, max_length=MOST_VARIABLES)

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> Self:
        indicators = [each.indicator for each in self.variables if each.indicator is not None]
        if len(self.named()) != len(self.variables) + len(indicators):
            raise ValueError("two variables have the same name, or one that of an indicator")
        if (self.sequence == 1) != (self.previous is None):
            raise ValueError("the first version has no previous one, every other has")
        return self

    def named(self) -> dict[str, Number | Flag | Category | Date]:
        """Return the variables, and the indicators of missing values, by name."""
        indicators = [each.indicator for each in self.variables if each.indicator is not None]
        return {each.name: each for each in (*self.variables, *indicators)}

    def follows(self, earlier: "DataDictionary") -> bool:
        """Tell whether this is the next version: no variable is gone or means something else."""
        place = (self.consortium, self.authority, self.sequence, self.previous)
        if place != (
            earlier.consortium,
            earlier.authority,
            earlier.sequence + 1,
            earlier.digest,
        ):
            return False
        named = self.named()
        return all(
            each.name in named
            and named[each.name].model_copy(update={"retired": each.retired}) == each
            and named[each.name].retired >= each.retired
            for each in earlier.variables
        )

    def bounds_fault_of(self, columns: Iterable[ColumnBounds]) -> str | None:
        """Return why a job's bounds of a variable that is known cannot be meant, or None.

        Narrower bounds are the analyst's choice, wider ones cost accuracy alone. Bounds between
        which no value lies are in another unit.
        """
        named = self.named()
        for place, column in enumerate(columns, start=1):
            variable = named.get(column.name) if column.term is None else None
            if variable is not None:
                lower, upper = variable.limits
                if column.upper <= lower or upper <= column.lower:
                    return (
                        f"column {place}, {variable.name}, is from {lower:g} to {upper:g} in the "
                        "data dictionary, and never between the job's bounds"
                    )
        return None


def fault_of(
    named: Mapping[str, Number | Flag | Category | Date],
    columns: Iterable[ColumnBounds],
    *,
    as_levels: bool,
) -> str | None:
    """Return why a job may not read these columns, or None; it repeats no name that was sent.

    Places of levels are no quantity: only what counts them (`as_levels`) may read them, and a
    factor of a term that is 1 at one of them. The bounds of a term's variables are
    within the dictionary's: no value is beyond.
    """
    in_use = [name for name, each in named.items() if not each.retired]
    for place, column in enumerate(columns, start=1):
        for factor in [None] if column.term is None else column.term.factors:
            name = column.name if factor is None else factor.variable
            variable = named.get(name)
            if variable is None:
                near = difflib.get_close_matches(name, in_use, n=3)
                hint = f"; near to it are {', '.join(near)}" if near else ""
                return f"column {place} is not in the consortium's data dictionary{hint}"
            fault = _fault_of_reading(variable, factor, as_levels=as_levels)
            if fault is not None:
                return f"column {place}, {variable.name}, {fault}"
    return None


def _fault_of_reading(
    variable: Number | Flag | Category | Date, factor: Factor | None, *, as_levels: bool
) -> str | None:
    """Return why a column, or a factor of its term, may not be of a variable that is known."""
    lower, upper = variable.limits
    if variable.retired:
        return "is retired in the data dictionary"
    if isinstance(factor, Level):
        is_place = isinstance(variable, Number | Date) or factor.value == int(factor.value)
        if not (lower <= factor.value <= upper and is_place):
            return "has no such level in the data dictionary"
        return None
    if isinstance(variable, Category) and not as_levels:
        return (
            f"has {len(variable.levels)} levels, which are no quantity: count them, or read each "
            "as a level, as a formula's C() does"
        )
    if factor is not None and not lower <= factor.lower < factor.upper <= upper:
        return f"is from {lower:g} to {upper:g} in the data dictionary: keep its bounds within"
    return None


def read_dictionary(encoded: bytes, parties: Parties) -> Signed[DataDictionary]:
    """Read any version of the consortium's data dictionary.

    Raises:
        MalformedDocument, UnsupportedVersion: it is broken, or of another consortium.
        WrongSigner, BadSignature: the consortium's authority did not sign it.
    """
    signed = decode(encoded, DataDictionary)
    body, manifest = signed.body, parties.manifest
    if signed.signer != AUTHORITY_NAME:
        raise WrongSigner("a data dictionary is signed by the authority")
    signed.verify_signature(VerifyKey(bytes.fromhex(manifest.authority)))
    if (body.consortium, body.authority) != (manifest.consortium, manifest.identity):
        raise MalformedDocument("the data dictionary is of another consortium")
    return signed


def open_dictionary(
    encoded: bytes, parties: Parties, earlier: DataDictionary | None
) -> Signed[DataDictionary]:
    """Read the version that follows `earlier`, or the first.

    Raises:
        MalformedDocument: it does not follow.
        MalformedDocument, UnsupportedVersion, WrongSigner, BadSignature: as `read_dictionary`.
    """
    signed = read_dictionary(encoded, parties)
    body = signed.body
    if earlier is None and body.sequence != 1:
        raise MalformedDocument("the data dictionary is not the first version")
    if earlier is not None and not body.follows(earlier):
        raise MalformedDocument(
            "the data dictionary does not follow the version in force: variables are only added "
            "or retired"
        )
    return signed


_SHOWN: Final = 5

CodingKind = Literal["classes", "outcome", "event", "time", "count", "positive", "weight", "levels"]


@dataclass(frozen=True)
class Coding:
    """What values of a variable are: one of two classes, an event or none, a time, and so on.

    `values` are the two classes, or the levels that are told apart, or the value that is the event,
    which is 1 if there is none; of a time its lower bound.
    """

    variable: str
    kind: CodingKind
    values: tuple[float, ...] = ()

    def fault_of(self, values: NDArray[np.float64]) -> str | None:
        """Return what is wrong with values, shape (n,), and what was found; None if nothing is."""
        name, found = repr(self.variable), np.unique(values[~np.isnan(values)])
        others = found[~np.isin(found, self.values)]
        match self.kind:
            case "classes" | "outcome" if len(others) and len(found) > 2:
                odd = [each for each in found.tolist() if each not in (0.0, 1.0)]
                return (
                    f"the target {name} has {_count(len(found))} values in the records, "
                    f"{_shown(found)}: if {odd[-1]:g} means missing, make it missing (NaN); two "
                    f"classes have two values{self._one_class(found[1])}"
                )
            case "classes" | "outcome" if len(others):
                low, high = self.values
                cure = (
                    f"give the values of both as its bounds{self._one_class(others[-1])}"
                    if self.kind == "classes"
                    else "name the values of both, as success=2, failure=1"
                )
                return (
                    f"the target {name} is {_shown(others)} in the records, and of two classes, "
                    f"coded {low:g} and {high:g}: {cure}"
                )
            case "event" if not self.values and not np.isin(found, (0.0, 1.0)).all():
                return uncoded_event(self.variable, f"{found[-1]:g}")
            case "event" if self.values and len(found) and not np.isin(self.values, found).all():
                return (
                    f"the event {name} is never {self.values[0]:g} in the records, but "
                    f"{_shown(found)}: name the value that is the event"
                )
            case "time" if (found < min(self.values)).any():
                below = _shown(found[found < self.values[0]])
                return (
                    f"the time {name} is below its lower bound {self.values[0]:g} in the records, "
                    f"at {below}: it counts from when a record is first at risk"
                )
            case "count" if (found < 0.0).any() or (found != np.floor(found)).any():
                wrong = found[(found < 0.0) | (found != np.floor(found))]
                return (
                    f"the target {name} is {_shown(wrong)} in the records, and a count is a whole "
                    "number, 0 or more: a rate is a count with an offset, the logarithm of what it "
                    "is for"
                )
            case "positive" if (found <= 0.0).any():
                wrong = found[found <= 0.0]
                return f"the target {name} is {_shown(wrong)} in the records, and must be above 0"
            case "weight" if (found < 0.0).any():
                wrong = found[found < 0.0]
                return f"the weight {name} is {_shown(wrong)} in the records: none is below 0"
            case "weight" if len(found) and not found.any():
                return f"the weight {name} is 0 in all records, so that none of them counts"
            case "levels" if len(others) and not np.isin(self.values, found).all():
                absent = np.array(self.values)[~np.isin(self.values, found)]
                return f"{name} is {_shown(others)} in the records, and never {_shown(absent)}"
            case _:
                return None

    def _one_class(self, value: float) -> str:
        """Return how to name one class, where a formula can."""
        return f", or name one, as level({self.variable}, {value:g}) does" * (
            self.kind == "classes"
        )


def _count(number: int) -> str:
    return "three" if number == 3 else f"{number:,}"


def _shown(values: NDArray[np.float64]) -> str:
    more = " and others" if len(values) > _SHOWN else ""
    return ", ".join(f"{each:g}" for each in values[:_SHOWN].tolist()) + more


def codings_of_terms(terms: Iterable[Term | None]) -> tuple[Coding, ...]:
    """Return the levels that terms list of their variables."""
    factors = (factor for term in terms if term is not None for factor in term.factors)
    listed = {each.variable: each.among for each in factors if isinstance(each, Level)}
    return tuple(Coding(name, "levels", among) for name, among in listed.items() if among)


def codings_of_target(family: str, target: ColumnBounds) -> tuple[Coding, ...]:
    """Return how a regression's target is coded; none where a term makes it."""
    if target.term is not None:
        return ()
    if family == "logistic":
        return (Coding(target.name, "classes", (target.lower, target.upper)),)
    counts = ("poisson", "negative_binomial")
    kind: CodingKind | None = (
        "count" if family in counts else "positive" if family == "gamma" else None
    )
    return () if kind is None else (Coding(target.name, kind),)


def codings_of_events(time: ColumnBounds, event: str, value: float | None) -> tuple[Coding, ...]:
    """Return how times and events are coded; a `value` that is the event may be named."""
    named = () if value is None else (value,)
    times = () if time.term else (Coding(time.name, "time", (time.lower,)),)
    return (*times, Coding(event, "event", named))


def event_fault_of(variable: Number | Flag | Category | Date | None) -> str | None:
    """Return why a variable is no indicator of an event, 0 or 1, or None."""
    if isinstance(variable, Category):
        return uncoded_event(variable.name, f'"{variable.levels[-1]}"')
    if variable is None or variable.limits == (0.0, 1.0):
        return None
    return uncoded_event(variable.name, f"{variable.limits[1]:g}")


def uncoded_event(name: str, example: str) -> str:
    """Return that an event is not coded 0 and 1, and how to say which value it is."""
    return (
        f"the event {name!r} is not coded 0 and 1: name the value that is the event, as "
        f'event={{"{name}": {example}}}, and make what means missing, as 9 often does, missing '
        "(NaN)"
    )

"""Formulas in Wilkinson's notation, and the columns that they mean by the data dictionary.

systolic ~ poly(age, 2) + C(smoker, reference="no") + center(bmi):sex + log(crp, 0.1)
visits ~ age + spline(bmi, 4) + offset(log(years))

formulaic's parser reads a formula; nothing of it is ever executed. Columns are terms that data
holders evaluate. Their bounds follow from the variables' by interval arithmetic. A category has one
column for each level except its reference, and all of them where no other term has what the
reference would stand for. Records with none of the levels that a formula lists lack a value.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, pairwise, product
from typing import Any, Final, Self

import numpy as np
import pydantic

from shoal_protocol.queries.columns import (
    Centred,
    ColumnBounds,
    Factor,
    Legendre,
    Level,
    Log,
    Power,
    Spline,
    Term,
)
from shoal_protocol.trust.dictionary import Category, Date, Flag
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.encoding import canonical_text
from shoal_studies.coding import Variable, near_to, variable_given


@dataclass(frozen=True)
class Known:
    """Variables by name, and the reference of those whose levels were given in an order.

    Who `counts_others` may name some of the levels that a dictionary has.
    """

    variables: Mapping[str, Variable] = field(default_factory=dict)
    references: Mapping[str, str] = field(default_factory=dict)
    counts_others: bool = False

    @classmethod
    def given(cls, variables: object, parameter: str) -> Self:
        """Return what a user says of variables.

        Raises:
            ValueError: it is not usable; the message begins with `parameter`.
        """
        if not isinstance(variables, Mapping):
            raise ValueError(f'{parameter} must be a mapping, as {{"age": (18, 90)}}')
        said = {canonical_text(str(name)): each for name, each in variables.items()}
        found = {name: variable_given(name, each, parameter) for name, each in said.items()}
        indicators = {
            each.indicator.name: each.indicator
            for each in found.values()
            if each.indicator is not None
        }
        references = {
            name: each.levels[0] for name, each in found.items() if isinstance(each, Category)
        }
        return cls({**found, **indicators}, references)

    def joined(self, other: "Known") -> "Known":
        """Return these and all of `other`."""
        variables, references = {**self.variables, **other.variables}, {**self.references}
        return replace(self, variables=variables, references=references | {**other.references})

    def over(self, dictionary: Mapping[str, Variable]) -> Self:
        """Return what is known with a dictionary: bounds are these, places of levels are its own.

        Raises:
            ValueError: the dictionary has other levels.
        """
        known = {**dictionary, **self.variables}
        for name, variable in self.variables.items():
            agreed = dictionary.get(name)
            if not isinstance(variable, Category) or agreed is None:
                continue
            levels = agreed.levels if isinstance(agreed, Category) else ()
            unknown = [level for level in variable.levels if level not in levels]
            if unknown or (len(levels) > len(variable.levels) and not self.counts_others):
                raise ValueError(
                    f"{name!r} has other levels in the data dictionary: {', '.join(levels)}"
                    if levels
                    else f"{name!r} has no levels in the data dictionary: give bounds, as two "
                    "numbers, or leave them out"
                )
            known[name] = agreed
        return replace(self, variables=known)


def named(variables: Mapping[str, Variable], name: str) -> Any:
    """Return the variable of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in variables:
        base = name.removesuffix("_missing")
        if base != name and base in variables:
            raise ValueError(f"{base!r} has no indicator of missing values in the data dictionary")
        near = near_to(name, variables)
        raise ValueError(
            f"there is no variable {name!r}{near}{': correct it, or' if near else ':'} give its "
            f"bounds or levels in `variables`, as {{{name!r}: (0, 1)}}"
        )
    return variables[name]


Argument = str | float | tuple[str | float, ...]

_QUOTED: Final = re.compile(r"`([^`]*)`")
_STAND_IN: Final = "_quoted_"
_SUPPORTED: Final = (
    'a formula has variables, C(x), C(x, reference="level"), level(x, "level"), I(x**2), '
    "power(x, 2), poly(x, 2), center(x), center(x, 50), log(x), log(x, lower), spline(x, 4), "
    "spline(x, knots=[1, 2]) and missing(x), and offset() of one of them"
)


@dataclass(frozen=True)
class Part:
    """One factor as it is written: a function of one variable, and its further arguments.

    `function` is one of `_FUNCTIONS`, "" for the variable itself. `text` names its columns.
    """

    text: str
    function: str
    variable: str
    arguments: Mapping[str, Argument] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Formula:
    """A target, terms as products of parts, short ones first, and if there is a constant term.

    `offset` is a part whose coefficient is 1.
    """

    target: Part
    terms: tuple[tuple[Part, ...], ...]
    constant: bool
    offset: Part | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of the variables that it reads, in order of appearance."""
        parts = (self.target, *(part for term in self.terms for part in term), self.offset)
        return tuple(dict.fromkeys(part.variable for part in parts if part is not None))


def parse(formula: str) -> Formula:
    """Read a formula.

    Raises:
        ValueError: it is none, or has something that is not supported; the message says what.
        ImportError: formulaic is not installed.
    """
    left, right = _split(formula)
    if len(left) != 1 or len(left[0]) != 1:
        raise ValueError("a formula has one target, left of ~: blood_pressure ~ age + C(sex)")
    constant = ["1"] in right
    offsets = [term for term in right if len(term) == 1 and term[0].startswith("offset(")]
    if len(offsets) > 1:
        raise ValueError("a formula has one offset at most")
    features = [term for term in right if term != ["1"] and term not in offsets]
    terms = tuple(tuple(map(_part, term)) for term in sorted(features, key=len))
    if not terms:
        raise ValueError("a formula has a feature at least, right of ~")
    inner = [text.removeprefix("offset(").removesuffix(")") for [text] in offsets]
    return Formula(_part(left[0][0]), terms, constant, *map(parse_part, inner))


def parse_part(text: str) -> Part:
    """Read a variable, or a function of one.

    Raises:
        ValueError: it is neither; the message says what may be.
    """
    return _part(f"`{text}`" if text.isidentifier() else text)


def _split(formula: str) -> tuple[list[list[str]], list[list[str]]]:
    """Return the terms of both sides, each a list of its factors' texts; "1" is the constant."""
    try:
        from formulaic.errors import FormulaicError
        from formulaic.parser import DefaultFormulaParser
    except ImportError as error:
        raise ImportError("formulas need the extra: pip install 'shoal[formulas]'") from error
    try:
        _refuse_random_effects_and_powers(formula)
        found = DefaultFormulaParser().get_terms(formula)
    except (FormulaicError, SyntaxError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ValueError(f"the formula cannot be read: {reason}") from None
    left, right = (getattr(found, side, None) for side in ("lhs", "rhs"))
    if not left or right is None or isinstance(left, tuple) or isinstance(right, tuple):
        raise ValueError("a formula has one target and one sum of terms: y ~ x + z")
    targets, terms = (
        [[_text(each) for each in term.factors] for term in side] for side in (left, right)
    )
    factors = [text for term in terms if term != ["1"] for text in term]
    if any(text.replace(".", "", 1).isdecimal() for text in factors):
        raise ValueError("terms cannot be scaled in a formula")
    return targets, terms


def _text(factor: Any) -> str:
    """Return a factor as it is written; a plain name in backticks, so that it is nothing else."""
    return f"`{factor.expr}`" if factor.eval_method.value == "lookup" else str(factor.expr)


def _refuse_random_effects_and_powers(formula: str) -> None:
    from formulaic.parser.algos.tokenize import tokenize

    tokens = [(str(token.token), token.kind.value) for token in tokenize(formula)]
    for (text, kind), (after, _) in pairwise([*tokens, ("", "")]):
        if text in ("|", "||"):
            raise ValueError(
                "a formula has one target and one sum of terms, and no random effects such as "
                '(1 | site): pooled="site" gives the levels of a public variable a common prior, '
                "and several records of one client need nothing, since intervals are clustered by "
                "client; how much clients differ is not measured"
            )
        if kind in ("name", "python") and after in ("**", "^"):
            raise ValueError(
                f"{text!r} has a power, which in this notation is {text!r} itself: I(x**2) is the "
                "square of a variable, and poly(x, 2) has x and its square"
            )


def _part(text: str) -> Part:
    # a name in backticks, whatever characters it has, is an identifier while this is parsed
    parsed = _QUOTED.sub(lambda match: f"{_STAND_IN}{match[1].encode().hex()}", text)
    try:
        node = ast.parse(parsed, mode="eval").body
    except SyntaxError:
        raise ValueError(f"{text!r} cannot be read: {_SUPPORTED}") from None
    written = _QUOTED.sub(lambda match: canonical_text(match[1]), text)
    match node:
        case ast.Name(name) if name.startswith(_STAND_IN):
            return Part(written, "", _name(node))
        case ast.Call(ast.Name("missing"), [ast.Name() as of], []):
            return Part(written, "", f"{_name(of)}_missing")
        case ast.Call(
            ast.Name("I"),
            [ast.BinOp(ast.Name() as of, ast.Pow() | ast.BitXor(), exponent)],
            [],
        ):
            return _called(written, "power", of, [exponent], [])
        case ast.Call(ast.Name(function), [ast.Name() as of, *others], named):
            if function in _FUNCTIONS:
                return _called(written, function, of, others, named)
    raise ValueError(f"{written!r} is not supported: {_SUPPORTED}")


def _called(
    written: str,
    function: str,
    of: ast.Name,
    others: Sequence[ast.expr],
    named: Sequence[ast.keyword],
) -> Part:
    label, meaning = _FUNCTIONS[function]
    by_name = {str(each.arg): _constant(each.value) for each in named}
    try:
        bound = inspect.signature(meaning).bind(None, *map(_constant, others), **by_name)
    except TypeError:
        raise ValueError(f"{written!r} has wrong arguments: {_SUPPORTED}") from None
    given = {name: each for name, each in bound.arguments.items() if name != "use"}
    text = written if label is None else label.format(x=_name(of), **given)
    return Part(text, function, _name(of), given)


def _name(node: ast.Name) -> str:
    quoted = node.id.removeprefix(_STAND_IN)
    return canonical_text(node.id if quoted == node.id else bytes.fromhex(quoted).decode())


def _constant(node: ast.expr) -> Argument:
    try:
        found = ast.literal_eval(node)
    except ValueError:
        found = None
    several = found if isinstance(found, list | tuple) else [found]
    if not all(isinstance(each, str | int | float) for each in several):
        raise ValueError(f"an argument is neither a number nor a text: {_SUPPORTED}")
    read = tuple(canonical_text(each) if isinstance(each, str) else each for each in several)
    return read if several is found else read[0]


LONGEST_NAME: Final = 64
_DEGREE: Final = 3


@dataclass(frozen=True)
class _Choice:
    """One function that a part stands for; `short` is its label where the other is too long."""

    label: str
    short: str
    factor: Factor


def features_of(formula: Formula, known: Known) -> tuple[ColumnBounds, ...]:
    """Return the columns of a formula's terms, as tasks take them.

    Columns are centred at the middle of their bounds, and a constant in the data's units follows
    from the centres. So a formula without one has features whose bounds are about zero.

    Raises:
        ValueError: a variable is unknown, or not of the kind that the formula takes it for.
    """
    features: list[ColumnBounds] = []
    spanned: set[frozenset[Part]] = {frozenset()} if formula.constant else set()
    for term in formula.terms:
        parts = frozenset(term)
        choices = []
        for part in term:
            is_reduced = parts - {part} in spanned
            choices.append(_choices(part, known, reduced=is_reduced))
            if not is_reduced and _is_categorical(part, known):
                spanned.add(parts - {part})
        spanned.add(parts)
        features += [_column(term, chosen, known) for chosen in product(*choices)]
    if not formula.constant:
        features = [about_zero(each) for each in features]
    return tuple(features)


def about_zero(column: ColumnBounds) -> ColumnBounds:
    """Return a column with bounds that have zero in their middle."""
    largest = max(abs(column.lower), abs(column.upper))
    return column.model_copy(update={"lower": -largest, "upper": largest})


def variable_columns(name: str, known: Known) -> tuple[ColumnBounds, ...]:
    """Return a variable's column, or one for each level of a category but its reference.

    Raises:
        ValueError: there is no such variable.
    """
    part = Part(name, "", name)
    return tuple(_column((part,), (each,), known) for each in _choices(part, known, reduced=True))


def levels_of(part: Part, known: Known) -> list[tuple[str, float]]:
    """Return a category's levels, the reference first, as names and as what records hold.

    Raises:
        ValueError: it is no category.
    """
    if not _is_categorical(part, known):
        raise ValueError(
            f"{part.text!r} is no category: name one, or list its levels, as "
            f"C({part.variable}, levels=[1, 2, 3])"
        )
    use = _Use(part, named(known.variables, part.variable), known, reduced=False)
    listed, reference = _listed(use, **part.arguments)
    return sorted(listed, key=lambda level: level[1] != reference)


def single(part: Part, what: str, known: Known) -> ColumnBounds:
    """Return the one column of a part, which is the `what` of a regression.

    Raises:
        ValueError: it has several, or as `features_of`.
    """
    found = _choices(part, known, reduced=True)
    if len(found) != 1 and _is_categorical(part, known):
        levels = [name for name, _ in levels_of(part, known)]
        raise ValueError(
            f"the {what} {part.text!r} has the levels {', '.join(levels[:20])}: name the one that "
            f'is 1, as level({part.variable}, "{levels[-1]}") does'
        )
    if len(found) != 1:
        raise ValueError(
            f'the {what} {part.text!r} has {len(found)} columns: name one, as level(x, "yes") does'
        )
    return _column((part,), (found[0],), known)


def _column(term: Sequence[Part], chosen: Sequence[_Choice], known: Known) -> ColumnBounds:
    """Return a term's column; a number or flag by itself is the variable's own."""
    [first, *others] = term
    if not first.function and not others and not _is_categorical(first, known):
        variable: Variable = named(known.variables, first.variable)
        return variable.bounds
    label = ":".join(each.label for each in chosen)
    if len(label) > LONGEST_NAME or not label.isprintable():
        label = ":".join(each.short for each in chosen)
    if len(label) > LONGEST_NAME:
        raise ValueError("a term's name would be longer than 64 characters: shorten the variables'")
    try:
        return ColumnBounds.of_term(label, Term(factors=tuple(each.factor for each in chosen)))
    except pydantic.ValidationError as error:
        raise ValueError(f"the term {label}: {describe(error)}") from None


def _is_categorical(part: Part, known: Known) -> bool:
    return part.function == "C" or (
        not part.function and isinstance(named(known.variables, part.variable), Category)
    )


@dataclass(frozen=True)
class _Use:
    """A part with its variable. A category that is `reduced` has no column for its reference."""

    part: Part
    variable: Any
    known: Known
    reduced: bool

    def factor(self, kind: Callable[..., Any], **arguments: Any) -> Any:
        """Return a factor of a quantity within its bounds, or within those among `arguments`."""
        lower, upper = self.variable.limits
        return kind(**{"variable": self.part.variable, "lower": lower, "upper": upper} | arguments)


def _choices(part: Part, known: Known, *, reduced: bool) -> list[_Choice]:
    use = _Use(part, named(known.variables, part.variable), known, reduced)
    function = "C" if _is_categorical(part, known) else part.function
    if isinstance(use.variable, Category) and function not in ("C", "level"):
        raise ValueError(f"{part.text!r}: a category is no quantity; write C({part.variable})")
    _, meaning = _FUNCTIONS[function]
    try:
        return meaning(use, **part.arguments)
    except pydantic.ValidationError as error:
        raise ValueError(f"{part.text!r}: {describe(error)}") from None


def _alone(use: _Use, factor: Factor) -> list[_Choice]:
    return [_Choice(use.part.text, use.part.text, factor)]


def _numbered(use: _Use, factors: Iterable[Factor]) -> list[_Choice]:
    labels = (f"{use.part.text}[{number}]" for number in count(1))
    return [_Choice(label, label, factor) for label, factor in zip(labels, factors, strict=False)]


def _power(use: _Use, exponent: Argument) -> list[_Choice]:
    return _alone(use, use.factor(Power, exponent=exponent))


def _centred(use: _Use, at: Argument | None = None) -> list[_Choice]:
    return _alone(use, use.factor(Centred, at=use.variable.bounds.centre if at is None else at))


def _log(use: _Use, lower: Argument | None = None) -> list[_Choice]:
    lower = use.variable.limits[0] if lower is None else lower
    if not isinstance(lower, float | int) or lower <= 0.0:
        raise ValueError(
            f"{use.part.text!r} needs a lower bound above 0, to which values are cut: "
            f"log({use.variable.name}, 0.1)"
        )
    return _alone(use, use.factor(Log, lower=lower))


def _polynomials(use: _Use, degree: Argument) -> list[_Choice]:
    """Return the polynomials from degree 1 to the one that is asked for."""
    highest = use.factor(Legendre, degree=degree)
    lower = (use.factor(Legendre, degree=each) for each in range(1, highest.degree))
    return _numbered(use, [*lower, highest])


def _splines(
    use: _Use, columns: Argument | None = None, *, knots: Argument | None = None
) -> list[_Choice]:
    """Return a basis of splines but the first, which the others give with the constant."""
    if (columns is None) == (knots is None):
        raise ValueError(
            "a spline has a number of columns, spline(x, 4), or spline(x, knots=[1, 2])"
        )
    if knots is None:
        if not isinstance(columns, int) or columns not in range(_DEGREE, _DEGREE + 33):
            raise ValueError(f"{use.part.text!r} has a whole number of columns, {_DEGREE} at least")
        ends = np.linspace(*use.variable.limits, columns - _DEGREE + 2)
        knots = tuple(ends[1:-1].tolist())
    first = use.factor(Spline, knots=knots, place=1)
    places = range(2, len(first.knots) + _DEGREE + 1)
    return _numbered(
        use, [first, *(use.factor(Spline, knots=knots, place=each) for each in places)]
    )


def _level(use: _Use, level: Argument) -> list[_Choice]:
    name, value = level_of(use.variable, level, repr(use.part.text))
    at = Level(variable=use.variable.name, value=value)
    return [_Choice(use.part.text, f"{use.part.variable}[{name}]", at)]


def _levels(
    use: _Use, *, reference: Argument | None = None, levels: Argument | None = None
) -> list[_Choice]:
    listed, at_reference = _listed(use, reference=reference, levels=levels)
    among = () if levels is None else tuple(value for _, value in listed)
    found = [
        _Choice(
            f"{use.part.text}[{label}]",
            f"{use.part.text}[#{place}]",
            Level(variable=use.variable.name, value=value, among=among),
        )
        for place, (label, value) in enumerate(listed)
        if not (use.reduced and value == at_reference)
    ]
    if use.reduced and len(found) == len(listed):
        raise ValueError(f"{use.part.text!r}: the reference is none of the levels")
    return found


_FUNCTIONS: Final[Mapping[str, tuple[str | None, Callable[..., list[_Choice]]]]] = {
    "": (None, partial(_power, exponent=1)),
    "C": ("C({x})", _levels),
    "center": (None, _centred),
    "level": ("level({x}, {level})", _level),
    "log": ("log({x})", _log),
    "poly": ("poly({x})", _polynomials),
    "power": ("{x}**{exponent}", _power),
    "spline": ("spline({x})", _splines),
}
"""By what a formula calls it: the label of a function's columns, None as written, and these."""


def _listed(
    use: _Use, *, reference: Argument | None = None, levels: Argument | None = None
) -> tuple[list[tuple[str, float]], float]:
    """Return the levels, as names and as what records hold, and what the reference's hold."""
    variable = use.variable
    if levels is None and isinstance(variable, Category | Flag):
        levels = variable.levels if isinstance(variable, Category) else (0, 1)
    if not isinstance(levels, tuple) or isinstance(variable, Date) or len(levels) < 2:
        raise ValueError(
            f"{use.part.text!r}: {variable.name!r} is no category; list its levels, as "
            f"C({variable.name}, levels=[1, 2, 3])"
        )
    text = repr(use.part.text)
    listed = [level_of(variable, each, text) for each in levels]
    if reference is None:
        reference = use.known.references.get(variable.name, listed[0][0])
    return listed, level_of(variable, reference, text)[1]


def level_of(variable: Variable, level: object, text: str) -> tuple[str, float]:
    """Return the name of a variable's level, and what records hold for it.

    Raises:
        ValueError: there is no such level; the message begins with the `text` that names it.
    """
    if isinstance(variable, Category):
        said = canonical_text(level) if isinstance(level, str) else level
        if said not in variable.levels:
            raise ValueError(
                f"{text}: {said!r} is no level of {variable.name!r}, which has "
                f"{', '.join(variable.levels[:20])}"
            )
        return str(said), float(variable.levels.index(str(said)))
    (lower, upper), number = variable.limits, _number(level)
    if number is None:
        raise ValueError(f"{text}: {variable.name!r} has numbers for levels, each of them one")
    if not lower <= number <= upper:
        raise ValueError(
            f"{text}: {number:g} is beyond the bounds of {variable.name!r}, {lower:g} and {upper:g}"
        )
    return f"{number:.15g}", number


def _number(level: Any) -> float | None:
    try:
        return float(level)
    except (TypeError, ValueError):
        return None

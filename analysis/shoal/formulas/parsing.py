"""Reads a formula into a target and terms, by formulaic's parser; nothing of it is ever executed.

systolic ~ age + C(smoker, reference="no") + age:sex + I(age**2) + log(crp, 0.1) + spline(bmi, 4)
visits ~ age + offset(log(years))
"""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from shoal_protocol.wire.encoding import canonical_text

Kind = Literal["itself", "category", "power", "log", "spline", "level"]
Argument = str | float | tuple[str | float, ...]

_QUOTED: Final = re.compile(r"`([^`]*)`")
_OFFSET: Final = re.compile(r"offset\((.*)\)", re.DOTALL)
_SUPPORTED: Final = (
    'a formula has variables, C(x), C(x, reference="level"), level(x, "level"), I(x**2), '
    "power(x, 2), log(x), log(x, lower), spline(x, 4), spline(x, knots=[1, 2]) and missing(x), and "
    "offset() of one of them"
)


@dataclass(frozen=True)
class Part:
    """One factor as it is written: a function of one variable, and its further arguments."""

    text: str
    kind: Kind
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
    offsets = [found[1] for term in right if len(term) == 1 and (found := _offset_in(term[0]))]
    if len(offsets) > 1:
        raise ValueError("a formula has one offset at most")
    features = [term for term in right if term != ["1"] and not _offset_in(term[0])]
    terms = tuple(tuple(map(_part, term)) for term in sorted(features, key=len))
    if not terms:
        raise ValueError("a formula has a feature at least, right of ~")
    return Formula(_part(left[0][0]), terms, constant, *map(parse_part, offsets))


def _offset_in(text: str) -> re.Match[str] | None:
    return _OFFSET.fullmatch(text)


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
        found = DefaultFormulaParser().get_terms(_with_powers(formula))
    except (FormulaicError, SyntaxError) as error:
        reason = str(error).splitlines()[0].split(". ")[0]
        raise ValueError(f"the formula cannot be read: {reason}") from None
    left, right = (getattr(found, side, None) for side in ("lhs", "rhs"))
    if not left or right is None or isinstance(left, tuple) or isinstance(right, tuple):
        raise ValueError("a formula has one target and one sum of terms: y ~ x + z")
    targets, terms = (
        [[_text(each) for each in term.factors] for term in side] for side in (left, right)
    )
    if any(any(map(_is_number, term)) for term in terms if term != ["1"]):
        raise ValueError("terms cannot be scaled in a formula")
    return targets, terms


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _text(factor: Any) -> str:
    """Return a factor as it is written; a plain name in backticks, so that it is nothing else."""
    return f"`{factor.expr}`" if factor.eval_method.value == "lookup" else str(factor.expr)


def _with_powers(formula: str) -> str:
    """Return the formula with I(x**2) for x**2, which in this notation is but x."""
    from formulaic.parser.algos.tokenize import tokenize

    parts: list[str] = []
    tokens = [(str(token.token), token.kind.value) for token in tokenize(formula)]
    while tokens:
        text, kind = tokens.pop(0)
        written = {"name": f"`{text}`", "python": f"{{{text}}}"}.get(kind, text)
        if kind == "name" and len(tokens) > 1 and tokens[0][0] in ("**", "^"):
            power, of_power = tokens[1]
            if of_power == "value":
                written = f"{{I({written}**{power})}}"
                tokens = tokens[2:]
        parts.append(written)
    return " ".join(parts)


def _part(text: str) -> Part:
    quoted: list[str] = []

    def stand_in(match: re.Match[str]) -> str:
        quoted.append(match[1])
        return f"_quoted_{len(quoted) - 1}"

    try:
        node = ast.parse(_QUOTED.sub(stand_in, text), mode="eval").body
    except SyntaxError:
        raise ValueError(f"{text!r} cannot be read: {_SUPPORTED}") from None
    written = _QUOTED.sub(lambda match: canonical_text(match[1]), text)
    if isinstance(node, ast.Name) and node.id.startswith("_quoted_"):
        return Part(written, "itself", _name(node, quoted))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        read = _FUNCTIONS.get(node.func.id)
        given = [_value(each, quoted) for each in node.args]
        named = {str(each.arg): _value(each.value, quoted) for each in node.keywords}
        if read is not None and given and isinstance(given[0], _Name | _Power):
            try:
                return read(written, *given, **named)
            except TypeError:
                raise ValueError(f"{written!r} has wrong arguments: {_SUPPORTED}") from None
    raise ValueError(f"{written!r} is not supported: {_SUPPORTED}")


@dataclass(frozen=True)
class _Name:
    name: str


@dataclass(frozen=True)
class _Power:
    name: str
    exponent: Argument


def _name(node: ast.Name, quoted: list[str]) -> str:
    is_quoted = node.id.startswith("_quoted_")
    name = quoted[int(node.id.removeprefix("_quoted_"))] if is_quoted else node.id
    return canonical_text(name)


def _value(node: ast.expr, quoted: list[str]) -> Any:
    """Return a name, a power of one, or a constant."""
    if isinstance(node, ast.Name):
        return _Name(_name(node, quoted))
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Pow | ast.BitXor)
        and isinstance(node.left, ast.Name)
    ):
        return _Power(_name(node.left, quoted), _value(node.right, quoted))
    try:
        found = ast.literal_eval(node)
    except ValueError:
        found = None
    if isinstance(found, list | tuple) and all(
        isinstance(each, str | int | float) for each in found
    ):
        return tuple(
            canonical_text(each) if isinstance(each, str) else float(each) for each in found
        )
    if isinstance(found, str):
        return canonical_text(found)
    if isinstance(found, int | float):
        return float(found)
    raise ValueError(f"an argument is neither a number nor a text: {_SUPPORTED}")


def _category(
    text: str, of: _Name, *, reference: Argument | None = None, levels: Argument | None = None
) -> Part:
    given = {"reference": reference, "levels": levels}
    written = text if levels is None and reference is None else f"C({of.name})"
    return Part(written, "category", of.name, _given(given))


def _level(text: str, of: _Name, level: Argument) -> Part:
    return Part(f"level({of.name}, {level})", "level", of.name, {"level": level})


def _of_power(text: str, of: _Power | _Name, exponent: Argument | None = None) -> Part:
    if isinstance(of, _Name) == (exponent is None):
        raise TypeError
    power = of.exponent if isinstance(of, _Power) else exponent
    if power not in range(1, 7):
        raise ValueError("a variable is taken to a whole power from 1 to 6")
    return Part(f"{of.name}**{power:.0f}", "power", of.name, {"exponent": power or 1.0})


def _log(text: str, of: _Name, lower: Argument | None = None) -> Part:
    return Part(f"log({of.name})", "log", of.name, _given({"lower": lower}))


def _spline(
    text: str, of: _Name, columns: Argument | None = None, *, knots: Argument | None = None
) -> Part:
    if (columns is None) == (knots is None):
        raise ValueError(
            "a spline has a number of columns, spline(x, 4), or spline(x, knots=[1, 2])"
        )
    return Part(
        f"spline({of.name})", "spline", of.name, _given({"columns": columns, "knots": knots})
    )


def _missing(text: str, of: _Name) -> Part:
    return Part(text, "itself", f"{of.name}_missing")


def _given(arguments: Mapping[str, Argument | None]) -> dict[str, Argument]:
    return {name: value for name, value in arguments.items() if value is not None}


_FUNCTIONS: Final[Mapping[str, Callable[..., Part]]] = {
    "C": _category,
    "I": _of_power,
    "level": _level,
    "log": _log,
    "missing": _missing,
    "power": _of_power,
    "spline": _spline,
}

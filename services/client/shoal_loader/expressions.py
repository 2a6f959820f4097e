"""Refuses every SQL expression but scalar ones of one row, and aggregates of one individual's rows.

What comes of an individual's rows may depend on no other's: `docs/mathematics.md` stands on it. So
DuckDB parses the very statement that will be evaluated, and what is not listed here is refused:
windows, subqueries, DISTINCT, LIMIT, joins, chance, clocks, places of rows, sums in floating point,
which depend on their order.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

_SCALARS: Final = frozenset(
    "+ - * / // % ^ ** || ~~ !~~ ~~* !~~* abs ceil ceiling floor round trunc sign sqrt ln log log2"
    " log10 exp pow power greatest least if nullif mod divide multiply add subtract"
    " lower upper trim ltrim rtrim length strlen left right substr substring replace concat"
    " contains starts_with ends_with prefix suffix position strpos lpad rpad split_part"
    " regexp_matches regexp_full_match regexp_extract regexp_replace"
    " strptime try_strptime date_part datepart date_diff datediff date_trunc datetrunc date_sub"
    " year month day quarter week dayofweek isodow dayofyear hour minute second make_date"
    " to_days to_months to_years to_hours to_minutes to_seconds epoch isnan isfinite isinf".split()
)
_EXACT_SUMS: Final = frozenset({"sum", "avg", "mean"})
_AGGREGATES: Final = _EXACT_SUMS | {"count", "count_star", "min", "max", "bool_and", "bool_or"}
_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "DECIMAL"})
_TYPES: Final = _WHOLE | {"FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIME", "TIMESTAMP"}
_OPERATORS: Final = frozenset(
    {
        *("OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE"),
        *("COMPARE_IN", "COMPARE_NOT_IN"),
    }
)
_OPERANDS: Final = {
    "COMPARISON": ("left", "right"),
    "BETWEEN": ("input", "lower", "upper"),
    "CONJUNCTION": ("children",),
    "OPERATOR": ("children",),
    "CASE": ("case_checks", "else_expr"),
    "CAST": ("child",),
}


class RefusedExpression(ValueError):
    """An expression is not one that may make a column; the message says why, and what to write."""


@dataclass
class Expression:
    """What an expression is made of."""

    columns: set[str] = field(default_factory=set)
    """Names of the source's columns in it, as the source writes them."""
    bare: set[str] = field(default_factory=set)
    """Those of them that stand outside aggregates."""
    aggregates: bool = False
    reads_zones: bool = False
    """Whether a text may be read as a time with a zone."""


def checked(
    parse: Callable[[str], str], statement: Callable[[str], str], sql: str, source: Collection[str]
) -> Expression:
    """Return what `sql` is made of, if the statement with it is one expression and no more.

    `parse` is DuckDB's parser, from a statement to JSON; `statement` sets an expression into the
    statement that will be evaluated, within a cast; `source` names the columns that there are.

    Raises:
        RefusedExpression
    """
    try:
        frame, found = _select(parse(statement("NULL"))), _select(parse(statement(sql)))
        inner = _taken_out(found)
        _taken_out(frame)
        if found != frame:
            raise RefusedExpression("is not one SQL expression")
        expression = Expression()
        _walk(inner, expression, {name.casefold(): name for name in source}, within=False)
    except RefusedExpression as refused:
        bare = [
            each
            for each in source
            if (not each.isidentifier() or json.loads(parse(statement(each)))["error"])
            and each.casefold() in sql.casefold()
            and f'"{each}"'.casefold() not in sql.casefold()
        ]
        if not bare:
            raise
        raise RefusedExpression(
            f"{refused}; a column's name with spaces, brackets or signs, or one that is a word of "
            f"SQL, needs double quotes: sql = '\"{max(bare, key=len)}\"'"
        ) from None
    return expression


def _select(parsed: str) -> dict[str, Any]:
    """Return a parsed statement without places in its text."""
    content: dict[str, Any] = json.loads(parsed, object_hook=_without_places)
    if content["error"]:
        raise RefusedExpression("is not one SQL expression")
    return content


def _without_places(node: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in node.items() if not name.startswith("query_location")}


def _taken_out(parsed: dict[str, Any]) -> dict[str, Any]:
    """Take the expression out of the cast that is selected first, and return it."""
    try:
        inner: dict[str, Any] = parsed["statements"][0]["node"]["select_list"][0].pop("child")
    except (KeyError, IndexError):
        raise RefusedExpression("is not one SQL expression") from None
    return inner


def _walk(node: Any, found: Expression, source: dict[str, str], *, within: bool) -> None:
    if isinstance(node, list):
        for each in node:
            _walk(each, found, source, within=within)
        return
    kind = node.get("class")
    if kind is None and node.keys() == {"when_expr", "then_expr"}:  # of a CASE
        _walk([node["when_expr"], node["then_expr"]], found, source, within=within)
    elif kind == "CONSTANT":
        pass
    elif kind == "COLUMN_REF":
        _column(node["column_names"], found, source, within=within)
    elif kind == "FUNCTION":
        _function(node, found, source, within=within)
    elif kind in _OPERANDS:
        if kind == "OPERATOR" and node["type"] not in _OPERATORS:
            raise RefusedExpression("has an operator that is not allowed")
        if kind == "CAST" and _type_of(node) not in _TYPES:
            raise RefusedExpression("casts to a type that is not allowed")
        _walk([node[each] for each in _OPERANDS[kind]], found, source, within=within)
    else:
        raise RefusedExpression(f"has a {str(kind).lower()}, which is not allowed")


def _column(names: list[str], found: Expression, source: dict[str, str], *, within: bool) -> None:
    if len(names) != 1 or names[0].casefold() not in source:
        raise RefusedExpression(f"names {'.'.join(names)!r}, which is no column of the source")
    name = source[names[0].casefold()]
    found.columns.add(name)
    if not within:
        found.bare.add(name)


def _function(
    node: dict[str, Any], found: Expression, source: dict[str, str], *, within: bool
) -> None:
    name = node["function_name"].lower()
    arguments = [each["expression"] for each in node["arguments"]]
    if node["distinct"] or node["order_bys"]["orders"] or node["schema"] or node["catalog"]:
        raise RefusedExpression("has DISTINCT, ORDER BY or a schema's name, which is not allowed")
    if name in _AGGREGATES and not within:
        found.aggregates = True
        if name in _EXACT_SUMS and not all(
            each["class"] == "CAST" and _type_of(each) in _WHOLE for each in arguments
        ):
            raise RefusedExpression(
                f"sums in floating point, which depends on the order of rows: write "
                f"{name}(CAST(… AS DECIMAL(18, 3)))"
            )
        filters = [node["filter"]] if node["filter"] else []
        _walk(arguments + filters, found, source, within=True)
    elif name in _SCALARS and not node["filter"]:
        if name.endswith("strptime"):
            found.reads_zones |= "%z" in json.dumps(arguments[1:]).casefold()
        _walk(arguments, found, source, within=within)
    else:
        raise RefusedExpression(f"uses {name}, which is not allowed there")


def _type_of(cast: dict[str, Any]) -> str:
    return str(cast["type_expr"].get("type_name", "")).upper()

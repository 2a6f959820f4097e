"""Tables whose rows are added and never changed: the database itself refuses anything else.

It guards against a fault of ours and a careless operator. Whoever owns the database can drop a
trigger: against that there are hash chains, and what other parties hold of them.
"""

from typing import Final

from sqlalchemy import DDL, PrimaryKeyConstraint, Table, UniqueConstraint, event

_SQLITE_KEEPS: Final = (
    "CREATE TRIGGER {table}_keeps BEFORE DELETE ON {table} "
    "BEGIN SELECT RAISE(ABORT, '{table} only grows'); END"
)
_SQLITE_STAYS: Final = (
    "CREATE TRIGGER {table}_stays BEFORE UPDATE ON {table} "
    "BEGIN SELECT RAISE(ABORT, '{table} only grows'); END"
)
# REPLACE removes the rows that are in its way without asking the trigger on DELETE
_SQLITE_ADDS: Final = (
    "CREATE TRIGGER {table}_adds BEFORE INSERT ON {table} "
    "WHEN EXISTS (SELECT 1 FROM {table} WHERE {same}) "
    "BEGIN SELECT RAISE(ABORT, '{table} only grows'); END"
)
_POSTGRESQL_FUNCTION: Final = (
    "CREATE FUNCTION {table}_only_grows() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION '{table} only grows' USING ERRCODE = 'restrict_violation'; END $$"
)
_POSTGRESQL_STAYS: Final = (
    "CREATE TRIGGER {table}_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
    "FOR EACH STATEMENT EXECUTE FUNCTION {table}_only_grows()"
)


def only_grows(table: Table) -> None:
    """Add triggers to `table`, wherever it is created, that refuse updates and deletions."""
    _when_made(table, "sqlite", _SQLITE_KEEPS, _SQLITE_STAYS, _SQLITE_ADDS)
    _when_made(table, "postgresql", _POSTGRESQL_FUNCTION, _POSTGRESQL_STAYS)


def only_changes(table: Table) -> None:
    """Add triggers to `table`, wherever it is created, that refuse deletions but no updates."""
    _when_made(table, "sqlite", _SQLITE_KEEPS)
    stays = _POSTGRESQL_STAYS.replace("UPDATE OR ", "")
    _when_made(table, "postgresql", _POSTGRESQL_FUNCTION, stays)


def _when_made(table: Table, dialect: str, *statements: str) -> None:
    for statement in statements:
        ddl = DDL(statement.format(table=table.name, same=_same(table)))  # type: ignore[no-untyped-call]
        event.listen(table, "after_create", ddl.execute_if(dialect=dialect))


def _same(table: Table) -> str:
    """Return the condition, in a trigger, that a row has a key of the new one."""
    keys = [
        " AND ".join(f"{column.name} = NEW.{column.name}" for column in each.columns)
        for each in table.constraints
        if isinstance(each, PrimaryKeyConstraint | UniqueConstraint)
    ]
    return " OR ".join(f"({key})" for key in sorted(keys))

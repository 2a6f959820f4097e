"""Tables whose rows are added and never changed: the database itself refuses anything else.

It guards against a fault of ours and a careless operator. Whoever owns the database can drop a
trigger: against that there are hash chains, and what other parties hold of them.
"""

from typing import Final

from sqlalchemy import DDL, Table, event

_SQLITE: Final = (
    "CREATE TRIGGER {table}_keeps BEFORE DELETE ON {table} "
    "BEGIN SELECT RAISE(ABORT, '{table} only grows'); END",
    "CREATE TRIGGER {table}_stays BEFORE UPDATE ON {table} "
    "BEGIN SELECT RAISE(ABORT, '{table} only grows'); END",
)
_POSTGRESQL: Final = (
    "CREATE FUNCTION {table}_only_grows() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION '{table} only grows' USING ERRCODE = 'restrict_violation'; END $$",
    "CREATE TRIGGER {table}_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
    "FOR EACH STATEMENT EXECUTE FUNCTION {table}_only_grows()",
)


def only_grows(table: Table) -> None:
    """Have `table` refuse updates and deletions wherever it is made from now on."""
    for dialect, statements in (("sqlite", _SQLITE), ("postgresql", _POSTGRESQL)):
        for statement in statements:
            ddl = DDL(statement.format(table=table.name))  # type: ignore[no-untyped-call]
            event.listen(table, "after_create", ddl.execute_if(dialect=dialect))

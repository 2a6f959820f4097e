"""Opens the one source that the owner names, reads it into DuckDB, and shuts the door behind it.

Nothing is guessed from data: every column of a CSV file is text, for a type that is guessed from
all rows would let one individual's row change another's value. Nothing depends on the machine: a
time with a zone is read as the clock showed in the zone that the owner states.
"""

from array import array
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import duckdb
import numpy as np

from shoal_holder.site_files import MAPPING
from shoal_holder.tables import CsvTable, checked_names, id_fault, positions
from shoal_loader.mapping import Mapping, Table
from shoal_protocol.wire.encoding import canonical_text

KEY: Final = "shoal record id"
SOURCE: Final = "source"
_ROWS: Final = 50_000  # of a CSV file at a time
_WHOLE: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_ID_TYPES: Final = ("VARCHAR", "ENUM", "UUID", *_WHOLE, *(f"U{each}" for each in _WHOLE))
_TIME: Final = r"\d{1,4}-\d{1,2}-\d{1,2}[ Tt]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?"
_ZONE: Final = (
    r"([Zz]|[+-]\d{1,2}(:?\d{2}){0,2}|[A-Z]{3,5}([+-]\d{1,2})?|[A-Za-z_]+/[A-Za-z0-9_/+-]+)"
    r"(\[.*\])?"
)


class Source:
    """The rows of the source in memory, under `SOURCE`, each with its individual's id in `KEY`.

    Names of columns and texts are canonical, and an empty text is a NULL.
    """

    def __init__(self, directory: Path, mapping: Mapping) -> None:
        """Open the source; relative paths are from `directory`.

        Raises:
            ValueError: it is not there, or has no such id column.
        """
        self.rows = 0
        self._mapping, self._named = mapping, mapping.source
        self._lines: array[int] | None = None
        self._csv: CsvTable | None = None
        self.database = duckdb.connect(":memory:")
        self.database.create_function(
            "canonical_text", lambda text: canonical_text(text), ["VARCHAR"], "VARCHAR"
        )
        self._path = (
            directory / (self._named if isinstance(self._named, str) else self._named.database)
        ).resolve()
        self.where = str(self._path)
        if not self._path.is_file():
            raise ValueError(f"{self._path}: there is no such file, or it is a directory")
        self._version = _version(self._path)
        try:
            self._from = self._opened()
            self._shut()
            self._names, self.types = self._columns()
        except duckdb.Error as error:
            why = "it is not a Parquet file, or is damaged"
            if isinstance(self._named, Table):
                table = self._named.table
                why = f"there is no such database, it is in use, or it has no table {table!r}"
            raise ValueError(
                f"{self.where} cannot be opened: {why} ({type(error).__name__})"
            ) from None
        self._check_id()

    def place(self, row: int) -> str:
        """Return the source, and where in it the row, from 0, stands."""
        number = f"row {row + 1}" if self._lines is None else f"line {self._lines[row]}"
        return f"{self.where}, {number}"

    def _opened(self) -> str:
        """Return what to select from, once a database is attached; nothing for a CSV file."""
        named = self._named
        if isinstance(named, Table):
            self.database.execute(f"ATTACH {_text(str(self._path))} AS named (READ_ONLY)")
            return f"named.{'.'.join(map(quoted, named.table.split('.')))}"
        if self._path.suffix.lower() == ".parquet":
            return f"read_parquet({_text(_literally(self._path))})"
        if self._path.suffix.lower() != ".csv":
            raise ValueError(f"{self._path}: a source ends in .csv or .parquet, or is a table")
        self._csv = CsvTable(self._path)
        return ""

    def _shut(self) -> None:
        zone = self._mapping.time_zone
        try:
            self.database.execute(f"SET TimeZone = {_text(zone or 'UTC')}")
        except duckdb.Error:
            raise ValueError(
                f"{MAPPING}: there is no time zone {zone!r}: write one as Europe/Helsinki or UTC"
            ) from None
        for setting in (
            *("Calendar = 'gregorian'", "default_collation = ''"),
            *("autoinstall_known_extensions = false", "autoload_known_extensions = false"),
            *("threads = 1", f"memory_limit = '{self._mapping.memory_megabytes}MB'"),
            *(
                "temp_directory = ''",
                f"allowed_paths = [{_text(_literally(self._path))}, {_text(str(self._path))}]",
            ),
            *("enable_external_access = false", "lock_configuration = true"),
        ):
            self.database.execute(f"SET {setting}")

    def _columns(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return, by the canonical name of each column, the source's own name and the type."""
        if self._csv is not None:
            return {}, dict.fromkeys(self._csv.names, "VARCHAR")
        described = self.database.execute(f"DESCRIBE SELECT * FROM {self._from}").fetchall()  # noqa: S608
        raw = [str(row[0]) for row in described]
        if isinstance(self._named, str):  # DuckDB renames one of two columns that are named alike
            schema = f"parquet_schema({_text(_literally(self._path))})"
            nodes = self.database.execute(f"SELECT name, num_children FROM {schema}").fetchall()  # noqa: S608
            checked_names(_top_level(nodes), f"{self.where}, schema")
        names = checked_names(raw, f"{self.where}, schema")
        return (
            dict(zip(names, raw, strict=True)),
            dict(zip(names, (str(row[1]) for row in described), strict=True)),
        )

    def _check_id(self) -> None:
        name = canonical_text(self._mapping.id)
        positions(tuple(self.types), (name,), self.where)
        kind = self.types[name]
        if kind.partition("(")[0] not in _ID_TYPES:
            raise ValueError(
                f"{self.where}, column {name!r}: an id is text or a whole number, not {kind}; one "
                "number has many texts"
            )

    def parse(self, statement: str) -> str:
        """Return a statement as DuckDB's parser understands it, in JSON."""
        found = self.database.execute("SELECT json_serialize_sql(?)", [statement]).fetchone()
        return str(found[0]) if found else ""

    def read(self, columns: set[str]) -> None:
        """Read ids and these columns into memory.

        Raises:
            ValueError: a row is broken or has no id, a column has a name that is taken, times have
                a zone and the owner states none, or the source changed.
        """
        taken = next((each for each in columns if each.lower() in (KEY, "rowid")), None)
        if taken is not None:
            raise ValueError(f"{self.where}: rename column {taken!r}: the loader has its own")
        wanted = sorted(columns)
        for name in wanted:
            if self._mapping.time_zone is None and _has_zone(self.types[name]):
                raise ValueError(self._without_zone(name))
        try:
            if self._csv is None:
                self._read_typed(wanted)
            else:
                self._read_texts(self._csv, wanted)
            self._check_rows(wanted)
        except duckdb.OutOfMemoryException:
            raise ValueError(f"{self.where}: it needs more than memory_megabytes") from None
        except duckdb.Error as error:
            raise ValueError(
                f"{self.where}: its rows cannot be read; is it damaged? ({type(error).__name__})"
            ) from None
        if _version(self._path) != self._version:
            raise ValueError(f"{self.where} changed while it was read: load it again")

    def _read_typed(self, columns: Sequence[str]) -> None:
        key = quoted(self._names[canonical_text(self._mapping.id)])
        chosen = [
            f"canonical_text(CAST({key} AS VARCHAR)) AS {quoted(KEY)}",
            *(
                f"{self._as_read(quoted(self._names[name]), self.types[name])} AS {quoted(name)}"
                for name in columns
            ),
        ]
        self.database.execute(
            f"CREATE TABLE {SOURCE} AS SELECT {', '.join(chosen)} FROM {self._from}"  # noqa: S608
        )

    def _read_texts(self, table: CsvTable, columns: Sequence[str]) -> None:
        names = [KEY, *columns]
        described = ", ".join(f"{quoted(name)} VARCHAR" for name in names)
        self.database.execute(f"CREATE TABLE {SOURCE} ({described})")
        chosen = [quoted(KEY), *(self._as_read(quoted(name), "") for name in columns)]
        self._lines = array("q")
        rows = table.rows([canonical_text(self._mapping.id), *columns])
        while portion := list(islice(rows, _ROWS)):
            self._lines.extend(line for line, _ in portion)
            texts = np.array([[text or None for text in row] for _, row in portion], object)
            part = {name: texts[:, place] for place, name in enumerate(names)}
            self.database.register("part", part)
            self.database.execute(f"INSERT INTO {SOURCE} SELECT {', '.join(chosen)} FROM part")  # noqa: S608
            self.database.unregister("part")

    def _as_read(self, column: str, kind: str) -> str:
        """Return the expression that makes of a column of the source what the owner's SQL gets."""
        if _has_zone(kind):
            return f"CAST(CAST({column} AS TIMESTAMPTZ) AS TIMESTAMP)"
        if kind and kind != "VARCHAR" and not kind.startswith("ENUM"):
            return column
        text = f"nullif(canonical_text(CAST({column} AS VARCHAR)), '')" if kind else column
        if self._mapping.time_zone is None:
            return text
        closed_up = rf"regexp_replace({text}, ' ([Zz]|[+-]\d)', '\1')"
        moment = f"CAST(TRY_CAST({closed_up} AS TIMESTAMPTZ) AS TIMESTAMP)"
        return (
            f"CASE WHEN {_is_instant(text)} THEN coalesce(CAST({moment} AS VARCHAR), {text})"
            f" ELSE {text} END"
        )

    def _check_rows(self, columns: Sequence[str]) -> None:
        ids = f"SELECT {quoted(KEY)} FROM {SOURCE} ORDER BY rowid"  # noqa: S608
        keys = self.database.execute(ids).fetchall()
        self.rows = len(keys)
        for row, (key,) in enumerate(keys):
            if (fault := id_fault(key or "")) is not None:
                raise ValueError(f"{self.place(row)}, column {self._mapping.id!r}: {fault}")
        for name in columns:
            if self.types[name] != "VARCHAR":
                continue
            found = self.database.execute(
                f"SELECT min(rowid) FROM {SOURCE} WHERE {_is_instant(quoted(name))}"  # noqa: S608
            ).fetchone()
            if found and found[0] is not None:
                if self._mapping.time_zone is None:
                    raise ValueError(self._without_zone(name))
                raise ValueError(
                    f"{self.place(found[0])}, column {name!r}: a time with an unknown zone: write "
                    "it as +02:00"
                )

    def _without_zone(self, name: str) -> str:
        return (
            f"{self.where}, column {name!r}: times have a zone, and which day one is on depends on "
            f'where: write time_zone = "UTC", or as "Europe/Helsinki", at the top of {MAPPING}; '
            "times are then read as the clock showed there"
        )


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _has_zone(kind: str) -> bool:
    return kind.startswith("TIMESTAMP") and ("ZONE" in kind or "TZ" in kind)


def _is_instant(text: str) -> str:
    return f"regexp_full_match({text}, '{_TIME} ?{_ZONE}')"


def _top_level(schema: Sequence[tuple[str, int | None]]) -> list[str]:
    """Return the names of columns in a Parquet file's schema, whose nodes come depth first."""
    names, skipped = [], 0
    for name, children in schema[1:]:
        if not skipped:
            names.append(name)
        skipped = max(skipped - 1, 0) + (children or 0)
    return names


def _version(path: Path) -> tuple[int, int, int]:
    """Return what is another number for a file that was replaced or written."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _literally(path: Path) -> str:
    """Return a path for DuckDB, which takes some characters for patterns of names."""
    return "".join(f"[{each}]" if each in "*?[" else each for each in str(path))


def _text(content: str) -> str:
    return "'" + content.replace("'", "''") + "'"

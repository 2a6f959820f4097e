"""Opens the one source that the owner names in DuckDB, and shuts the door behind it.

Nothing is guessed from data: every column of a CSV file is text, for a type that is guessed from
all rows would let one individual's row change another's value.
"""

import csv
from pathlib import Path
from typing import Final

import duckdb

from shoal_loader.mapping import Mapping, Table

KEY: Final = "shoal record id"
SOURCE: Final = "source"
_SPACE: Final = "' ' || chr(9) || chr(10) || chr(13) || chr(160)"
_ID_TYPES: Final = ("VARCHAR", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UUID")


class RefusedSource(ValueError):
    """The source cannot be used; the message names no value."""


class Source:
    """The rows of the source in memory, under `SOURCE`, each with its individual's id in `KEY`."""

    def __init__(self, directory: Path, mapping: Mapping) -> None:
        """Open the source; relative paths are from `directory`.

        Raises:
            RefusedSource: it is not there, or has no such id column.
        """
        self.rows = 0
        self._mapping, self._named = mapping, mapping.source
        self.database = duckdb.connect(":memory:")
        self._path = (
            directory / (self._named if isinstance(self._named, str) else self._named.database)
        ).resolve()
        self._version = _version(self._path)
        self.where = str(self._path)
        if isinstance(self._named, Table) and self._named.extension:
            self.where = f"the {self._named.extension} database"
        elif not self._path.is_file():
            raise RefusedSource(f"{self._path}: there is no such file")
        try:
            self._from = self._shut(self._opened())
            self.types = self._columns()
        except duckdb.Error:
            raise RefusedSource(f"{self.where} cannot be opened as what it is named") from None
        self._check_id()

    def _opened(self) -> str:
        """Return what to select from, once a database is attached."""
        named = self._named
        if isinstance(named, Table):
            place, kind = str(self._path), ""
            if named.extension:
                place, kind = named.database, f", TYPE {named.extension}"
                try:
                    self.database.execute(f"LOAD {named.extension}")
                except duckdb.Error:
                    raise RefusedSource(
                        f"DuckDB has no extension {named.extension}; none is fetched here: run "
                        f"INSTALL {named.extension} in DuckDB as this user"
                    ) from None
            self.database.execute(f"ATTACH {_text(place)} AS named (READ_ONLY{kind})")
            return f"named.{'.'.join(map(quoted, named.table.split('.')))}"
        if self._path.suffix.lower() == ".parquet":
            return f"read_parquet({_text(str(self._path))})"
        if self._path.suffix.lower() != ".csv":
            raise RefusedSource(f"{self._path}: a source ends in .csv or .parquet, or is a table")
        columns = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in self._csv_header())
        return (
            f"read_csv({_text(str(self._path))}, auto_detect=false, header=true, delim=',', "
            f"quote='\"', escape='\"', nullstr='', strict_mode=true, columns={{{columns}}})"
        )

    def _shut(self, opened: str) -> str:
        for setting in (
            *("autoinstall_known_extensions = false", "autoload_known_extensions = false"),
            *("threads = 1", f"memory_limit = '{self._mapping.memory_megabytes}MB'"),
            *("temp_directory = ''", f"allowed_paths = [{_text(str(self._path))}]"),
            *("enable_external_access = false", "lock_configuration = true"),
        ):
            self.database.execute(f"SET {setting}")
        return opened

    def _columns(self) -> dict[str, str]:
        described = self.database.execute(f"DESCRIBE SELECT * FROM {self._from}").fetchall()  # noqa: S608
        return {row[0]: row[1] for row in described}

    def _csv_header(self) -> list[str]:
        try:
            with self._path.open(encoding="utf-8-sig", newline="") as file:
                header = next(csv.reader(file, strict=True), [])
        except (csv.Error, UnicodeDecodeError):
            raise RefusedSource(f"{self._path}, line 1: not CSV in UTF-8") from None
        if len({name.casefold() for name in header}) != len(header) or not all(header):
            raise RefusedSource(f"{self._path}, line 1 must name each column, none of them twice")
        return header

    def _check_id(self) -> None:
        name = self._mapping.id
        if name not in self.types:
            raise RefusedSource(f"{self.where}: there is no column {name!r} to be the id")
        if self.types[name] not in _ID_TYPES:
            raise RefusedSource(
                f"{self.where}, column {name!r}: an id is text or a whole number, not "
                f"{self.types[name]}; one number has many texts"
            )

    def parse(self, statement: str) -> str:
        """Return a statement as DuckDB's parser understands it, in JSON."""
        found = self.database.execute("SELECT json_serialize_sql(?)", [statement]).fetchone()
        return str(found[0]) if found else ""

    def read(self, columns: set[str]) -> None:
        """Read ids and these columns into memory.

        Raises:
            RefusedSource: a row is broken or has no id, a column has a name that is taken, or the
                source changed.
        """
        taken = next((each for each in columns if each.lower() in (KEY, "rowid")), None)
        if taken is not None:
            raise RefusedSource(f"{self.where}: rename column {taken!r}: the loader has its own")
        canonical = f"trim(nfc_normalize(CAST({quoted(self._mapping.id)} AS VARCHAR)), {_SPACE})"
        wanted = ", ".join([f"{canonical} AS {quoted(KEY)}", *map(quoted, sorted(columns))])
        try:
            self.database.execute(f"CREATE TABLE {SOURCE} AS SELECT {wanted} FROM {self._from}")  # noqa: S608
        except duckdb.OutOfMemoryException:
            raise RefusedSource(f"{self.where}: it needs more than memory_megabytes") from None
        except duckdb.Error:
            raise RefusedSource(
                f"{self.where}: a row cannot be read; every row of a CSV file has the header's "
                "number of fields, commas between them, and is UTF-8"
            ) from None
        if _version(self._path) != self._version:
            # its header may have named other columns than its rows have
            raise RefusedSource(f"{self.where} changed while it was read: load it again")
        counted = self.database.execute(f"SELECT count(*) FROM {SOURCE}").fetchone()  # noqa: S608
        self.rows = int(counted[0]) if counted else 0
        bad = self.database.execute(
            f"SELECT rowid FROM {SOURCE} WHERE {quoted(KEY)} IS NULL OR {quoted(KEY)} = ''"  # noqa: S608
            f" OR length({quoted(KEY)}) > 256 OR regexp_matches({quoted(KEY)}, '[[:cntrl:]]')"
            " ORDER BY rowid LIMIT 1"
        ).fetchone()
        if bad:
            raise RefusedSource(
                f"{self.where}, row {bad[0] + 1}, column {self._mapping.id!r}: not an id, which "
                "has 1 to 256 characters, none of them a control character"
            )


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def _version(path: Path) -> tuple[int, int, int] | None:
    """Return what is another number for a file that was replaced or written; None for no file."""
    if not path.is_file():
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _text(content: str) -> str:
    return "'" + content.replace("'", "''") + "'"

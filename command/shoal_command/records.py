"""`shoal records`: loads a data holder's raw data, and counts it; nothing leaves the machine.

These counts are for the owner's terminal alone: an agent's log, status and answers have none.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from shoal_agent.client_files import enrolment_of, read_enrolment
from shoal_command.connection import open_book
from shoal_command.terminal import AsJson, ExitStatus, fail, say, shell_command, tell, warn
from shoal_holder.record_files import read_records
from shoal_holder.records import Records
from shoal_holder.site_files import HOLDER_KEY, MAPPING, RECORDS, RECORDS_BY_ID, records_in
from shoal_holder.tables import CsvTable
from shoal_protocol.trust.dictionary import Variable, read_dictionary
from shoal_protocol.wire.encoding import canonical_text


def clipping_report(found: Records, bounds: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    """Count records. One counts that has a value in every column.

    `outside_bounds` is of columns with bounds.
    """
    whole = ~np.isnan(found.values).any(axis=1)
    of_clients = np.add.reduceat(whole.astype(np.int64), found.starts[:-1])
    columns = dict(zip(found.columns, found.values.T, strict=True))
    return {
        "clients": len(found),
        "rows": len(found.values),
        "records": int(whole.sum()),
        "most_records_of_a_client": int(of_clients.max()),
        "clients_without_a_record": int((of_clients == 0).sum()),
        "columns": found.columns,
        "missing": {name: int(np.isnan(values).sum()) for name, values in columns.items()},
        "outside_bounds": {
            name: int(((values < bounds[name][0]) | (values > bounds[name][1])).sum())
            for name, values in columns.items()
            if name in bounds
        },
    }


app = typer.Typer(no_args_is_help=True, help="Load and check a data holder's records.")

_UNBOUNDED: Final = "no bounds known"
_DICTIONARY: Final = "dictionary.json"

Dictionary = Annotated[
    Path | None,
    typer.Option(help="The consortium directory: columns are those of its data dictionary."),
]


@app.command()
def load(
    directory: Annotated[Path, typer.Argument(help="The agent's directory, with records.toml.")],
    consortium: Dictionary = None,
) -> None:
    """Map raw data to records by id, as records.toml says.

    It writes records.npz beside records.toml, which an agent reads when it starts. Errors name rows
    and variables, never a value.
    """
    said = _loaded(directory, consortium)
    _warn_of_slots(directory, len(read_records(directory / RECORDS_BY_ID, [])))
    say(said)


def _warn_of_slots(directory: Path, individuals: int) -> None:
    """Say at the owner's terminal that there are more individuals than slots were asked for."""
    enrolment = enrolment_of(directory / HOLDER_KEY)
    if enrolment.exists() and individuals > (slots := read_enrolment(enrolment).slots):
        more = shell_command("shoal", "agent", "grow", directory, "--slots", individuals)
        warn(
            f"there are {individuals:,} individuals and {slots:,} slots; ask for as many, and for "
            f"one more for each individual who is gone and keeps a slot, by: {more}"
        )


def _loaded(directory: Path, consortium: Path | None) -> str:
    """Return what the loader prints, a process of its own: it has no key, and no network."""
    if not (directory / MAPPING).exists():
        fail(
            f"there is no {MAPPING} in {directory}, which would say what makes each column; "
            f"{RECORDS}, if there is one, needs no loading",
            ExitStatus.MISTAKE,
        )
    dictionary = "-"
    if consortium is not None:
        _variables(directory, consortium)
        dictionary = str(consortium / _DICTIONARY)
    program = (sys.executable, "-X", "utf8", "-m", "shoal_loader")
    words = [*program, str(directory), dictionary]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        # the last line only: a traceback could quote values
        fail(f"{(done.stderr.splitlines() or ['the loader ended'])[-1]}", ExitStatus.MISTAKE)
    return done.stdout.strip()


def _variables(directory: Path, consortium: Path) -> tuple[Variable, ...]:
    return read_dictionary(
        (consortium / _DICTIONARY).read_bytes(), open_book(directory, consortium).current
    ).body.variables


@app.command()
def check(
    file: Annotated[
        Path,
        typer.Argument(help="CSV file, or the agent's directory."),
    ],
    columns: Annotated[
        str | None,
        typer.Option(help="Columns that must be there, as age,dose."),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column that says whose record a row is, if not id.")
    ] = None,
    consortium: Dictionary = None,
    as_json: AsJson = False,
) -> None:
    """Check that every value that a job would use is a number, and count clients and records.

    A record counts that has a value in every column checked here. A client without one takes part
    with zeros. Values outside a column's bounds are counted, which a client cuts to the bounds.
    Of a directory with records.toml it checks what `shoal records load` wrote.
    """
    asked = [canonical_text(each) for each in columns.split(",")] if columns else None
    if file.is_dir():
        file = records_in(file)
        if not file.exists() and file.name == RECORDS_BY_ID:
            fail(f"there is no {file}: `shoal records load` makes one", ExitStatus.MISTAKE)
    known = () if consortium is None else _variables(file.parent, consortium)
    records = read_records(file, asked, id_column=id_column)
    limits = {each.name: each.limits for each in known}
    found = clipping_report(records, limits)
    _warn_of_slots(file.parent, found["clients"])
    sentences = [
        f"{found['clients']:,} clients with {found['rows']:,} rows: every value is a number. "
        f"{found['records']:,} rows are whole records, and "
        f"{found['clients_without_a_record']:,} clients have none: they take part with zeros."
    ]
    if file.suffix.lower() != ".npz":
        table = CsvTable(file)
        if trimmed := sorted(set(table.names) - set(table.written)):
            names = ", ".join(map(repr, trimmed))
            sentences.append(f"Read without spaces around the column's name: {names}.")
    tell(
        found,
        as_json,
        [
            {
                "column": name,
                "values": found["rows"] - missing,
                "missing": missing,
                "values outside bounds": found["outside_bounds"].get(name, _UNBOUNDED),
            }
            for name, missing in found["missing"].items()
        ],
        *sentences,
    )

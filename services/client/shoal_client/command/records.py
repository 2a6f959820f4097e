"""`shoal records`: checks a data holder's file on the spot; nothing of it leaves the machine."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from shoal_client.command.terminal import AsJson, plain, say, say_json, show
from shoal_client.records import Records
from shoal_client.task_files import read_task_file

app = typer.Typer(no_args_is_help=True, help="Check a data holder's records.")


@app.callback()
def records() -> None:
    """Check a data holder's records."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="CSV or Parquet file.")],
    columns: Annotated[
        str | None, typer.Option(help="Columns that must be there, separated by commas.")
    ] = None,
    task: Annotated[
        Path | None, typer.Option(help="Task file: check its columns and bounds.")
    ] = None,
    client_column: Annotated[
        str | None, typer.Option(help="Column that says whose record a row is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that every value that a job would use is a number, and count clients and records.

    With a task file, count the values outside its bounds: a client cuts them to the bounds.
    """
    bounds = {each.name: each for each in read_task_file(task).task.columns} if task else {}
    named = [name.strip() for name in columns.split(",")] if columns else []
    wanted = list(dict.fromkeys([*named, *bounds]))
    found = Records.from_file(file, wanted or None, client_column=client_column)
    outside = {
        name: int(((values < bounds[name].lower) | (values > bounds[name].upper)).sum())
        for name, values in zip(found.columns, found.values.T, strict=True)
        if name in bounds
    }
    if as_json:
        say_json(
            {
                "clients": len(found),
                "records": len(found.values),
                "most_records_of_a_client": int(found.counts.max()),
                "columns": list(found.columns),
                "outside_bounds": outside,
            }
        )
        return
    table = Table("column", "values", "outside bounds", title=plain(str(file)))
    for name in found.columns:
        table.add_row(plain(name), f"{len(found.values):,}", str(outside.get(name, "-")))
    show(table)
    say(f"{len(found):,} clients with {len(found.values):,} records: every value is a number.")

"""`shoal records`: counts what is in a data holder's file on the spot; nothing leaves the machine.

These counts are for the owner's terminal alone: an agent's log, status and answers have none.
"""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from shoal_client.command.terminal import AsJson, plain, say, say_json, show
from shoal_client.crowd_files import read_crowd_file
from shoal_client.records import Records
from shoal_client.task_files import read_task_file
from shoal_protocol.tasks.bounds import ColumnBounds

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
    crowd: Annotated[
        Path | None, typer.Option(help="Crowd file: check its columns and bounds.")
    ] = None,
    client_column: Annotated[
        str | None, typer.Option(help="Column that says whose record a row is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that every value that a job would use is a number, and count clients and records.

    A record counts that has a value in every column checked here. A client without one takes part
    with zeros. With a task file, or a crowd file, values outside its bounds are counted, which a
    client cuts to the bounds, and clients with more records than the job takes of each.
    """
    bounds, most = _asked(task, crowd)
    named = [name.strip() for name in columns.split(",")] if columns else []
    wanted = list(dict.fromkeys([*named, *bounds]))
    found = Records.from_file(file, wanted or None, client_column=client_column)
    counts = _counts(found, bounds, most)
    if as_json:
        say_json(counts)
        return
    table = Table("column", "values", "missing", "outside bounds", title=plain(str(file)))
    for name in found.columns:
        missing, outside = counts["missing"][name], counts["outside_bounds"].get(name, "-")
        there = len(found.values) - missing
        table.add_row(plain(name), f"{there:,}", f"{missing:,}", str(outside))
    show(table)
    say(
        f"{len(found):,} clients with {len(found.values):,} rows: every value is a number. "
        f"{counts['records']:,} rows are whole records, and "
        f"{counts['clients_without_a_record']:,} clients have none: they take part with zeros."
    )
    if most is not None:
        say(
            f"The job takes {most:,} of each client's records. "
            f"{counts['clients_over_the_bound']:,} clients have more: a fixed choice counts."
        )


def _asked(task: Path | None, crowd: Path | None) -> tuple[dict[str, ColumnBounds], int | None]:
    """Return the bounds of the columns that a job asks, and how many records it takes of a client.

    Raises:
        ValueError: both files are given, or one is broken.
    """
    if task is not None and crowd is not None:
        raise ValueError("give a task file or a crowd file, not both")
    if task is not None:
        asked = read_task_file(task).task
        return {each.name: each for each in asked.columns}, asked.records_per_client
    if crowd is not None:
        file = read_crowd_file(crowd)
        of_job = file.contributions
        named = {each.name: each for each in (*file.task.features, file.task.target)}
        return named, -(-of_job.per_client // of_job.per_record)
    return {}, None


def _counts(found: Records, bounds: dict[str, ColumnBounds], most: int | None) -> dict[str, Any]:
    whole = ~np.isnan(found.values).any(axis=1)
    of_clients = np.add.reduceat(whole.astype(np.int64), found.starts[:-1])
    columns = dict(zip(found.columns, found.values.T, strict=True))
    return {
        "clients": len(found),
        "rows": len(found.values),
        "records": int(whole.sum()),
        "most_records_of_a_client": int(of_clients.max()),
        "clients_without_a_record": int((of_clients == 0).sum()),
        "clients_over_the_bound": None if most is None else int((of_clients > most).sum()),
        "columns": list(found.columns),
        "missing": {name: int(np.isnan(values).sum()) for name, values in columns.items()},
        "outside_bounds": {
            name: int(((values < bounds[name].lower) | (values > bounds[name].upper)).sum())
            for name, values in columns.items()
            if name in bounds
        },
    }

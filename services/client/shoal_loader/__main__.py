"""`python -m shoal_loader load DIRECTORY`: maps a data holder's raw data, and prints what it did.

`check DIRECTORY BOUNDS` writes nothing, and prints what it would load, in JSON. What it prints is
for the owner's terminal alone.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal_loader.mapping import Mapping


def main() -> int:
    """Do it; return 0, or 1 after one line on standard error that says what to do."""
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"  # no plugins of other packages
    from shoal_holder.isolation import isolate
    from shoal_loader.mapping import Mapping, Table

    directory, *bounds = sys.argv[2:]
    try:
        mapping = Mapping.from_directory(Path(directory))
        source = mapping.source
        if not (isinstance(source, Table) and source.extension):
            isolate()  # before DuckDB starts threads; a database server is asked over the network
        return _work(Path(directory), mapping, bounds)
    except (ValueError, OSError) as error:
        said = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)
    except ModuleNotFoundError as missing:
        if missing.name != "duckdb":
            raise
        said = "the loader needs more packages: pip install 'shoal-holder[loader]'"
    except Exception as error:  # noqa: BLE001 - a traceback and the database's words quote values
        said = f"the loader failed: {type(error).__name__}"
    print(said, file=sys.stderr)
    return 1


def _work(directory: Path, mapping: "Mapping", bounds: list[str]) -> int:
    from shoal_loader.loading import evaluate, write_table

    found = evaluate(directory, mapping)
    if bounds:
        from shoal_loader.checking import report

        print(json.dumps(report(found, json.loads(bounds[0]))))
        return 0
    path = write_table(directory, found)
    rows = f"{len(found.ids):,} records of {len(found.values):,} rows"
    print(f"Wrote {rows} and {len(mapping.columns)} columns to {path}.")
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # DuckDB's library prints a report on itself when the interpreter ends

"""`python -m shoal_loader load DIRECTORY DICTIONARY`: maps a data holder's raw data.

DICTIONARY is a file with the consortium's, which was verified, or `-`. With `check` for `load` it
writes nothing, and prints what it would load, in JSON: for the owner alone.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shoal_loader.mapping import Mapping
    from shoal_protocol.trust.dictionary import DataDictionary

NOT_ISOLATED: Final = (
    " The system refused to cut the loader off from the network: load where network namespaces or "
    "seccomp are allowed."
)


def main() -> int:
    """Do it; return 0, or 1 after one line on standard error that says what to do."""
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"  # no plugins of other packages
    from shoal_holder.isolation import NONE, isolate
    from shoal_loader.mapping import Mapping
    from shoal_protocol.trust.dictionary import DataDictionary
    from shoal_protocol.wire.documents import decode

    task, directory, agreed = sys.argv[1:]
    try:
        dictionary = None
        if agreed != "-":
            dictionary = decode(Path(agreed).read_bytes(), DataDictionary).body
        mapping = Mapping.from_directory(Path(directory), dictionary)
        refused = "" if isolate() != NONE else NOT_ISOLATED  # before DuckDB starts threads
        return _work(Path(directory), mapping, dictionary, task, refused)
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


def _work(
    directory: Path,
    mapping: "Mapping",
    dictionary: "DataDictionary | None",
    task: str,
    refused: str,
) -> int:
    from shoal_loader.loading import evaluate, write_table

    found = evaluate(directory, mapping)
    if task == "check":
        from shoal_loader.loading import report

        known = () if dictionary is None else dictionary.variables
        print(json.dumps(report(found, {each.name: each.limits for each in known})))
        return 0
    path = write_table(directory, found, dictionary)
    rows = f"{len(found.ids):,} records of {len(found.values):,} rows"
    zone = mapping.time_zone
    clock = "" if zone is None else f" Times with a zone were read as the clock showed in {zone}."
    print(
        f"Wrote {rows} and {len(mapping.columns)} columns to {path}. A running agent uses them "
        f"once it is restarted.{clock}{refused}"
    )
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # DuckDB's library prints a report on itself when the interpreter ends

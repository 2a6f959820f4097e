"""`python -m shoal_loader DIRECTORY DICTIONARY`: maps a data holder's raw data.

DICTIONARY is a file with the consortium's, which was verified, or `-`.
"""

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

    directory, agreed = sys.argv[1:]
    try:
        dictionary = None
        if agreed != "-":
            dictionary = decode(Path(agreed).read_bytes(), DataDictionary).body
        mapping = Mapping.from_directory(Path(directory), dictionary)
        refused = "" if isolate() != NONE else NOT_ISOLATED  # before DuckDB starts threads
        _load(Path(directory), mapping, dictionary, refused)
        return 0
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


def _load(
    directory: Path, mapping: "Mapping", dictionary: "DataDictionary | None", refused: str
) -> None:
    from shoal_loader.loading import evaluate, write_table

    records = evaluate(directory, mapping)
    path = write_table(directory, records, dictionary)
    rows = f"{len(records):,} records of {len(records.values):,} rows"
    zone = mapping.time_zone
    clock = "" if zone is None else f" Times with a zone were read as the clock showed in {zone}."
    print(
        f"Wrote {rows} and {len(mapping.columns)} columns to {path}. A running agent uses them "
        f"once it is restarted.{clock}{refused}"
    )


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # DuckDB's library prints a report on itself when the interpreter ends

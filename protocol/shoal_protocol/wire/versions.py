"""The versions of what parties exchange and keep, of release 1.0: later releases read all of them.

`WIRE` is in every document, envelope, roster and domain prefix; what its minor versions add, the
manifest allows. Each kind of file has its own version, and a list of those whose programs can use
it: a migration within a release's major version only adds, so that programs before it still can.
"""

from collections.abc import Collection
from typing import Final

RELEASE: Final = "1.0"
WIRE: Final = 1
WIRE_MINOR: Final = 0
WIRE_VERSION: Final = f"{WIRE}.{WIRE_MINOR}"
COMPUTE_DATABASE: Final = 12
TRAINER_DATABASE: Final = 15
AGGREGATOR_DATABASE: Final = 8
HOLDER_STATE: Final = 17
DATABASE_MARK: Final = 1


def usable_by(version: int, migrations: Collection[int]) -> list[int]:
    """Return the versions of programs that can use a file which one of `version` lays out.

    `migrations` are named by the version that each leads to.
    """
    first = version
    while first in migrations:
        first -= 1
    return list(range(first, version + 1))


def steps(found: Collection[int], version: int, migrations: Collection[int]) -> list[int]:
    """Return the migrations that a file lacks for a program of `version`.

    `found` are the versions of programs that can use the file.

    Raises:
        ValueError: this program cannot use it, nor make it so that it can.
    """
    if version in found:
        return []
    newest = max(found, default=version)
    lacking = list(range(newest + 1, version + 1))
    if not lacking or not set(lacking) <= set(migrations):
        raise ValueError(
            f"schema version {', '.join(map(str, sorted(found))) or 'none'}, "
            f"this program needs {version}; run the release that made it"
        )
    return lacking

"""The versions of what parties exchange and keep, of release 1.0: later releases read all of them.

`WIRE` is in every document, envelope, roster and domain prefix. Each kind of file has its own.
"""

from typing import Final

RELEASE: Final = "1.0"
WIRE: Final = 1
COMPUTE_DATABASE: Final = 11
TRAINER_DATABASE: Final = 14
AGGREGATOR_DATABASE: Final = 7
HOLDER_STATE: Final = 16
DATABASE_MARK: Final = 1

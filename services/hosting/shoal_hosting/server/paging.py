"""The query parameter with which a client asks for the next page of a ledger."""

from typing import Annotated, Final

from fastapi import Query

_MOST: Final = 2**53 - 1  # exact in everybody's JSON, and small enough for any database to add to

After = Annotated[int, Query(ge=0, le=_MOST)]
"""The number of the last entry that the asker has, 0 for none."""

"""Ranges of the numbers in documents, requests and files: finite, and by what a number means.

The square of each is a finite float, and so are sums of many squares and products of two. Every
numeric field has a type from here or bounds of its own that are narrower; a test misses any other.
"""

from typing import Annotated, Final

from pydantic import Field

LARGEST: Final = 1e30
"""Largest magnitude of a value of data, and of what a term makes of one."""

LARGEST_CLIENTS: Final = 2**32
"""Most clients that there can be: each has an index of 32 bits."""

_LARGEST_RESULT: Final = 1e150  # a covariance has squares of a target's unit over a feature's

Real = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
"""A value in the data's own units: a bound, a level, an edge, a prior mean."""

Positive = Annotated[float, Field(ge=1e-40, le=1e40, allow_inf_nan=False)]
"""A width, a standard deviation or a scale in the data's own units.

Bounds may be 1e-30 narrow and 2e30 wide, and a later round's scales some powers of ten beyond.
"""

Radius = Annotated[float, Field(gt=0.0, le=1e6, allow_inf_nan=False)]
"""Of a ball of rows in normalised units, where a column is within [-1, 1]."""

Finite = Annotated[float, Field(ge=-_LARGEST_RESULT, le=_LARGEST_RESULT, allow_inf_nan=False)]
"""What was computed from released sums, in any unit."""

Size = Annotated[float, Field(ge=0.0, le=_LARGEST_RESULT, allow_inf_nan=False)]
"""A result that is not negative."""

PositiveSize = Annotated[float, Field(gt=0.0, le=_LARGEST_RESULT, allow_inf_nan=False)]
"""A result that is positive."""

Loss = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]
"""A privacy loss, mu or epsilon: nothing that anybody may allow is near the largest."""

Delta = Annotated[float, Field(ge=0.0, lt=1.0, allow_inf_nan=False)]
"""The delta of (epsilon, delta); 0 is pure."""

Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
"""A number of things, or a place among them: what JSON writes exactly (RFC 7493, section 2.2)."""

Place = Annotated[int, Field(ge=1, le=2**53 - 1)]
"""A place in a sequence that begins at 1, or a number of things that there is one of at least."""

Clients = Annotated[int, Field(ge=0, le=LARGEST_CLIENTS)]
"""A number of clients."""

Integer = Annotated[int, Field(gt=-(2**53), lt=2**53)]
"""A whole number that JSON writes exactly, such as a weight on a grid."""

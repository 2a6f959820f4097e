"""Where the tests find the real data, if they are there at all."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"
DATA = SHARED / "data"

with_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the data sets are not in {DATA}: make figures fetches them"
)

"""The example that learns one model both ways, over real processes."""

import re
from pathlib import Path

import pytest

from demo.two_trust_models import run

PHONES = 60


@pytest.mark.slow
def test_the_same_phones_teach_one_model_in_rounds_and_by_draw_and_discard(tmp_path: Path) -> None:
    said = run(tmp_path / "federation", phones=PHONES)
    assert f"Cohorts: {PHONES} of {PHONES} clients" in said
    assert f"Contributions: {PHONES}" in said
    for way in ("in rounds", "Draw and Discard"):
        found = re.search(rf"{way}: error ([0-9.]+)", said)
        assert found is not None and 0.0 < float(found[1]) < 5.0

"""What `make bench-check` calls dearer."""

import json

from bench.unit_costs import STORED, TOLERATED, UNITS, dearer


def test_a_unit_is_dearer_a_quarter_above_what_is_stored_or_where_nothing_is() -> None:
    stored = {"one": 4.0, "two": 2.0, "gone": 1.0}
    assert dearer(stored, {"one": 4.0 * TOLERATED, "two": 1.0}) == []
    assert dearer(stored, {"one": 5.1, "two": 2.6, "new": 0.1}) == ["one", "two", "new"]


def test_every_unit_has_a_ratio_stored() -> None:
    stored = json.loads(STORED.read_text())
    assert stored.keys() == UNITS.keys()
    assert min(stored.values()) > 0

"""What a console remembers: the log's last lines, withheld as they are, and rates by the clock."""

import logging
from collections.abc import Iterator
from io import StringIO
from typing import TextIO, cast

import pytest
import structlog

from shoal_hosting.operators.view import LINES, SPELLS, Rate, RecentLines
from shoal_hosting.server.logs import WITHHELD, configure_logs
from tests.world.clock import HandMovedClock


@pytest.fixture
def kept() -> Iterator[RecentLines]:
    root = logging.getLogger()
    before = (root.handlers, root.level)
    lines = RecentLines(StringIO())
    configure_logs(level="info", stream=cast("TextIO", lines))
    yield lines
    root.handlers, level = before
    root.setLevel(level)
    structlog.reset_defaults()


def test_the_last_lines_of_services_and_libraries_are_kept_with_private_values_withheld(
    kept: RecentLines,
) -> None:
    structlog.get_logger().info("stored", client=5, shares=2)
    logging.getLogger("library").warning("an address: %s", "x")
    newest, before = kept.events()
    assert (newest["event"], newest["level"]) == ("an address: x", "warning")
    assert (before["client"], before["shares"]) == (WITHHELD, 2)


def test_old_lines_are_forgotten(kept: RecentLines) -> None:
    for each in range(LINES + 5):
        structlog.get_logger().info("line", number=each)
    events = kept.events()
    assert (len(events), events[0]["number"], events[-1]["number"]) == (LINES, LINES + 4, 5)


def test_a_rate_is_that_of_spells_of_ten_seconds_that_are_over() -> None:
    clock = HandMovedClock()
    rate = Rate(clock)
    rate.count(30)
    rate.count(20)
    assert rate.per_second() == [0.0] * SPELLS
    clock.move(10)
    rate.count(7)
    assert rate.per_second() == [0.0] * (SPELLS - 1) + [5.0]
    clock.move(20)
    assert rate.per_second()[-3:] == [5.0, 0.7, 0.0]
    clock.move(10 * SPELLS)
    assert rate.per_second() == [0.0] * SPELLS

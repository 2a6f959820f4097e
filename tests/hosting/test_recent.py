"""What a console remembers: the log's last lines, withheld as they are, and rates by the clock."""

import logging
from collections.abc import Iterator
from io import StringIO
from typing import TextIO, cast

import pytest
import structlog

from shoal_hosting.operators.view import RecentLines
from shoal_hosting.server.logs import WITHHELD, configure_logs


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

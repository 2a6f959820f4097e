"""What may not be known from a log is not in it."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from shoal_kit.web.logs import (
    PRIVATE_WORDS,
    WITHHELD,
    configure_logs,
    describe_exception,
    withhold_private_values,
)

words = st.sampled_from(["", "index", "x", "count", "first"])


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Configure logging into memory, and put everything back afterwards."""
    root = logging.getLogger()
    before = (root.handlers, root.level)
    stream = io.StringIO()
    configure_logs(level="info", stream=stream)
    yield stream
    root.handlers, level = before
    root.setLevel(level)
    structlog.reset_defaults()


def logged(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@given(private=st.sampled_from(sorted(PRIVATE_WORDS)), before=words, after=words)
def test_a_value_whose_name_has_a_private_word_is_withheld(
    private: str, before: str, after: str
) -> None:
    name = "_".join(word for word in (before, private, after) if word)
    for spelling in (name, name.upper(), name.replace("_", "-")):
        event = withhold_private_values(None, "info", {"event": "e", "at": {spelling: "s3cret"}})
        assert event["at"] == {spelling: WITHHELD}
        event = withhold_private_values(None, "info", {"event": "e", spelling: "s3cret"})
        assert event[spelling] == WITHHELD


def test_an_exceptions_message_is_not_logged_but_its_type_and_place_are(lines: io.StringIO) -> None:
    try:
        try:
            int("s3cret")
        except ValueError as error:
            raise KeyError("s3cret") from error
    except KeyError:
        structlog.get_logger().exception("it failed")
        logging.getLogger("a library").exception("it failed too")
    assert "s3cret" not in lines.getvalue()
    for line in logged(lines):
        assert line["exception"] == "builtins.KeyError"
        assert line["causes"] == ["ValueError"]
        assert "test_an_exceptions_message" in line["frames"][-1]


def test_a_circle_of_causes_is_described_in_finite_length() -> None:
    first, second = KeyError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert len(describe_exception(first)["causes"]) <= 20

"""docs/evidence.md names a test for every known failure, and every test that it names exists."""

import re
from pathlib import Path

import pytest

from tests.world.named_tests import exists

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "evidence.md"
FAILURES = 24


def sections() -> dict[int, str]:
    """Return what the page says of each failure, by its number."""
    _, *parts = re.split(r"^### (?=\d+\. )", PAGE.read_text(), flags=re.MULTILINE)
    return {int(part.partition(".")[0]): part for part in parts}


def named_in(section: str) -> list[str]:
    return re.findall(r"^    (tests/\S+)$", section, flags=re.MULTILINE)


NAMED = sorted({test for section in sections().values() for test in named_in(section)})


def test_every_known_failure_is_there_once_in_order() -> None:
    assert list(sections()) == list(range(1, FAILURES + 1))


@pytest.mark.parametrize("number", range(1, FAILURES + 1))
def test_every_failure_has_a_source_and_a_test(number: int) -> None:
    section = sections()[number]
    assert "\nSeen: " in section and re.search(r"\bHere:\s", section)
    named = named_in(section)
    assert named and len(set(named)) == len(named)


@pytest.mark.slow
@pytest.mark.parametrize("test", NAMED)
def test_a_test_that_the_page_names_exists(test: str) -> None:
    assert exists(test), f"docs/evidence.md names {test}"


def test_every_line_that_is_set_off_is_a_test() -> None:
    listed = re.findall(r"^    .*$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(listed) == sum(len(named_in(section)) for section in sections().values())


@pytest.mark.parametrize(
    "missing",
    [
        "tests/privacy/test_evidence.py::test_that_is_not_there",
        "tests/privacy/test_nothing.py::test_exists",
        "tests/privacy/test_evidence.py",
    ],
)
def test_a_name_that_is_no_test_is_found(missing: str) -> None:
    assert not exists(missing)

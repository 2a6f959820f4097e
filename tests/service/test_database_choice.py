"""A service goes on over the database that has its state, or says why it does not start."""

from pathlib import Path

import pytest

from shoal_kit.startup import StartupRefused
from shoal_service.storage.database_schema import (
    MARKER,
    check_choice,
    note_choice,
)
from tests.world.examples import consortium

URL = "postgresql+psycopg://shoal:s3cret@127.0.0.1:9/shoal"  # nothing listens there


def test_state_in_an_sqlite_file_is_not_forgotten_for_a_database(tmp_path: Path) -> None:
    (tmp_path / "service.sqlite").touch()
    with pytest.raises(StartupRefused, match=r"service\.sqlite holds this service's state") as why:
        check_choice(tmp_path, URL)
    assert "s3cret" not in str(why.value)
    check_choice(tmp_path, None)


def test_state_in_a_database_is_not_forgotten_for_an_sqlite_file(tmp_path: Path) -> None:
    check_choice(tmp_path, URL)
    note_choice(tmp_path, URL, consortium())
    assert (tmp_path / MARKER).read_text() == f"postgresql {consortium().manifest.identity}\n"
    with pytest.raises(StartupRefused, match="SHOAL_DATABASE_URL is not set"):
        check_choice(tmp_path, None)
    check_choice(tmp_path, URL)
    note_choice(tmp_path, URL, consortium())

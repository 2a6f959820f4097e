"""A service goes on over the database that has its state, or says why it does not start."""

from pathlib import Path

import pytest
from sqlalchemy import MetaData

from shoal_hosting.running import ServiceSettings
from shoal_hosting.settings import read_settings
from shoal_hosting.startup import StartupRefused
from shoal_hosting.storage.database import open_engine
from shoal_hosting.storage.database_schema import (
    MARKER,
    check_choice,
    check_schema,
    note_choice,
    why_unavailable,
)
from shoal_protocol.wire.service_errors import StorageUnavailable
from tests.world.examples import consortium

URL = "postgresql+psycopg://shoal:s3cret@127.0.0.1:9/shoal"  # nothing listens there
OTHERS = {"SHOAL_PARTY": "/p", "SHOAL_CONSORTIUM": "/c", "SHOAL_DATA": "/d", "SHOAL_PORT": "1"}


def test_state_in_an_sqlite_file_is_not_forgotten_for_a_database(tmp_path: Path) -> None:
    (tmp_path / "compute.sqlite").touch()
    with pytest.raises(StartupRefused, match=r"compute\.sqlite holds this service's state") as why:
        check_choice(tmp_path, "compute", URL)
    assert "s3cret" not in str(why.value)
    check_choice(tmp_path, "compute", None)
    check_choice(tmp_path, "trainer", URL)  # the file is not the trainer's


def test_state_in_a_database_is_not_forgotten_for_an_sqlite_file(tmp_path: Path) -> None:
    check_choice(tmp_path, "compute", URL)
    note_choice(tmp_path, URL, consortium())
    assert (tmp_path / MARKER).read_text() == f"postgresql {consortium().manifest.identity}\n"
    with pytest.raises(StartupRefused, match="SHOAL_DATABASE_URL is not set"):
        check_choice(tmp_path, "compute", None)
    check_choice(tmp_path, "compute", URL)
    note_choice(tmp_path, URL, consortium())


@pytest.mark.parametrize(
    "url",
    [
        "postgres://u:s3cret@host/shoal",
        "postgresql://u:s3cret@host/shoal",
        "mysql://u:s3cret@host/shoal",
        "postgresql+psycopg://u:s3cret@host:port/shoal",
        "postgresql+psycopg://u:s3cret@host",
        "s3cret",
    ],
)
def test_a_wrong_url_is_refused_with_the_form_and_never_shown(url: str) -> None:
    with pytest.raises(StartupRefused) as why:
        read_settings(ServiceSettings, "SHOAL_", OTHERS | {"SHOAL_DATABASE_URL": url})
    assert "SHOAL_DATABASE_URL is wrong" in str(why.value)
    assert "postgresql+psycopg://user:password@host/database" in str(why.value)
    assert "s3cret" not in str(why.value)


def test_a_server_that_cannot_be_reached_is_told_from_a_database_that_fails() -> None:
    engine = open_engine(URL)
    with pytest.raises(StorageUnavailable) as away:
        check_schema(engine, MetaData(), 1)
    engine.dispose()
    assert "server at SHOAL_DATABASE_URL cannot be reached" in why_unavailable(URL, away.value)
    assert "s3cret" not in why_unavailable(URL, away.value)
    assert "locked, read-only, a directory or away" in why_unavailable(None, StorageUnavailable())

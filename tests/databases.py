"""Databases for tests that must hold on both: SQLite files, and a throwaway PostgreSQL server."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from shoal_hosting.storage import sqlite_url

_NUMBERS = count()


def _run(*command: str | Path) -> None:
    # the server refuses to run as root
    as_user: dict[str, Any] = {"user": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", **as_user)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The directory with the socket of a PostgreSQL server that keeps nothing."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("PostgreSQL's server programs are not installed here")
    with tempfile.TemporaryDirectory(prefix="shoal-pg-") as directory:
        if os.geteuid() == 0:
            os.chown(directory, pwd.getpwnam("postgres").pw_uid, -1)
        data, socket_only = Path(directory, "data"), f"-c listen_addresses='' -k {directory} -F"
        _run("initdb", "-D", data, "-A", "trust", "-U", "shoal", "--no-sync")
        _run("pg_ctl", "-D", data, "-o", socket_only, "-l", Path(directory, "log"), "-w", "start")
        try:
            yield directory
        finally:
            _run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path / "test.sqlite")
        return
    # a schema is as good as a database, and takes neither time nor room
    server = f"postgresql+psycopg://shoal@/postgres?host={request.getfixturevalue('postgresql')}"
    name, admin = f"test{next(_NUMBERS)}", create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {name}")
        yield f"{server}&options=-csearch_path%3D{name}"
        connection.exec_driver_sql(f"DROP SCHEMA {name} CASCADE")
    admin.dispose()

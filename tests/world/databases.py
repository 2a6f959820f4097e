"""Databases for tests that must hold on both: SQLite files, and a throwaway PostgreSQL server."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event

from shoal_service.storage.database import sqlite_url

_NUMBERS = count()


class _CompiledOnce(dict[Any, Any]):
    """Statements as compiled for any database of a kind, by what they say.

    A service compiles each of its statements once. In a simulation it starts a thousand times in
    one process, and would spend a tenth of its time on that.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._of_its_kind(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__(self._of_its_kind(key), compiled)

    def _of_its_kind(self, key: Any) -> Any:
        dialect, *statement = key
        return dialect.name, dialect.driver, *statement


_COMPILED = _CompiledOnce()


@event.listens_for(Engine, "engine_connect")
def _compile_once(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_COMPILED)


_PROGRAMS = ("initdb", "postgres", "pg_isready")
# The server ends when its standard input does: with the tests, even if those are killed.
_UNTIL_INPUT_ENDS = 'postgres "$@" & cat; kill -QUIT $!; wait $!'
# It keeps nothing, so it need not log what it would take to recover, nor tidy up.
_CHEAP = [
    part
    for setting in ("autovacuum=off", "full_page_writes=off", "jit=off", "max_wal_senders=0")
    for part in ("-c", setting)
] + ["-c", "wal_level=minimal"]
_AS_POSTGRES = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The directory with the socket of a PostgreSQL server that keeps nothing."""
    with postgresql_server() as directory:
        yield directory


@contextmanager
def postgresql_server(*, listens: str | None = None, prefix: Sequence[str] = ()) -> Iterator[str]:
    """Yield the directory with the socket of a PostgreSQL server that keeps nothing.

    With `listens` it can also be reached at that IPv4 address, by everybody. `prefix` is the
    command that runs the server's command.
    """
    if any(shutil.which(program) is None for program in _PROGRAMS):
        pytest.skip("PostgreSQL's server programs are not installed here")
    # the server refuses to run as root
    as_user = _AS_POSTGRES if os.geteuid() == 0 else ()
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    with tempfile.TemporaryDirectory(prefix="shoal-pg-") as directory:
        if os.geteuid() == 0:
            os.chown(directory, pwd.getpwnam("postgres").pw_uid, -1)
        data = ["-D", f"{directory}/data"]
        made = ["initdb", *data, "-A", "trust", "-U", "shoal", "--no-sync"]
        subprocess.run([*as_user, *made], check=True, **quiet)
        if listens is not None:
            with Path(directory, "data", "pg_hba.conf").open("a") as rules:
                rules.write("host all all 0.0.0.0/0 trust\n")
        options = [*data, "-c", f"listen_addresses={listens or ''}", "-k", directory, "-F", *_CHEAP]
        command = [*prefix, *as_user, "sh", "-c", _UNTIL_INPUT_ENDS, "sh", *options]
        with subprocess.Popen(command, stdin=subprocess.PIPE, **quiet) as server:
            asked = ["pg_isready", "-h", directory, "-t", "1"]
            while subprocess.run(asked, **quiet).returncode != 0:
                if server.poll() is not None:
                    pytest.fail("the PostgreSQL server did not start")
                time.sleep(0.05)
            yield directory
            server.communicate()  # ends its input, and waits for its end


@pytest.fixture
def postgresql_url(postgresql: str) -> Iterator[str]:
    """The URL of an empty PostgreSQL database."""
    with empty_schema(postgresql) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path / "test.sqlite")
        return
    with empty_schema(request.getfixturevalue("postgresql")) as url:
        yield url


@contextmanager
def empty_schema(socket_directory: str) -> Iterator[str]:
    """Yield the URL of an empty schema at the server with that socket.

    A schema is as good as a database, and takes neither time nor room.
    """
    server = f"postgresql+psycopg://shoal@/postgres?host={socket_directory}"
    name, admin = f"test{next(_NUMBERS)}", create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {name}")
        yield f"{server}&options=-csearch_path%3D{name}"
        connection.exec_driver_sql(f"DROP SCHEMA {name} CASCADE")
    admin.dispose()

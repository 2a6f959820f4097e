"""Hosts that vanish without a word: no packet of theirs closes a connection to PostgreSQL.

Each host is a network namespace of this machine. From one moment on it sends nothing any more.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest
import structlog
from sqlalchemy import Column, Integer, MetaData, Table

from shoal_service.storage.database import open_engine
from shoal_service.storage.database_schema import check_schema
from tests.world.databases import empty_schema, postgresql_server

pytestmark = pytest.mark.slow

METADATA = MetaData()
TABLE = Table("numbers", METADATA, Column("number", Integer, primary_key=True))
SERVERS_ADDRESS, CLIENTS_ADDRESS = "10.213.0.1", "10.213.0.2"
# Takes the database, then runs the statements that it reads, as a service would.
PROGRAM = """
import sys
from shoal_service.storage.database_schema import check_schema
from shoal_service.storage.database import open_engine
from shoal_service.storage.thread import StorageThread
from shoal_protocol.wire.service_errors import StorageUnavailable
from tests.service.test_vanished_host import METADATA

engine = open_engine(sys.argv[1], alone=True)
check_schema(engine, METADATA, 1)
thread = StorageThread(engine)
print("held", flush=True)
for statement in sys.stdin:
    try:
        thread.run_here(lambda db: db.exec_driver_sql(statement))
        print("done", flush=True)
    except StorageUnavailable:
        print("unavailable", flush=True)
"""
# The answer takes long: some of it is on its way when the host vanishes.
LONG_ANSWER = "SELECT repeat('x', 100000) FROM generate_series(1, 1000000)"


@dataclass(frozen=True)
class Hosts:
    """Two namespaces with a line between them, and the server's socket in the first."""

    server: str
    client: str
    directory: str

    def url(self, schema_url: str) -> str:
        """Return the URL by which the client's host reaches what `schema_url` reaches here."""
        return schema_url.replace(self.directory, SERVERS_ADDRESS)

    @contextmanager
    def vanished(self, host: str, other: str) -> Iterator[None]:
        """Let a host send nothing to the other one's address, as if its power were cut."""
        run("ip", "-netns", host, "route", "flush", "table", "main")
        run("ip", "-netns", host, "route", "add", "blackhole", other)
        try:
            yield
        finally:
            run("ip", "-netns", host, "route", "delete", "blackhole", other)
            run("ip", "-netns", host, "route", "add", other, "dev", "line")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    if os.geteuid() != 0 or any(shutil.which(each) is None for each in ("ip", "setpriv")):
        pytest.skip("only root can make network namespaces, with iproute2 and setpriv")
    server, client = (f"shoal-{name}-{os.getpid()}" for name in ("server", "client"))
    with ExitStack() as stack:
        for name in (server, client):
            made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
            if made.returncode:
                pytest.skip("this machine lets nobody make a network namespace")
            stack.callback(run, "ip", "netns", "delete", name)
        line = ["type", "veth", "peer", "name", "line", "netns", client]
        run("ip", "-netns", server, "link", "add", "line", *line)
        for name, own, other in (
            (server, SERVERS_ADDRESS, CLIENTS_ADDRESS),
            (client, CLIENTS_ADDRESS, SERVERS_ADDRESS),
        ):
            run("ip", "-netns", name, "address", "add", f"{own}/24", "dev", "line")
            run("ip", "-netns", name, "link", "set", "line", "up")
            run("ip", "-netns", name, "route", "replace", other, "dev", "line")
        prefix = ["ip", "netns", "exec", server]
        directory = stack.enter_context(postgresql_server(listens=SERVERS_ADDRESS, prefix=prefix))
        yield Hosts(server, client, directory)


class Holder:
    """A process on the client's host that has the database to itself, and does as it is told."""

    def __init__(self, hosts: Hosts, url: str) -> None:
        command = ["ip", "netns", "exec", hosts.client, sys.executable, "-c", PROGRAM]
        self._process = subprocess.Popen(
            [*command, hosts.url(url)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.says() == "held"

    def __enter__(self) -> "Holder":
        return self

    def __exit__(self, *_: object) -> None:
        with self._process as process:
            process.kill()

    def do(self, statement: str) -> None:
        """Have it begin with an SQL statement; what comes of it, it says."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{statement}\n")
        self._process.stdin.flush()

    def says(self) -> str:
        """Return its next line."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def until_answered_in_part(url: str) -> None:
    """Wait until the server sends the long answer."""
    engine = open_engine(url)
    query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = "
    with engine.connect() as db:
        while not db.exec_driver_sql(f"{query}%(answer)s", {"answer": LONG_ANSWER}).scalar():
            time.sleep(0.01)
            db.rollback()  # or the transaction would see the same activity again
    engine.dispose()


@pytest.mark.parametrize("statement", [None, LONG_ANSWER], ids=["idle", "in mid-answer"])
def test_the_successor_of_a_process_whose_host_vanished_waits_and_then_starts(
    hosts: Hosts, statement: str | None
) -> None:
    with empty_schema(hosts.directory) as url, Holder(hosts, url) as holder:
        if statement:
            holder.do(statement)
            until_answered_in_part(url)
        with hosts.vanished(hosts.client, SERVERS_ADDRESS):
            successor = open_engine(url, alone=True)
            with structlog.testing.capture_logs() as lines:
                check_schema(successor, METADATA, 1)
            successor.dispose()
    assert [each["event"] for each in lines] == [
        "another process uses the database: waiting for it to end"
    ]


def test_a_process_whose_database_server_vanished_says_so_and_goes_on_when_it_is_back(
    hosts: Hosts,
) -> None:
    with empty_schema(hosts.directory) as url, Holder(hosts, url) as holder:
        with hosts.vanished(hosts.server, CLIENTS_ADDRESS):
            holder.do("SELECT 1")
            assert holder.says() == "unavailable"
        holder.do("SELECT 1")
        said = holder.says()
        while said == "unavailable":  # the server has not given up the connection that was lost
            time.sleep(1)
            holder.do("SELECT 1")
            said = holder.says()
        assert said == "done"

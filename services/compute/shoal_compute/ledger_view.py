"""Shows a node's ledger to its operator; it only reads the database, also while the node runs.

Charges of a client are shown only for the client that is named: who took part is private.
"""

import argparse
import json
import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from pyroaring import BitMap
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, select

from shoal_compute.schema import jobs, ledger, manifests
from shoal_compute.settings import LedgerSettings
from shoal_hosting.party import load_party
from shoal_hosting.settings import read_settings
from shoal_hosting.startup import StartupRefused, startup_of
from shoal_hosting.storage.database import translating_storage_errors
from shoal_hosting.storage.database_schema import check_choice
from shoal_hosting.storage.ledger import LedgerFollower, Line
from shoal_protocol.privacy.ledger import Head
from shoal_protocol.trust.manifest import decode_manifest
from shoal_protocol.wire.errors import LedgerBroken
from shoal_protocol.wire.service_errors import StorageUnavailable

_BROKEN: Final = 1  # the exit status


class View(NamedTuple):
    """A verified ledger: all of it, or the charges of one client."""

    lines: list[Line]
    head: Head
    delta: float | None  # of the latest policy; None if no manifest was accepted yet
    withdrawn: list[str]  # jobs that their analysts withdrew: what they charged stays


def read_ledger(db: Connection, name: str, client: int | None = None) -> View:
    """Read and verify the ledger of the node `name`; with `client`, keep only that one's charges.

    Raises:
        LedgerBroken
    """
    follower = LedgerFollower(ledger, name)
    lines = []
    for entry, population in follower.follow(db, lock=False):
        if client is None:
            lines.append(Line(entry, follower.balances.largest(population)))
        elif client in population:
            lines.append(Line(entry, follower.balances.largest(BitMap([client]))))
    query = select(manifests.c.manifest).order_by(manifests.c.sequence.desc()).limit(1)
    encoded = db.execute(query).scalar_one_or_none()
    delta = None if encoded is None else decode_manifest(encoded).body.policy.delta
    withdrawn = select(jobs.c.job).where(jobs.c.withdrawal.is_not(None)).order_by(jobs.c.job)
    return View(lines, follower.head, delta, [*db.execute(withdrawn).scalars()])


def open_to_read(database: Path, database_url: str | None) -> Engine:
    """Open a node's database so that nothing in it can be changed or locked.

    Each transaction sees one state of it throughout.
    """
    if database_url is None:
        address = f"file:{quote(str(database))}?mode=ro"
        engine = create_engine(
            "sqlite+pysqlite://",
            # without the driver's transactions: it would begin none for what only reads
            creator=lambda: sqlite3.connect(address, uri=True, isolation_level=None),
            poolclass=NullPool,
        )
        event.listen(engine, "begin", _begin)
        return engine
    return create_engine(
        database_url,
        isolation_level="REPEATABLE READ",
        hide_parameters=True,
        execution_options={"postgresql_readonly": True},
    )


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def show_ledger(arguments: Sequence[str]) -> int:
    """Print the ledger of the node that the settings are of, in JSON; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m shoal_compute ledger",
        description=__doc__,
        epilog=(
            "It prints JSON, which `shoal ledger verify` reads. Run it with the node's "
            "environment: it needs SHOAL_PARTY, SHOAL_DATA and, if the node "
            "has one, SHOAL_DATABASE_URL. Exit status: 0 done; 1 the ledger is broken; 2 wrong "
            "usage; 78 a setting or the database is wrong."
        ),
    )
    parser.add_argument("--client", type=int, help="show only what this client was charged")
    asked = parser.parse_args(arguments)
    with startup_of("shoal-compute ledger"):
        read = read_settings(LedgerSettings, os.environ)
        check_choice(read.data, "compute", read.database_url)
        name = load_party(read.party).name
        engine = open_to_read(read.data / "compute.sqlite", read.database_url)
        try:
            with translating_storage_errors(), engine.connect() as db:
                view = read_ledger(db, name, asked.client)
        except StorageUnavailable:
            raise StartupRefused("the node's database cannot be read: did it ever start?") from None
        except LedgerBroken as error:
            sys.stderr.write(f"the ledger is broken: {error}\n")
            return _BROKEN
        finally:
            engine.dispose()
    sys.stdout.write(as_json(view, asked.client))
    return 0


def as_json(view: View, client: int | None) -> str:
    """Return a view as JSON; a whole ledger's `entries` can be verified."""
    lines = [line.shown(view.delta) for line in view.lines]
    if client is not None:
        return json.dumps({"client": client, "charges": lines}, indent=2) + "\n"
    head = {"number": view.head.number, "digest": view.head.digest}
    whole = {"entries": lines, "head": head, "withdrawn": view.withdrawn}
    return json.dumps(whole, indent=2) + "\n"

"""Shows what a node charged to its operator; it only reads the database, also while the node runs.

Charges of a client are shown only for the client that is named: who took part is private.
"""

import argparse
import json
import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pyroaring import BitMap
from sqlalchemy import Connection, Engine, NullPool, create_engine, event, select

from shoal_compute.schema import charges, jobs, journal, manifests
from shoal_compute.settings import LedgerSettings
from shoal_kit.settings import read_settings
from shoal_kit.startup import StartupRefused, startup_of
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.keeping import Loss
from shoal_protocol.trust.manifest import Manifest
from shoal_protocol.trust.succession import ManifestStatement
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.errors import LedgerBroken
from shoal_protocol.wire.service_errors import StorageUnavailable
from shoal_service.storage.charges import Ledger
from shoal_service.storage.database import translating_storage_errors
from shoal_service.storage.database_schema import check_choice

_BROKEN: Final = 1  # the exit status


def read_ledger(db: Connection, client: int | None = None) -> dict[str, Any]:
    """Verify the journal and return the node's charges; with `client`, only that one's.

    What is returned can be shown as JSON. Epsilon is at the delta of the latest policy. What jobs
    charged that analysts withdrew stays.

    Raises:
        LedgerBroken
    """
    head = journal.verify(db, JobTotal, ManifestStatement, Loss)
    ledger, alone = Ledger(charges), None if client is None else BitMap([client])
    lines = [
        charged.shown(ledger.balances.largest(charged.spec.clients() if alone is None else alone))
        for charged in ledger.follow(db)
        if alone is None or alone.issubset(charged.spec.clients())
    ]
    query = select(manifests.c.manifest).order_by(manifests.c.sequence.desc()).limit(1)
    encoded = db.execute(query).scalar_one_or_none()
    delta = None if encoded is None else decode(encoded, Manifest).body.policy.delta
    shown = [line.shown(delta) for line in lines]
    if client is not None:
        return {"client": client, "charges": shown}
    withdrawn = select(jobs.c.job).order_by(jobs.c.job).where(jobs.c.withdrawal.is_not(None))
    chosen = db.execute(withdrawn).scalars()
    return {"entries": shown, "head": head._asdict(), "withdrawn": [*chosen]}


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
        event.listen(engine, "begin", lambda db: db.exec_driver_sql("BEGIN"))
        return engine
    return create_engine(
        database_url,
        isolation_level="REPEATABLE READ",
        hide_parameters=True,
        execution_options={"postgresql_readonly": True},
    )


def show_ledger(arguments: Sequence[str]) -> int:
    """Print what the node that the settings are of charged, in JSON; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m shoal_compute ledger",
        description=__doc__,
        epilog=(
            "It checks the journal and prints JSON. Run it with the node's "
            "environment: it needs SHOAL_PARTY, SHOAL_DATA and, if the node "
            "has one, SHOAL_DATABASE_URL. Exit status: 0 done; 1 the journal is broken; 2 wrong "
            "usage; 78 a setting or the database is wrong."
        ),
    )
    parser.add_argument("--client", type=int, help="show only what this client was charged")
    asked = parser.parse_args(arguments)
    with startup_of("shoal-compute ledger"):
        read = read_settings(LedgerSettings, os.environ)
        check_choice(read.data, "compute", read.database_url)
        engine = open_to_read(read.data / "compute.sqlite", read.database_url)
        try:
            with translating_storage_errors(), engine.connect() as db:
                shown = read_ledger(db, asked.client)
        except StorageUnavailable:
            raise StartupRefused("the node's database cannot be read: did it ever start?") from None
        except LedgerBroken as error:
            sys.stderr.write(f"{error}\n")
            return _BROKEN
        finally:
            engine.dispose()
    sys.stdout.write(json.dumps(shown, indent=2) + "\n")
    return 0

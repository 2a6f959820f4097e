"""What a service shows on its operator's console."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy
from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, func, select

from shoal_protocol.journal import counted
from shoal_service.storage.journal import JournalTables


@dataclass(frozen=True)
class Operator:
    """Settings of an operator's access: the token, and whether there is a console."""

    token: str = field(repr=False)
    metrics_for_anybody: bool = False
    console: bool = False


Look = Callable[[], Awaitable[dict[str, Any]]]
"""What only this kind of service shows: facts by their names, and rows of tables by theirs."""


def by_phase(db: Connection, what: str, table: sqlalchemy.Table) -> dict[str, Any]:
    """Return the number of rows in each phase, as a table to show."""
    query = select(table.c.phase, func.count()).group_by(table.c.phase)
    return {
        f"{what} by phase": [
            {"Phase": phase, what: f"{count:,}"} for phase, count in db.execute(query)
        ]
    }


def journal_in_words(db: Connection, tables: JournalTables) -> dict[str, str]:
    """Describe a journal's head.

    Raises:
        LedgerBroken
    """
    head = tables.newest(db)
    last = f"; the hash of the last one is {head.hash}" if head.number else ""
    return {"Journal": counted(head.number) + last}


def in_words(moment: datetime) -> str:
    """Return a moment as the console shows it."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def labelled(registry: CollectorRegistry, metric: str, label: str) -> dict[str, float]:
    """Return the values of a gauge or counter by its only label."""
    return {
        sample.labels[label]: sample.value
        for family in registry.restricted_registry([metric]).collect()
        for sample in family.samples
    }

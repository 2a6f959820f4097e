"""What a service tells whoever runs it, for its console."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy
from prometheus_client import CollectorRegistry
from sqlalchemy import Connection, func, select

from shoal_hosting.storage.ledger import LedgerTables
from shoal_protocol.privacy.ledger import counted
from shoal_protocol.trust.manifest import ServiceParty


@dataclass(frozen=True)
class Operator:
    """Whoever runs a service: has its token, and with `console` a console too."""

    token: str = field(repr=False)
    metrics_for_anybody: bool = False
    console: bool = False


@dataclass(frozen=True)
class Table:
    """A table of the console. `empty` is said where it has no rows."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    empty: str


@dataclass(frozen=True)
class View:
    """What only this kind of service shows. `parties` are those that it asks."""

    tables: Sequence[Table] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    parties: Iterable[ServiceParty] = ()


Look = Callable[[], Awaitable[View]]


def by_phase(db: Connection, what: str, table: sqlalchemy.Table) -> Table:
    """Return how many rows of a table with a phase are in each, as a table to show."""
    query = select(table.c.phase, func.count()).group_by(table.c.phase)
    rows = [(phase, count) for phase, count in db.execute(query)]
    return Table(f"{what} by phase", ("Phase", what), rows, "None yet.")


def ledger_in_words(db: Connection, tables: LedgerTables) -> dict[str, str]:
    """Return a ledger's head as a fact to show.

    Raises:
        LedgerBroken
    """
    head = tables.hold(db, lock=False)
    last = f"; the digest of the last one is {head.digest}" if head.number else ""
    return {"Ledger": counted(head.number) + last}


def in_words(moment: datetime) -> str:
    """Return a moment as the console shows it."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def labelled(registry: CollectorRegistry, metric: str, label: str) -> dict[str, float]:
    """Return the values of a gauge or counter by the only label that tells them apart."""
    return {
        sample.labels[label]: sample.value
        for family in registry.restricted_registry([metric]).collect()
        for sample in family.samples
    }

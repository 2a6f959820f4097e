"""What a node's operator is shown of its ledger, while the node runs, and no other way."""

import json
from pathlib import Path

import pytest
from pyroaring import BitMap
from sqlalchemy import Connection, exc, text

from shoal_compute.ledger_view import View, as_json, as_text, open_to_read, read_ledger
from shoal_compute.schema import VERSION, ledger, metadata
from shoal_hosting.storage.database import open_engine
from shoal_hosting.storage.database_schema import check_schema
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.privacy.ledger_checks import verify_chain
from shoal_protocol.wire.errors import LedgerBroken
from tests.hosting.test_ledger import tamper
from tests.world.around_node import Federation
from tests.world.examples import OPENED_AT, SPEC

SETTINGS = {"dropouts": 1, "colluders": 2, "mu": 0.3}


@pytest.fixture
async def charged(federation: Federation) -> Federation:
    """A running node that charged two rounds; only clients 8 to 11 are in both."""
    for number, clients in enumerate((range(12), range(8, 19))):
        spec = federation.spec(number=number, population=BitMap(clients), **SETTINGS)
        await federation.announce(spec, [0])
    return federation


def look(federation: Federation, client: int | None = None) -> View:
    engine = open_to_read(federation.directory / "0" / "compute.sqlite", None)
    with engine.connect() as db:
        view = read_ledger(db, "compute-0", client)
    engine.dispose()
    return view


async def test_the_whole_ledger_is_shown_and_verifies(charged: Federation) -> None:
    view = look(charged)
    shown = json.loads(as_json(view, None))
    fields = LedgerEntry.model_fields
    entries = [LedgerEntry(**{name: line[name] for name in fields}) for line in shown["entries"]]
    assert verify_chain(entries).head == view.head
    once, twice = (line["cumulative_mu"] for line in shown["entries"])
    assert twice == pytest.approx(2**0.5 * once)
    assert shown["entries"][1]["cumulative_epsilon"] > shown["entries"][0]["cumulative_epsilon"]
    assert view.head.digest in as_text(view, "compute-0")


async def test_a_client_is_shown_only_if_it_is_asked_for(charged: Federation) -> None:
    assert "client" not in json.loads(as_json(look(charged), None))
    for client, charges in ((3, [1]), (9, [1, 2]), (15, [2]), (19, [])):
        shown = json.loads(as_json(look(charged, client), client))
        assert [line["number"] for line in shown["charges"]] == charges
        assert all(line["clients"] in (11, 12) for line in shown["charges"])
    last = look(charged, 15).lines[-1]
    assert last.cumulative == last.entry.cost


async def test_looking_changes_nothing_and_stops_nobody(charged: Federation) -> None:
    engine = open_to_read(charged.directory / "0" / "compute.sqlite", None)
    with engine.connect() as db:
        before = read_ledger(db, "compute-0")
        await charged.announce(charged.spec(number=2), [0])  # while it is being looked at
        assert _entries(db) == 2
        with pytest.raises(exc.OperationalError, match="readonly"):
            db.execute(text("INSERT INTO ledger_head VALUES (2, 3, 'x')"))
    engine.dispose()
    assert look(charged).head.number == before.head.number + 1


def _entries(db: Connection) -> int:
    return int(db.execute(text("SELECT COUNT(*) FROM ledger")).scalar_one())


async def test_a_ledger_that_was_tampered_with_is_not_shown(charged: Federation) -> None:
    engine = charged.services[0].resources.storage._engine
    tamper(engine, "UPDATE ledger SET mu = mu / 2 WHERE number = 1")
    with pytest.raises(LedgerBroken, match="entry 1"):
        look(charged)


def test_postgresql_is_only_read_too(postgresql_url: str) -> None:
    writing = open_engine(postgresql_url)
    check_schema(writing, metadata, VERSION)
    with writing.begin() as db:
        after = ledger.hold(db)
        ledger.charge(db, SPEC, ledger="compute-0", after=after, at=OPENED_AT, job_rounds=1)
    reading = open_to_read(Path("unused"), postgresql_url)
    with writing.begin() as db, reading.connect() as other:
        ledger.hold(db)  # an announcement is under way
        assert read_ledger(other, "compute-0").head.number == 1
        with pytest.raises(exc.InternalError, match="read-only"):
            other.execute(text("UPDATE ledger_head SET number = 0"))
    reading.dispose()
    writing.dispose()

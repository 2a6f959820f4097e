"""The trainer's store moves jobs only along the table, and its ledger only grows."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, exc

from shoal_protocol.privacy.ledger_checks import verify_chain
from shoal_protocol.wire.phases import JobEvent
from shoal_service.storage.database import open_engine
from shoal_service.storage.database_schema import check_schema
from shoal_trainer import schema, store
from shoal_trainer.store import Ledger
from tests.world import examples

JOB = examples.JOB.digest
REQUEST = examples.named("analyst", examples.JOB)
SPEC = examples.named("trainer", examples.SPEC)
NOW = examples.OPENED_AT


def add_round(db: Connection) -> None:
    store.add_round(db, SPEC, Ledger("trainer"), at=NOW)


def kinds(db: Connection) -> list[str]:
    entries = [charged.entry for charged in schema.ledger.after(db, 0)]
    assert verify_chain(entries).head == schema.ledger.hold(db)
    return [each.kind for each in entries]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    check_schema(engine, schema.metadata, schema.VERSION)
    with engine.begin() as db:
        assert store.add_job(db, REQUEST, at=NOW)
    yield engine
    engine.dispose()


def test_a_round_is_charged_with_its_storage_or_not_stored_at_all(engine: Engine) -> None:
    with engine.begin() as db:
        population = examples.SPEC.population
        store.move_job(db, JOB, JobEvent.POPULATION_FIXED, population=population)
        add_round(db)
    with pytest.raises(exc.IntegrityError), engine.begin() as db:
        add_round(db)
    with engine.begin() as db:
        assert schema.ledger.charge_of(db, SPEC.digest) == examples.charge(SPEC.body, "trainer")
        assert kinds(db) == ["charge"]
        assert store.newest_rounds(db, JOB, count=1)[0] == {"announced": 1}

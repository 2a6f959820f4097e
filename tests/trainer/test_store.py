"""The trainer's store moves jobs only along the table, and its ledger only grows."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, exc

from shoal_hosting.storage.database import open_engine
from shoal_hosting.storage.database_schema import check_schema
from shoal_protocol.privacy.ledger_checks import verify_chain
from shoal_protocol.wire.phases import JobEvent, Phase
from shoal_trainer import schema, store
from shoal_trainer.ledger import Ledger
from shoal_trainer.store import commitments
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


def test_a_jobs_rounds_are_counted_by_phase_and_its_newest_ones_shown(engine: Engine) -> None:
    ledger = Ledger("trainer")
    bodies = [examples.SPEC.model_copy(update={"number": number}) for number in range(5)]
    signed = [examples.named("trainer", body) for body in bodies]
    with engine.begin() as db:
        store.fix_population(db, JOB, examples.SPEC.population)
        for each in signed[:4]:
            store.add_round(db, each, ledger, at=NOW)
            store.lose_round(db, each.digest, None, at=NOW)
        store.add_round(db, signed[4], ledger, at=NOW)
    with engine.begin() as db:
        counts, newest = store.newest_rounds(db, JOB, count=2)
        assert store.newest_rounds(db, "0" * 64, count=2) == ({}, [])
    assert counts == {Phase.ABANDONED: 4, Phase.ANNOUNCED: 1}
    assert [(each.number, each.phase) for each in newest] == [
        (3, Phase.ABANDONED),
        (4, Phase.ANNOUNCED),
    ]


def test_a_round_is_charged_with_its_storage_or_not_stored_at_all(engine: Engine) -> None:
    with engine.begin() as db:
        store.fix_population(db, JOB, examples.SPEC.population)
        add_round(db)
    with pytest.raises(exc.IntegrityError), engine.begin() as db:
        add_round(db)
    with engine.begin() as db:
        assert schema.ledger.charge_of(db, SPEC.digest) == examples.charge(SPEC.body, "trainer")
        assert kinds(db) == ["charge"]
        assert store.newest_rounds(db, JOB, count=1)[0] == {Phase.ANNOUNCED: 1}


def test_commitments_tell_what_is_allowed_and_in_the_end_who_spent_what(engine: Engine) -> None:
    with engine.begin() as db:
        (joining,) = commitments(db)
        store.fix_population(db, JOB, examples.SPEC.population)
        add_round(db)
        (running,) = commitments(db)
        store.fail_job(db, JOB, JobEvent.ROUND_ABANDONED, "too late", at=NOW)
        (failed,) = commitments(db)
    assert (joining.population, joining.spent) == (None, ())
    assert (running.population, running.spent) == (examples.SPEC.population, ())
    assert list(failed.spent) == [(SPEC.body.clients(), SPEC.body.cost)]
    assert joining.allowed == running.allowed == examples.JOB.privacy.cost


def fail_with_round(db: Connection) -> None:
    event = JobEvent.ROUND_ABANDONED
    store.fail_job(db, JOB, event, "refused", at=NOW, abandoned_round=SPEC.digest)


def test_a_round_that_clients_were_never_told_of_is_given_back(engine: Engine) -> None:
    with engine.begin() as db:
        store.fix_population(db, JOB, examples.SPEC.population)
        add_round(db)
        fail_with_round(db)
        assert kinds(db) == ["charge", "return"]
        (held,) = commitments(db)
        assert not held.spent


def test_a_round_that_clients_may_have_answered_stays_charged(engine: Engine) -> None:
    with engine.begin() as db:
        store.fix_population(db, JOB, examples.SPEC.population)
        add_round(db)
        store.open_round(db, SPEC.digest)
        fail_with_round(db)
        assert kinds(db) == ["charge"]

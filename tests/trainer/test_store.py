"""The trainer's store moves jobs only along the table, and charges each round with its storage."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine, exc

from shoal_protocol.journal import EMPTY
from shoal_protocol.rounds.attestations import PartialSum, Result
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.phases import JobEvent
from shoal_service.storage.charges import Ledger
from shoal_service.storage.database import open_engine
from shoal_service.storage.database_schema import check_schema
from shoal_service.storage.journal import JournalWriter
from shoal_trainer import schema, store
from tests.world import examples

JOB = examples.JOB.digest
REQUEST = examples.named("analyst", examples.JOB)
SPEC = examples.named("trainer", examples.SPEC)
NOW = examples.OPENED_AT


def add_round(db: Connection) -> None:
    store.add_round(writer(db), SPEC, Ledger(schema.charges))


def writer(db: Connection) -> JournalWriter:
    return JournalWriter(schema.journal, db, EMPTY)


def kinds(db: Connection) -> list[str]:
    return [each.kind for each in schema.charges.after(db, 0)]


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
        assert kinds(db) == ["charge"]
        assert store.newest_rounds(db, JOB, count=1)[0] == {"announced": 1}


@pytest.mark.parametrize("event", [JobEvent.TIME_OVER, JobEvent.WITHDRAWN])
@pytest.mark.parametrize("told", [False, True])
def test_a_job_that_ends_gives_a_round_back_that_no_client_was_told_of(
    engine: Engine, event: JobEvent, told: bool
) -> None:
    with engine.begin() as db:
        population = examples.SPEC.population
        store.move_job(db, JOB, JobEvent.POPULATION_FIXED, population=population)
        add_round(db)
        if told:
            store.open_round(db, SPEC.digest)
        kept = store.end_job(writer(db), JOB, event)
        assert len(kept) == told
        assert kinds(db) == ["charge", "return"][: 2 - told]


def test_the_newest_sum_and_result_are_the_last_in_their_journals(engine: Engine) -> None:
    """However many rounds with a later deadline are on file."""
    with engine.begin() as db:
        store.move_job(db, JOB, JobEvent.POPULATION_FIXED, population=examples.SPEC.population)
        ledger = Ledger(schema.charges)
        for number in range(6):
            deadline = examples.SPEC.deadline + timedelta(days=number)
            changes = {"number": number, "deadline": deadline, "give_up_at": deadline}
            spec = examples.named("trainer", examples.SPEC.model_copy(update=changes))
            store.add_round(writer(db), spec, ledger)
            store.open_round(db, spec.digest)
            place = {"entry": examples.PLACE.model_copy(update={"number": 200 - number})}
            of_round = {"round": spec.digest} | place
            summed = examples.named(
                "compute-0", examples.partial_sum(0).model_copy(update=of_round)
            )
            result = examples.named("aggregator", examples.RESULT.model_copy(update=of_round))
            store.publish_round(db, result, [summed])
        for service, kind in (("compute-0", PartialSum), ("aggregator", Result)):
            found = store.newest_of(db, service)
            assert found is not None
            assert decode(found, kind).body.entry.number == 200
        assert store.newest_of(db, "compute-1") is None

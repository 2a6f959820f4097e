"""The store keeps a round's one end also when two ask for different ones at the same time."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine

from shoal_aggregator import aggregator, schema, store
from shoal_aggregator.aggregator import Outcome
from shoal_protocol.journal import EMPTY, Link
from shoal_protocol.rounds.attestations import Abandonment, AbandonmentReason, Result
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.phases import Phase
from shoal_service.storage.database import open_engine
from shoal_service.storage.database_schema import check_schema
from shoal_service.storage.journal import JournalWriter
from tests.world import examples

ROUND = examples.SPEC.digest
SPEC = examples.named("trainer", examples.SPEC)
SUMS = [examples.named(f"compute-{n}", examples.partial_sum(n)) for n in range(examples.NODES)]


def abandonment(entry: Link) -> Signed[Abandonment]:
    name = "aggregator"
    body = Abandonment(
        manifest=examples.CONSORTIUM.digest,
        round=ROUND,
        party=name,
        reason=AbandonmentReason(code="votes_missing"),
        entry=entry,
    )
    return examples.named(name, body)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    check_schema(engine, schema.metadata, schema.VERSION)
    yield engine
    engine.dispose()


def with_sums(engine: Engine, count: int) -> None:
    with engine.begin() as db:
        assert store.add_round(db, SPEC)
        for signed in SUMS[:count]:
            taken = Outcome.DUE if signed is SUMS[2] else Outcome.STORED
            assert aggregator.offer(db, signed) is taken


def writer(db: Connection) -> JournalWriter:
    return JournalWriter(schema.journal, db, EMPTY)


def publish(db: Connection) -> bool:
    def attest(entry: Link) -> Signed[Result]:
        return examples.named("aggregator", examples.RESULT.model_copy(update={"entry": entry}))

    used = [each.signer for each in SUMS]
    return store.publish(writer(db), ROUND, attest, stored=3, used=used, wrong=())


def phase_of(engine: Engine) -> Phase:
    with engine.begin() as db:
        return store.state_of(db, ROUND).phase


def test_a_round_is_not_abandoned_over_its_total_while_a_sum_is_missing(engine: Engine) -> None:
    with_sums(engine, 2)
    with engine.begin() as db:
        assert not store.abandon(writer(db), ROUND, abandonment, stored=3)
        aggregator.offer(db, SUMS[2])
        assert store.abandon(writer(db), ROUND, abandonment, stored=3)
        assert not publish(db)
    assert phase_of(engine) is Phase.ABANDONED

"""A round stays at the aggregator until it is decided, however old it is, and goes as a whole."""

from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine

from shoal_aggregator import schema, store
from shoal_aggregator.retention import KEEPINGS
from shoal_hosting.storage import retention
from shoal_hosting.storage.retention import delete_due
from tests.aggregator.test_store import SPEC, abandonment, engine, publish, with_sums

__all__ = ["engine"]

OVER = SPEC.body.give_up_at
LATER = OVER + timedelta(milliseconds=1)


def is_empty(db: Connection) -> bool:
    tables = (schema.rounds, schema.partial_sums, schema.results, schema.abandonments)
    return all(db.execute(each.select()).first() is None for each in tables)


def test_an_undecided_round_stays(engine: Engine) -> None:
    with_sums(engine, 2)
    with engine.begin() as db:
        assert not delete_due(db, KEEPINGS, LATER, 16)
        assert store.abandon(db, abandonment("aggregator"), stored=2)
        assert not delete_due(db, KEEPINGS, OVER, 16)
        assert delete_due(db, KEEPINGS, LATER, 16) and is_empty(db)


def test_a_result_goes_part_by_part(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MOST_ROWS", 1)
    with_sums(engine, 3)
    with engine.begin() as db:
        assert publish(db)

    def a_part_went() -> bool:
        with engine.begin() as db:
            return delete_due(db, KEEPINGS, LATER, 16)

    parts = 0
    while a_part_went():
        parts += 1
    assert parts == 5  # three sums, the result, the round
    with engine.begin() as db:
        assert is_empty(db)

"""A round stays at the aggregator until it is decided, however old it is, and goes as a whole."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine

from shoal_aggregator import schema, store
from shoal_aggregator.assembly import forget
from shoal_protocol.rounds.attestations import END
from shoal_service.storage import retention
from tests.aggregator.test_store import SPEC, engine, publish, with_sums

__all__ = ["engine"]

OVER = SPEC.body.give_up_at
LATER = OVER + timedelta(milliseconds=1)


def publish_later(db: Connection, nodes: Sequence[str], *, seconds: int = 86_400) -> str:
    """Store a round of another job that was published later, with these nodes' sums; return it.

    It gives up so many seconds after the first.
    """
    [before] = db.execute(schema.rounds.select()).mappings()
    new = {"id": "f" * 64, "job": "e" * 64, "give_up_at": before["give_up_at"] + 1000 * seconds}
    db.execute(schema.rounds.insert().values({**before, **new}))
    for each in db.execute(schema.received.select()).mappings().all():
        if each["node"] in nodes:
            later = {"round": new["id"], "place": f"9{each['place'][1:]}", "document": b"later"}
            db.execute(schema.received.insert().values({**each, **later}))
    return str(new["id"])


def test_the_newest_sum_is_the_last_in_the_nodes_journal_however_long_its_round_may_take(
    engine: Engine,
) -> None:
    with_sums(engine, 3)
    with engine.begin() as db:
        assert publish(db)
        publish_later(db, ["compute-0"], seconds=-60)
        assert store.find_newest_sum(db, "compute-0") == b"later"
        assert store.find_newest_sum(db, "compute-1") != b"later"


def test_a_round_with_a_nodes_newest_sum_stays_until_the_node_has_a_newer_one(
    engine: Engine,
) -> None:
    with_sums(engine, 3)
    with engine.begin() as db:
        assert publish(db)
        newest = store.find_newest_sum(db, "compute-0")
        assert newest
        assert not forget(db, LATER)  # for ever, unless there is another
        later = publish_later(db, ["compute-0", "compute-1"])
        assert not forget(db, LATER)  # compute-2 has none that is newer
        assert has_result(db)  # and the round stays as a whole
        mine = schema.received.c.node == "compute-2"
        db.execute(schema.received.update().where(mine).values(round=later))
        assert forget(db, LATER)
        assert not forget(db, LATER + timedelta(days=2))
        assert [each.id for each in db.execute(schema.rounds.select())] == [later]
        for each in range(3):
            assert store.find_newest_sum(db, f"compute-{each}")
        assert not has_result(db)


def has_result(db: Connection) -> bool:
    return schema.journal.find(db, END, SPEC.digest) is not None


def test_a_result_goes_part_by_part(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MOST_ROWS", 1)
    with_sums(engine, 3)
    with engine.begin() as db:
        assert publish(db)
        publish_later(db, ["compute-0", "compute-1", "compute-2"])

    def a_part_went() -> bool:
        with engine.begin() as db:
            return forget(db, LATER)

    parts = 0
    while a_part_went():
        parts += 1
    assert parts == 5  # three sums, the result, the round
    with engine.begin() as db:
        assert not store.knows_round(db, SPEC.digest)

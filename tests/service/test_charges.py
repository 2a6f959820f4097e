"""The charges in a service's journal: what clients spent by them; what does not fit is found."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, exc, text

from shoal_protocol.journal import EMPTY, GENESIS
from shoal_protocol.rounds.attestations import CHARGE, RETURN, charge_body
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.errors import LedgerBroken
from shoal_protocol.wire.phases import Phase
from shoal_service.storage.charges import Charges, Ledger
from shoal_service.storage.database import Bytes, open_engine
from shoal_service.storage.database_schema import check_schema
from shoal_service.storage.journal import JournalTables, JournalWriter
from tests.world import examples

SPECS = [examples.spec(number=number) for number in range(4)]
METADATA = MetaData()
JOURNAL = JournalTables(METADATA)
ROUNDS = Table(
    "rounds",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("job", String(64), nullable=False),
    Column("spec", Bytes, nullable=False),
    Column("phase", String(16), nullable=False),
)
CHARGES = Charges(JOURNAL, ROUNDS)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with four charges, of which the second was given back."""
    engine = open_engine(database_url)
    check_schema(engine, METADATA, 1)
    with engine.begin() as db:
        for spec in SPECS:
            charge(db, spec)
        CHARGES.give_back(writer(db), SPECS[1].digest)
        db.execute(ROUNDS.update().where(ROUNDS.c.id == SPECS[1].digest).values(phase="abandoned"))
    yield engine
    engine.dispose()


def writer(db: Connection) -> JournalWriter:
    return JournalWriter(JOURNAL, db, EMPTY)


def add(db: Connection, spec: RoundSpec) -> None:
    signed = examples.named("trainer", spec).encode()
    row = {"id": spec.digest, "job": spec.job, "spec": signed, "phase": Phase.COLLECTING.value}
    db.execute(ROUNDS.insert().values(row))


def charge(db: Connection, spec: RoundSpec) -> None:
    add(db, spec)
    ledger, held = Ledger(CHARGES), writer(db)
    held.lock()
    ledger.catch_up(db)
    ledger.charge(held, spec)


def followed(engine: Engine, ledger: Ledger | None = None) -> Ledger:
    ledger = ledger or Ledger(CHARGES)
    with engine.begin() as db:
        ledger.verify(db)
    return ledger


def tamper(engine: Engine, *statements: str) -> None:
    """Do what whoever owns the database can do: drop the triggers first."""
    with engine.begin() as db:
        if db.dialect.name == "sqlite":
            for name in ("journal_keeps", "journal_stays", "journal_adds", "journal_head_keeps"):
                db.execute(text(f"DROP TRIGGER IF EXISTS {name}"))
        else:
            db.execute(text("DROP TRIGGER IF EXISTS journal_stays ON journal"))
            db.execute(text("DROP TRIGGER IF EXISTS journal_head_stays ON journal_head"))
        for statement in statements:
            db.execute(text(statement))


def test_clients_have_spent_what_was_charged_and_not_given_back(engine: Engine) -> None:
    ledger = followed(engine)
    with engine.begin() as db:
        charged = list(CHARGES.after(db, 0))
        of_job = list(CHARGES.of_job(db, SPECS[0].job, through=3))
        assert ledger.last == charged[-1].head == JOURNAL.newest(db)
    assert [each.kind for each in charged] == [CHARGE] * 4 + [RETURN]
    assert [each.job_rounds for each in charged] == [1, 2, 3, 4, 2]
    assert [each.spec for each in of_job] == SPECS[:3]
    assert ledger.balances.largest(examples.POPULATION).mu == pytest.approx(3**0.5 * SPECS[0].mu)


def test_a_charge_opens_the_hash_that_the_journal_shows(engine: Engine) -> None:
    with engine.begin() as db:
        found = CHARGES.of_round(db, SPECS[2].digest)
        [shown] = JOURNAL.page(db, 2, 1)
    assert found.entry == shown.link
    assert found.hash_for(SPECS[2].digest) == shown.hash != found.hash_for(SPECS[1].digest)
    assert shown.statement is None, "charges are not shown to everybody"


def test_the_database_refuses_to_change_a_charge_or_to_add_a_second_one(engine: Engine) -> None:
    for statement in ("DELETE FROM journal", "UPDATE journal SET body = NULL"):
        with pytest.raises((exc.IntegrityError, exc.InternalError), match="only grows"):
            with engine.begin() as db:
                db.execute(text(statement))
    with pytest.raises(exc.IntegrityError), engine.begin() as db:
        writer(db).note(CHARGE, SPECS[0].digest, charge_body(5))
    assert followed(engine).last.number == 5


CHANGES = {
    "kind": ("UPDATE journal SET kind = 'return' WHERE number = 3", "entry 3"),
    "body": (
        "UPDATE journal SET body = (SELECT body FROM journal WHERE number = 2) WHERE number = 1",
        "entry 1",
    ),
    "its round": ("DELETE FROM rounds WHERE id = '{}'", "entry 1 is of a round not on file"),
    "another spec": (
        "UPDATE rounds SET spec = (SELECT spec FROM rounds WHERE id <> '{0}' LIMIT 1) "
        "WHERE id = '{0}'",
        "entry 1 is of a round not on file",
    ),
    "the row is gone": ("DELETE FROM journal WHERE number = 4", "not charged"),
    "given back, and released": ("UPDATE rounds SET phase = 'published'", "given back"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_does_not_fit_is_found_when_charges_are_read(engine: Engine, name: str) -> None:
    statement, why = CHANGES[name]
    tamper(engine, statement.format(SPECS[0].digest))
    with pytest.raises(LedgerBroken, match=why):
        followed(engine)


def test_a_count_that_skips_a_round_of_the_job_is_found(engine: Engine) -> None:
    spec = examples.spec(number=4)
    with engine.begin() as db:
        add(db, spec)
        writer(db).note(CHARGE, spec.digest, charge_body(6))
    with pytest.raises(LedgerBroken, match="entry 6 miscounts"):
        followed(engine)


def test_a_database_set_back_under_a_running_process_is_found(engine: Engine) -> None:
    ledger = followed(engine)
    newest = "(SELECT hash FROM journal WHERE number = 4)"
    tamper(
        engine,
        "DELETE FROM journal WHERE number = 5",
        f"UPDATE journal_head SET number = 4, hash = {newest}",
    )
    with pytest.raises(LedgerBroken, match="set back"):
        followed(engine, ledger)
    followed(engine)  # whoever was not there cannot tell: keepers can


def test_an_emptied_journal_does_not_fit_the_rounds_on_file(engine: Engine) -> None:
    emptied = f"UPDATE journal_head SET number = 0, hash = '{GENESIS}'"
    tamper(engine, "DELETE FROM journal", emptied)
    with pytest.raises(LedgerBroken, match="not charged"):
        followed(engine)


def test_rivals_add_their_charges_one_after_another(engine: Engine, database_url: str) -> None:
    more = [examples.spec(number=number) for number in range(4, 16)]

    def rival(mine: int) -> None:
        own = open_engine(database_url)
        for spec in more[mine::4]:
            with own.begin() as db:
                charge(db, spec)
        own.dispose()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(rival, range(4)))
    assert followed(engine).last.number == 17

"""A journal in its database: it only grows, keeps one statement of a subject, and shows damage."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, MetaData, exc, text

from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import EMPTY, Chain, Head, Link, Shown
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.errors import LedgerBroken
from shoal_service.storage import journal as storage
from shoal_service.storage.database import open_engine
from shoal_service.storage.database_schema import check_schema
from shoal_service.storage.journal import Attest, Journal, JournalTables, JournalWriter
from shoal_service.storage.thread import StorageThread
from tests.world import examples

METADATA = MetaData()
JOURNAL = JournalTables(METADATA)
JOBS = [f"{number:064x}" for number in range(1, 9)]
KIND = "job_total"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database with four statements."""
    engine = open_engine(database_url)
    check_schema(engine, METADATA, 1)
    for job in JOBS[:4]:
        append(engine, job)
    yield engine
    engine.dispose()


def signing(job: str, *rounds: str) -> Attest:
    def attest(link: Link) -> Signed[JobTotal]:
        body = JobTotal(
            manifest=examples.CONSORTIUM.digest,
            entry=link,
            job=job,
            node="compute-0",
            report="ab" * 32,
            rounds=rounds,
        )
        return examples.named("compute-0", body)

    return attest


class Kept(NamedTuple):
    """A statement, and the journal's last entry after it was kept."""

    document: bytes
    head: Head


def append(engine: Engine, job: str, *rounds: str, after: Head = EMPTY) -> Kept:
    with engine.begin() as db:
        writer = JournalWriter(JOURNAL, db, after)
        return Kept(writer.append(KIND, job, signing(job, *rounds)), writer.head)


def verify(engine: Engine) -> Head:
    with engine.begin() as db:
        return JOURNAL.verify(db, JobTotal)


def tamper(engine: Engine, *statements: str) -> None:
    """Do what whoever owns the database can do: drop the triggers first."""
    with engine.begin() as db:
        for table in ("journal", "journal_head"):
            for trigger in ("keeps", "stays", "adds"):
                on = f" ON {table}" if db.dialect.name == "postgresql" else ""
                db.execute(text(f"DROP TRIGGER IF EXISTS {table}_{trigger}{on}"))
        for each in statements:
            db.execute(text(each))


def test_R2_entries_are_one_chain_that_anybody_can_follow(engine: Engine) -> None:
    with engine.begin() as db:
        pages = [JOURNAL.page(db, after, 3) for after in (0, 3, 4)]
    assert [len(page) for page in pages] == [3, 1, 0]
    chain = Chain(JobTotal)
    followed = [chain.follow(each) for page in pages for each in page]
    assert [each.body.subject for each in followed if each is not None] == JOBS[:4]
    assert chain.head == verify(engine)


def test_R9_a_second_statement_about_a_subject_is_the_first(engine: Engine) -> None:
    first = append(engine, JOBS[4], "5" * 64)
    again = append(engine, JOBS[4], "6" * 64)
    assert again == first
    assert decode(first.document, JobTotal).body.rounds == ("5" * 64,)
    assert verify(engine).number == 5


def test_R9_a_statement_that_is_not_committed_leaves_its_place(engine: Engine) -> None:
    before = verify(engine)
    with pytest.raises(ZeroDivisionError), engine.begin() as db:
        lost = JournalWriter(JOURNAL, db, before)
        lost.append(KIND, JOBS[4], signing(JOBS[4]))
        raise ZeroDivisionError  # a crash before the commit: nothing has left
    kept = append(engine, JOBS[5], after=before)
    assert (lost.head.number, kept.head.number) == (5, 5)
    assert verify(engine) == kept.head


def test_R2_entries_can_neither_be_changed_nor_removed(engine: Engine) -> None:
    table = JOURNAL.entries
    for change in (table.delete(), table.update().values(body=b"")):
        with pytest.raises(exc.DBAPIError, match="only grows"), engine.begin() as db:
            db.execute(change)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE journal SET subject = 'x' WHERE number = 2",
        "UPDATE journal SET salt = '00000000000000000000000000000000' WHERE number = 2",
        "UPDATE journal SET epoch = '9-00000000000000000000000000000000' WHERE number = 2",
        "UPDATE journal SET body = '{}' WHERE number = 2",
        "UPDATE journal SET hash = previous WHERE number = 2",
        "DELETE FROM journal WHERE number = 2",
        "DELETE FROM journal WHERE number = 4",
        "DELETE FROM journal_head",
        "UPDATE journal_head SET number = 5",
    ],
)
def test_R2_a_journal_that_was_tampered_with_is_refused(engine: Engine, damage: str) -> None:
    tamper(engine, damage)
    with pytest.raises(LedgerBroken):
        verify(engine)


def test_R10_nothing_is_appended_to_a_database_that_was_set_back(engine: Engine) -> None:
    seen = append(engine, JOBS[4]).head
    fourth = "(SELECT hash FROM journal WHERE number = 4)"
    tamper(
        engine,
        "DELETE FROM journal WHERE number = 5",
        f"UPDATE journal_head SET number = 4, hash = {fourth}",
    )
    with pytest.raises(LedgerBroken, match="set back"):
        append(engine, JOBS[5], after=seen)
    assert verify(engine).number == 4  # consistent, and so seen only by who knows more
    # another history of the same length is seen, too
    append(engine, JOBS[6])
    with pytest.raises(LedgerBroken, match="set back"):
        append(engine, JOBS[5], after=seen)


async def test_R10_a_process_remembers_what_it_let_go(engine: Engine) -> None:
    thread = StorageThread(engine)
    own = Journal(JOURNAL, thread, JobTotal)

    async def total(job: str) -> bytes:
        return await own.run(JournalWriter.append, KIND, job, signing(job))

    signed = await total(JOBS[4])
    assert await total(JOBS[4]) == signed
    other = append(engine, JOBS[5])  # by another replica
    assert decode(await total(JOBS[6]), JobTotal).body.entry.previous == other.head.hash
    sixth = "(SELECT hash FROM journal WHERE number = 6)"
    tamper(
        engine,
        "DELETE FROM journal WHERE number = 7",
        f"UPDATE journal_head SET number = 6, hash = {sixth}",
    )
    with pytest.raises(LedgerBroken, match="set back"):
        await total(JOBS[7])
    await thread.close()


def test_R10_replicas_append_while_another_one_starts_and_reads(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, page, appended = open_engine(postgresql_url), JOURNAL.page, list[Kept]()
    check_schema(engine, METADATA, 1)
    append(engine, JOBS[0])

    def read(*given: Any, **named: Any) -> list[Shown]:
        if not appended:
            appended.append(append(engine, JOBS[1]))  # it would wait for a locked head
        return page(*given, **named)

    monkeypatch.setattr(JOURNAL, "page", read)
    assert verify(engine) == appended[0].head
    engine.dispose()


def test_R10_rivals_append_one_after_another(engine: Engine, database_url: str) -> None:
    def add(job: str) -> Kept:
        own = open_engine(database_url)
        try:
            return append(own, job)
        finally:
            own.dispose()

    with ThreadPoolExecutor(4) as pool:
        kept = list(pool.map(add, [JOBS[4], JOBS[5], JOBS[4], JOBS[6]]))
    assert kept[0].document == kept[2].document
    assert verify(engine).number == 7


def test_R6_a_kind_that_is_not_public_shows_its_hash_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "PUBLIC", frozenset())
    with engine.begin() as db:
        page = JOURNAL.page(db, 0, 9)
    assert [each.statement for each in page] == [None] * 4
    chain = Chain(JobTotal)
    for each in page:
        chain.follow(each)
    assert chain.head.number == 4


def test_a_page_of_large_entries_is_shorter(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "LARGEST_PAGE_BYTES", 1)
    with engine.begin() as db:
        assert [each.number for each in JOURNAL.page(db, 1, 9)] == [2]


def test_a_statement_of_another_place_is_not_kept(engine: Engine) -> None:
    with pytest.raises(ValueError, match="place"), engine.begin() as db:
        JournalWriter(JOURNAL, db, EMPTY).append(KIND, JOBS[4], signing(JOBS[5]))
    assert verify(engine).number == 4


def test_R6_a_statement_is_forgotten_and_its_entry_stays(database_url: str) -> None:
    metadata = MetaData()
    forgetful = JournalTables(metadata, forgets=True)
    engine = open_engine(database_url)
    check_schema(engine, metadata, 1)
    with engine.begin() as db:
        writer = JournalWriter(forgetful, db, EMPTY)
        for job in JOBS[:3]:
            writer.append(KIND, job, signing(job))
    with engine.begin() as db:
        assert forgetful.forget(db, KIND, JOBS[:2], most=1)
        assert forgetful.forget(db, KIND, JOBS[:2], most=1)
        assert not forgetful.forget(db, KIND, JOBS[:2], most=1)
        found = [forgetful.find(db, KIND, job) is not None for job in JOBS[:3]]
        assert found == [False, False, True]
        assert forgetful.verify(db, JobTotal) == writer.head
        with pytest.raises(LedgerBroken, match="forgotten"):
            JournalWriter(forgetful, db, EMPTY).append(KIND, JOBS[0], signing(JOBS[0]))
    engine.dispose()

"""A journal's chain, by the definition, by mutation, and by what two histories leave in it."""

from collections.abc import Sequence
from typing import Any

import pytest

from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import (
    EMPTY,
    GENESIS,
    Chain,
    Link,
    Shown,
    ShownStatement,
    content_hash,
    entry_hash,
    epoch_order,
)
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import sha256
from shoal_protocol.wire.errors import MalformedDocument
from tests.world import examples

EPOCH = f"1-{'0a' * 16}"
SALT = "5c" * 16
JOBS = [f"{number:064x}" for number in range(1, 6)]


def total(link: Link, job: str) -> Signed[JobTotal]:
    body = JobTotal(
        manifest=examples.CONSORTIUM.digest,
        entry=link,
        job=job,
        node="compute-0",
        report=SALT * 2,
        rounds=(),
    )
    return examples.named("compute-0", body)


def shown(link: Link, signed: Signed[JobTotal], subject: str | None = None) -> Shown:
    kind, subject = "job_total", subject or signed.body.job
    statement = ShownStatement(salt=SALT, kind=kind, subject=subject, document=signed.to_json())
    content = content_hash(SALT, kind, subject, signed.encode())
    return Shown(**link.model_dump(), content=content, statement=statement)


def journal(jobs: Sequence[str] = JOBS, epoch: str = EPOCH) -> list[Shown]:
    entries, previous = [], GENESIS
    for number, job in enumerate(jobs, 1):
        link = Link(epoch=epoch, number=number, previous=previous)
        entries.append(shown(link, total(link, job)))
        previous = entries[-1].hash
    return entries


def followed(entries: Sequence[Shown]) -> Chain:
    chain = Chain(JobTotal)
    for each in entries:
        chain.follow(each)
    return chain


def changed(entry: Shown, **changes: Any) -> Shown:
    return entry.model_copy(update=changes)


def test_R6_an_entry_is_hashed_as_the_protocol_says() -> None:
    link = Link(epoch=EPOCH, number=1, previous=GENESIS)

    def framed(*parts: bytes) -> bytes:
        return b"".join(len(part).to_bytes(8, "big") + part for part in parts)

    body = total(link, JOBS[0]).encode()
    content = sha256(
        "journal_content", framed(bytes.fromhex(SALT), b"job_total", JOBS[0].encode(), body)
    )
    assert content_hash(SALT, "job_total", JOBS[0], body) == content
    parts = framed(EPOCH.encode(), b"1", bytes.fromhex(GENESIS), bytes.fromhex(content))
    assert entry_hash(link, content) == sha256("journal_entry", parts)
    assert content_hash(SALT, "a", "bc", b"") != content_hash(SALT, "ab", "c", b"")


def test_R2_a_whole_journal_is_followed_with_and_without_its_statements() -> None:
    entries = journal()
    chain = followed(entries)
    assert chain.head == (5, entries[-1].hash)
    hidden = [changed(each, statement=None) for each in entries]
    assert followed(hidden).head == chain.head
    assert followed([]).head == EMPTY


@pytest.mark.parametrize("place", range(5))
def test_R2_no_entry_can_be_changed_dropped_or_moved(place: int) -> None:
    entries = journal()
    entry = entries[place]
    assert entry.statement is not None
    others = {
        "another content": [changed(entry, content=JOBS[0])],
        "another number": [changed(entry, number=place + 2)],
        "another previous": [changed(entry, previous=JOBS[0])],
        "another salt": [changed(entry, statement=changed_statement(entry, salt="00" * 16))],
        "another subject": [changed(entry, statement=changed_statement(entry, subject=JOBS[0]))],
        "twice": [entry, entry],
        "dropped": [],
    }
    if place == 0:
        del others["another subject"]
    for what, instead in others.items():
        later = entries[place + 1 :] or journal([*JOBS, "f" * 64])[5:]
        with pytest.raises(MalformedDocument):
            followed([*entries[:place], *instead, *later])
            pytest.fail(what)


def changed_statement(entry: Shown, **changes: str) -> ShownStatement:
    assert entry.statement is not None
    return entry.statement.model_copy(update=changes)


def test_R9_a_journal_has_one_statement_about_a_job() -> None:
    with pytest.raises(MalformedDocument, match="had one"):
        followed(journal([JOBS[0], JOBS[1], JOBS[0]]))
    first = journal(JOBS[:1])
    link = Link(epoch=EPOCH, number=2, previous=first[0].hash)
    # under another subject than the job that it is about
    with pytest.raises(MalformedDocument, match="another subject"):
        followed([*first, shown(link, total(link, JOBS[0]), "elsewhere")])


def test_R2_a_statement_names_the_place_at_which_it_is_shown() -> None:
    first = journal(JOBS[:1])
    link = Link(epoch=EPOCH, number=2, previous=first[0].hash)
    for other in (
        {"number": 3},
        {"previous": GENESIS},
        {"epoch": f"1-{'0b' * 16}"},
    ):
        elsewhere = total(link.model_copy(update=other), JOBS[1])
        with pytest.raises(MalformedDocument, match="another place"):
            followed([*first, shown(link, elsewhere)])


def test_R2_epochs_rise_by_counter_and_then_by_bytes() -> None:
    epochs = [f"1-{'0a' * 16}", f"1-{'0b' * 16}", f"2-{'00' * 16}", f"10-{'00' * 16}"]
    assert sorted(reversed(epochs), key=epoch_order) == epochs
    first = journal(JOBS[:1], epochs[2])
    for epoch, follows in ((epochs[3], True), (epochs[2], True), (epochs[1], False)):
        link = Link(epoch=epoch, number=2, previous=first[0].hash)
        entries = [*first, shown(link, total(link, JOBS[1]))]
        if follows:
            assert followed(entries).head.number == 2
        else:
            with pytest.raises(MalformedDocument, match="epoch that is over"):
                followed(entries)


def test_R2_two_histories_of_one_journal_part_at_one_number() -> None:
    one, other = journal(JOBS[:3]), journal([*JOBS[:2], JOBS[4]])
    assert [each.hash for each in one[:2]] == [each.hash for each in other[:2]]
    assert one[2].link == other[2].link
    assert one[2].hash != other[2].hash
    with pytest.raises(MalformedDocument, match="does not follow"):
        followed([*other, *journal()[3:]])

"""A keeper goes on from the head that it keeps along all entries, or from an accepted loss."""

from collections.abc import Sequence

import pytest

from shoal_protocol.journal import EMPTY, GENESIS, EntryPlace, Head, Link, entry_hash
from shoal_protocol.keeping import (
    Advance,
    HeadsAsked,
    JournalHead,
    Loss,
    is_majority,
    keepers_of,
)
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import MalformedDocument
from tests.world import examples

NODE = "compute-0"
FIRST, SECOND = (f"{counter}-{'0a' * 16}" for counter in (1, 2))
Entries = Sequence[tuple[str, str]]
ENTRIES = [(FIRST, f"{number:064x}") for number in range(1, 7)]
OTHERS = [*ENTRIES[:3], *((FIRST, f"{number:064x}") for number in range(14, 17))]


def walked(entries: Entries, start: Head = EMPTY) -> list[Head]:
    """Return the head before the first of these entries, and that after each."""
    heads = [start]
    for epoch, content in entries:
        last = heads[-1]
        link = Link(epoch=epoch, number=last.number + 1, previous=last.hash)
        heads.append(Head(link.number, entry_hash(link, content)))
    return heads


def head(entries: Entries, count: int, start: Head = EMPTY) -> Signed[JournalHead]:
    number, hashed = walked(entries[:count], start)[-1]
    epoch = entries[count - 1][0]
    body = JournalHead(service=NODE, epoch=epoch, number=number, hash=hashed, sequence=0)
    return examples.named(NODE, body)


def advance(entries: Entries, after: int, count: int) -> Advance:
    return Advance(head=head(entries, count), after=after, entries=tuple(entries[after:count]))


@pytest.mark.parametrize("kept", range(5))
def test_R2_a_newer_head_counts_with_all_entries_from_the_one_that_is_kept(kept: int) -> None:
    known = head(ENTRIES, kept).body if kept else None
    assert advance(ENTRIES, kept, 6).leads_from(known)
    for after in set(range(6)) - {kept}:
        assert not advance(ENTRIES, after, 6).leads_from(known), after
    whole = advance(ENTRIES, kept, 6)
    for changed in (
        {"entries": whole.entries[1:]},
        {"entries": whole.entries[:-1]},
        {"entries": (*whole.entries[:-1], OTHERS[-1])},
        {"head": head(ENTRIES, 5)},
        {"head": head(OTHERS, 6)},
    ):
        assert not whole.model_copy(update=changed).leads_from(known), changed


def test_R2_a_fork_does_not_lead_on() -> None:
    assert advance(OTHERS, 3, 6).leads_from(head(ENTRIES, 3).body)
    for kept in (4, 5):
        assert not advance(OTHERS, kept, 6).leads_from(head(ENTRIES, kept).body)


def test_R2_epochs_do_not_fall() -> None:
    entries = [(SECOND, f"{number:064x}") for number in (1, 2)]
    lower = [*entries, (FIRST, "3" * 64)]
    assert not advance(lower, 2, 3).leads_from(head(entries, 2).body)
    higher = [*ENTRIES[:2], (SECOND, "3" * 64)]
    assert advance(higher, 2, 3).leads_from(head(ENTRIES, 2).body)


def lost(entries: Entries, count: int, *, back_to: int) -> tuple[Signed[Loss], Advance]:
    """Return the statement of a loss of entries beyond `back_to`, and what comes from it on."""
    before = walked(entries[:back_to])[-1]
    body = Loss(
        manifest=examples.CONSORTIUM.digest,
        entry=Link(epoch=SECOND, number=before.number + 1, previous=before.hash),
        service=NODE,
        lost=EntryPlace(epoch=entries[count - 1][0], number=count),
        sequence=2,
        at=examples.OPENED_AT,
    )
    signed = examples.named(NODE, body)
    later = [(SECOND, f"{number:064x}") for number in (30, 31)]
    newest = head(later, 2, before)
    return signed, Advance(head=newest, after=back_to, entries=tuple(later), loss=signed)


@pytest.mark.parametrize("back_to", [0, 2, 5])
def test_R7_keepers_go_on_from_a_loss_that_covers_what_they_keep(back_to: int) -> None:
    _, later = lost(ENTRIES, 5, back_to=back_to)
    for kept in range(6):
        assert later.leads_from(head(ENTRIES, kept).body if kept else None)
    assert not later.leads_from(head(ENTRIES, 6).body)  # more than the loss names
    if back_to < 5:
        assert not later.model_copy(update={"loss": None}).leads_from(head(ENTRIES, 5).body)


def test_R7_a_loss_from_before_leads_back_from_no_later_epoch() -> None:
    _, later = lost(ENTRIES, 5, back_to=1)
    begun = [(SECOND, f"{number:064x}") for number in range(30, 33)]
    kept = head(begun, 3, walked(ENTRIES[:1])[-1]).body
    assert kept.number < 5
    assert not later.leads_from(kept)


def test_R7_a_loss_is_the_signers_own() -> None:
    signed, later = lost(ENTRIES, 5, back_to=2)
    other = signed.body.model_copy(update={"service": "compute-1"})
    stolen = later.model_copy(update={"loss": examples.named("compute-1", other)})
    assert not stolen.leads_from(head(ENTRIES, 5).body)


@pytest.mark.parametrize(("nodes", "needed"), [(2, 2), (3, 3), (4, 3), (5, 4)])
def test_R1_keepers_are_all_other_services_and_more_than_half_of_them_count(
    nodes: int, needed: int
) -> None:
    manifest = examples.consortium(nodes=nodes).manifest
    names = [each.name for each in keepers_of(manifest, NODE)]
    assert NODE not in names
    assert {"aggregator", "trainer"} < set(names)
    assert len(names) == nodes + 1
    assert [is_majority(count, manifest, NODE) for count in (needed - 1, needed)] == [False, True]


def test_questions_come_back_as_they_were_written() -> None:
    _, later = lost(ENTRIES, 5, back_to=2)
    asked = HeadsAsked(nonce="ab" * 16, advance=later)
    assert HeadsAsked.decode(asked.encode()) == asked
    for broken in (b"{}", b'{"nonce":"ab"}', asked.encode().replace(b'"after":2', b'"after":-2')):
        with pytest.raises(MalformedDocument):
            HeadsAsked.decode(broken)
    assert GENESIS == EMPTY.hash

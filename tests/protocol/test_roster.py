"""The roster: keys by index, revoked for good, never reassigned, quick at a million clients."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import VerifyKey

from shoal_protocol.trust.roster import Roster
from shoal_protocol.trust.roster_changes import (
    roster_of,
    with_enrolled,
    with_grown,
    with_key,
    with_revoked,
)
from shoal_protocol.wire.errors import MalformedDocument, RevokedHolder
from tests.world.examples import CLIENTS, REVOKED, client_key, roster, signing_key

MAGIC = b"SHOALROSTER\1"
holders = st.lists(
    st.tuples(st.binary(min_size=32, max_size=32).filter(any), st.integers(1, 2**20)),
    unique_by=lambda each: each[0],
    max_size=12,
)
rosters = holders.map(lambda given: roster_of(((VerifyKey(key), slots) for key, slots in given)))


def key_of(client: int) -> bytes:
    return bytes(client_key(client).verify_key)


def ranges_of(*pairs: tuple[int, int]) -> bytes:
    return struct.pack(f"<{2 * len(pairs)}I", *(number for pair in pairs for number in pair))


def single(keys: bytes) -> Roster:
    """Return the roster of holders with one slot each."""
    return Roster(keys, ranges_of(*((holder, 1) for holder in range(len(keys) // 32))))


@given(rosters)
def test_a_roster_comes_back_from_its_file(example: Roster) -> None:
    again = Roster.decode(example.encode())
    assert again.encode() == example.encode()
    assert again.digest == example.digest
    assert len(again) == len(example)
    assert len(again.enrolled_set) == len(example)


def test_slots_are_given_in_ranges_one_after_another() -> None:
    first, second = client_key(0).verify_key, client_key(1).verify_key
    made = with_grown(roster_of([(first, 3), (second, 2)]), 0, 4)
    assert [made.holder_of(slot) for slot in range(len(made))] == [0] * 3 + [1] * 2 + [0] * 4
    assert list(made.slots_of(0)) == [0, 1, 2, 5, 6, 7, 8]
    assert list(made.slots_of(1)) == [3, 4]
    assert made.key_of(made.holder_of(8)) == bytes(first) and made.key_of(
        made.holder_of(4)
    ) == bytes(second)
    revoked = with_revoked(made, [0])
    assert list(revoked.enrolled_set) == [3, 4]
    assert list(revoked.slots_of(0)) == list(made.slots_of(0)), "a slot is never given again"
    with pytest.raises(RevokedHolder):
        revoked.key_of(revoked.holder_of(5))


def test_a_revoked_client_is_told_from_an_unknown_one() -> None:
    with pytest.raises(RevokedHolder):
        roster().key_of(roster().holder_of(REVOKED))
    assert list(roster().enrolled_set) == list(range(REVOKED))


def test_new_holders_take_the_next_indices_and_never_a_revoked_ones() -> None:
    grown = with_enrolled(roster(), [(signing_key("newcomer").verify_key, 5)])
    assert len(grown) == CLIENTS + 5
    assert grown.holder_with(signing_key("newcomer").verify_key) == CLIENTS
    assert list(grown.slots_of(CLIENTS)) == list(range(CLIENTS, CLIENTS + 5))
    with pytest.raises(RevokedHolder):
        grown.key_of(grown.holder_of(REVOKED))


def test_a_key_is_enrolled_once() -> None:
    with pytest.raises(ValueError, match="share a key"):
        with_enrolled(roster(), [(client_key(3).verify_key, 1)])
    head = MAGIC + bytes([2, 0, 0, 0, 2, 0, 0, 0])
    with pytest.raises(MalformedDocument, match="share a key"):
        Roster.decode(head + key_of(1) * 2 + ranges_of((0, 1), (1, 1)))


@pytest.mark.parametrize("position", range(20))
def test_every_byte_of_the_files_head_counts(position: int) -> None:
    content = bytearray(roster().encode())
    content[position] ^= 1
    with pytest.raises(MalformedDocument):
        Roster.decode(bytes(content))


@given(st.binary(max_size=100) | st.binary(max_size=100).map(lambda tail: MAGIC + tail))
def test_arbitrary_bytes_are_a_roster_or_refused_as_malformed(content: bytes) -> None:
    try:
        example = Roster.decode(content)
    except MalformedDocument:
        return
    assert example.encode() == content


def test_a_roster_follows_one_that_it_extends_or_revokes_from() -> None:
    start = roster(revoked=())
    later = with_revoked(with_enrolled(start, [(signing_key("newcomer").verify_key, 1)]), [5, 7])
    assert start.follows(start)
    assert later.follows(start)
    assert with_grown(later, 3, 10).follows(later)
    assert not later.follows(with_grown(later, 3, 10))
    assert roster().follows(Roster())


@pytest.mark.parametrize(
    "keys",
    [
        key_of(0),  # shorter
        key_of(1) + key_of(0) + bytes(32),  # indices exchanged
        key_of(0) + key_of(1) + key_of(2),  # a revocation taken back
    ],
    ids=["shorter", "exchanged", "un-revoked"],
)
def test_a_roster_that_does_anything_else_does_not_follow(keys: bytes) -> None:
    assert not single(keys).follows(single(key_of(0) + key_of(1) + bytes(32)))


@pytest.mark.parametrize(
    "ranges", [((0, 3), (1, 2)), ((0, 2), (1, 4)), ((0, 2), (1, 2), (0, 1)), ((1, 3), (0, 2))]
)
def test_ranges_that_were_given_stay_as_they_are(ranges: tuple[tuple[int, int], ...]) -> None:
    keys = key_of(0) + key_of(1)
    earlier = Roster(keys, ranges_of((0, 2), (1, 3)))
    assert not Roster(keys, ranges_of(*ranges)).follows(earlier)


def test_a_key_has_one_index_for_ever() -> None:
    """Under another one its slots would begin with nothing spent."""
    start = roster(revoked=())
    key, other = (client_key(5).verify_key, 1), (signing_key("newcomer").verify_key, 1)
    at_once = with_enrolled(with_revoked(start, [5]), [key])
    assert at_once.takes_again(start, since=start)
    assert not at_once.follows(start)
    revoked = with_revoked(start, [5])
    later = with_enrolled(with_enrolled(revoked, [other]), [key])
    assert later.takes_again(start, since=revoked)
    assert not later.takes_again(revoked, since=revoked)  # which no longer knows the key
    assert not with_enrolled(revoked, [other]).takes_again(start, since=revoked)


def test_another_key_leaves_a_holder_its_slots() -> None:
    start = with_grown(roster(), 3, 10)
    new = signing_key("newcomer").verify_key
    changed = with_key(start, 3, new)
    assert changed.follows(start)
    assert changed.key_of(3) == bytes(new)
    assert changed.slots_of(3) == start.slots_of(3)
    assert changed.enrolled_set == start.enrolled_set
    assert changed.holder_with(client_key(3).verify_key) is None


def test_a_replaced_key_never_comes_back() -> None:
    start, old = roster(), client_key(3).verify_key
    changed = with_key(start, 3, signing_key("newcomer").verify_key)
    for back in (with_key(changed, 3, old), with_enrolled(changed, [(old, 1)])):
        assert back.takes_again(start, since=changed)
    swapped = with_enrolled(changed, [(old, 1)])
    assert not swapped.follows(start), "under another index it would begin with nothing spent"


def test_no_key_is_anothers_and_a_revoked_holder_gets_none() -> None:
    start, new = roster(), signing_key("newcomer").verify_key
    with pytest.raises(ValueError, match="share a key"):
        with_key(start, 3, client_key(4).verify_key)
    with pytest.raises(ValueError, match="for good"):
        with_key(start, REVOKED, new)
    with pytest.raises(ValueError, match="no such data holder"):
        with_key(start, start.holders, new)
    keys, ranges = start.parts
    place = 32 * REVOKED
    risen = Roster(keys[:place] + bytes(new) + keys[place + 32 :], ranges)
    assert not risen.follows(start)
    exchanged = Roster(key_of(1) + key_of(0), ranges_of((0, 1), (1, 1)))
    assert not exchanged.follows(single(key_of(0) + key_of(1)))

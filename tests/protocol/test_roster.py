"""The roster: keys by index, revoked for good, never reassigned, quick at a million clients."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import VerifyKey

from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.errors import MalformedDocument, RevokedClient, UnknownClient
from tests.world.examples import CLIENTS, REVOKED, client_key, roster, signing_key

MAGIC = b"SHOALROSTER\1"
rosters = st.sets(st.binary(min_size=32, max_size=32).filter(any), max_size=12).map(
    lambda keys: Roster(b"".join(sorted(keys)))
)


def key_of(client: int) -> bytes:
    return bytes(client_key(client).verify_key)


@given(rosters)
def test_a_roster_comes_back_from_its_file(example: Roster) -> None:
    again = Roster.decode(example.encode())
    assert again.encode() == example.encode()
    assert again.digest == example.digest
    assert len(again) == len(example)


def test_the_files_layout_is_magic_version_count_and_keys() -> None:
    keys = key_of(0) + bytes(32) + key_of(2)
    assert Roster(keys).encode() == MAGIC + bytes([3, 0, 0, 0]) + keys
    content = b"shoal/v1/roster\n" + Roster(keys).encode()
    assert Roster(keys).digest == hashlib.sha256(content).hexdigest()


def test_a_client_is_found_by_its_index() -> None:
    assert [roster().verify_key_bytes(client) for client in range(REVOKED)] == [
        key_of(client) for client in range(REVOKED)
    ]


@pytest.mark.parametrize("client", [-1, CLIENTS, 2**32 - 1, 2**40])
def test_an_index_beyond_the_roster_is_unknown(client: int) -> None:
    with pytest.raises(UnknownClient):
        roster().verify_key_bytes(client)
    with pytest.raises(UnknownClient):
        roster().with_revoked([client])


def test_a_revoked_client_is_told_from_an_unknown_one() -> None:
    with pytest.raises(RevokedClient):
        roster().verify_key_bytes(REVOKED)
    assert roster().enrolled().tolist() == list(range(REVOKED))
    assert list(roster().enrolled_set) == list(range(REVOKED))


def test_keys_are_looked_up_together() -> None:
    keys = [client_key(4).verify_key, signing_key("stranger").verify_key, VerifyKey(bytes(32))]
    assert roster().indices(keys) == [4, None, None]


def test_new_clients_take_the_next_indices_and_never_a_revoked_ones() -> None:
    grown = roster().with_enrolled([signing_key("newcomer").verify_key])
    assert len(grown) == CLIENTS + 1
    assert grown.indices([signing_key("newcomer").verify_key]) == [CLIENTS]
    with pytest.raises(RevokedClient):
        grown.verify_key_bytes(REVOKED)


def test_a_key_is_enrolled_once() -> None:
    with pytest.raises(ValueError, match="share a key"):
        roster().with_enrolled([client_key(3).verify_key])
    with pytest.raises(MalformedDocument):
        Roster.decode(MAGIC + bytes([2, 0, 0, 0]) + key_of(1) * 2)


def test_many_clients_may_be_revoked() -> None:
    assert len(roster(revoked=(1, 2, 3)).enrolled_set) == CLIENTS - 3


@given(rosters, st.data())
def test_a_roster_file_cut_short_is_refused(example: Roster, data: st.DataObject) -> None:
    content = example.encode()
    with pytest.raises(MalformedDocument):
        Roster.decode(content[: data.draw(st.integers(0, len(content) - 1))])
    with pytest.raises(MalformedDocument):
        Roster.decode(content + b"\0")


@pytest.mark.parametrize("position", range(16))
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
    later = start.with_enrolled([signing_key("newcomer").verify_key]).with_revoked([5, 7])
    assert start.follows(start)
    assert later.follows(start)
    assert roster().follows(Roster(b""))


@pytest.mark.parametrize(
    "keys",
    [
        key_of(0),  # shorter
        key_of(1) + key_of(0) + bytes(32),  # indices exchanged
        key_of(0) + key_of(3) + bytes(32),  # an index given to another client
        key_of(0) + key_of(1) + key_of(2),  # a revocation taken back
    ],
    ids=["shorter", "exchanged", "reassigned", "un-revoked"],
)
def test_a_roster_that_does_anything_else_does_not_follow(keys: bytes) -> None:
    assert not Roster(keys).follows(Roster(key_of(0) + key_of(1) + bytes(32)))


@pytest.mark.slow
def test_a_million_clients_are_decoded_and_a_shared_key_among_them_is_found() -> None:
    rows = np.zeros((1_000_000, 4), "<u8")
    rows[:, 3] = np.arange(1, 1_000_001)  # keys that differ in their last bytes only
    content = MAGIC + (1_000_000).to_bytes(4, "little") + rows.tobytes()
    assert len(Roster.decode(content)) == 1_000_000
    rows[999_999] = rows[17]
    with pytest.raises(MalformedDocument, match="share a key"):
        Roster.decode(MAGIC + (1_000_000).to_bytes(4, "little") + rows.tobytes())


def test_a_million_revoked_clients_share_no_key() -> None:
    content = MAGIC + (1_000_000).to_bytes(4, "little") + bytes(32_000_000)
    assert len(Roster.decode(content).enrolled_set) == 0


def test_a_key_has_one_index_for_ever() -> None:
    """Under another one its client would begin with nothing spent."""
    start = roster(revoked=())
    key = client_key(5).verify_key
    at_once = start.with_revoked([5]).with_enrolled([key])
    assert at_once.enrols_again(start)
    assert not at_once.follows(start)
    revoked = start.with_revoked([5])
    later = revoked.with_enrolled([signing_key("newcomer").verify_key]).with_enrolled([key])
    assert later.enrols_again(start)
    assert not later.enrols_again(revoked)  # which no longer knows the key
    assert not revoked.with_enrolled([signing_key("newcomer").verify_key]).enrols_again(start)

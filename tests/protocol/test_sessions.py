"""Sessions: keys that are stepped forward, and envelopes that open nowhere but in their place."""

from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shoal_protocol.sharing.session_envelope import (
    SessionHeader,
    SessionWrapping,
    is_under_session,
    parse_under_session,
    seed_for,
    share_digest,
    wrap,
)
from shoal_protocol.sharing.sessions import (
    advance,
    derive,
    first_key,
    hour_for,
    hour_of,
    open_session,
)
from shoal_protocol.sharing.shares import Share, ShareKind
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.service_errors import RefusedOpening, UnopenableCiphertext
from tests.world.examples import OPENED_AT, SPEC, box_private_key, envelopes, random_bytes, seed
from tests.world.session_examples import (
    HOLDER,
    HOUR_KEY,
    KEY,
    NUMBER,
    OPENING,
    PREKEY,
    PREKEY_PRIVATE,
    SHARES,
    prekey,
    session_header,
)

MANIFEST = SPEC.manifest


def wrapped(wrapping: SessionWrapping, **changes: object) -> bytes:
    header = replace(session_header(wrapping), **changes)
    share = SHARES[wrapping]
    if wrapping is SessionWrapping.NOTICE:
        share = Share(ShareKind.SEED, seed_for(header, HOUR_KEY, manifest=MANIFEST))
    return wrap(share, header, key=HOUR_KEY, manifest=MANIFEST)


@pytest.mark.parametrize("wrapping", SessionWrapping)
def test_a_node_reads_the_share_that_was_wrapped(wrapping: SessionWrapping) -> None:
    encoded = wrapped(wrapping)
    assert is_under_session(encoded)
    envelope = parse_under_session(encoded)
    assert envelope.header == session_header(wrapping)
    assert envelope.open(HOUR_KEY, manifest=MANIFEST) == SHARES[wrapping]


def test_a_notice_is_small_and_holds_nothing_of_its_seed() -> None:
    encoded = wrapped(SessionWrapping.NOTICE)
    assert len(encoded) == 80
    assert SHARES[SessionWrapping.NOTICE].payload not in encoded


def test_an_envelope_in_a_sealed_box_is_not_taken_for_one_under_a_session() -> None:
    assert [is_under_session(each) for each in envelopes(HOLDER)] == [False] * 3


@pytest.mark.parametrize("wrapping", SessionWrapping)
@given(data=st.data())
def test_no_bit_can_change(wrapping: SessionWrapping, data: st.DataObject) -> None:
    encoded = bytearray(wrapped(wrapping))
    bit = data.draw(st.integers(0, 8 * len(encoded) - 1))
    encoded[bit // 8] ^= 1 << bit % 8
    changed = bytes(encoded)
    if is_under_session(changed):
        with pytest.raises(ProtocolError):
            parse_under_session(changed).open(HOUR_KEY, manifest=MANIFEST)


@pytest.mark.parametrize("wrapping", SessionWrapping)
@pytest.mark.parametrize(
    "elsewhere",
    [{"holder": 5}, {"node": 0}, {"number": 1}, {"round_id": "0" * 64}, {"answer": bytes(16)}],
    ids=str,
)
def test_a_ciphertext_opens_only_under_its_header(
    wrapping: SessionWrapping, elsewhere: dict[str, object]
) -> None:
    moved = replace(session_header(wrapping), **elsewhere).encode() + wrapped(wrapping)[64:]
    with pytest.raises(UnopenableCiphertext):
        parse_under_session(moved).open(HOUR_KEY, manifest=MANIFEST)


@pytest.mark.parametrize("wrapping", SessionWrapping)
def test_a_ciphertext_opens_only_in_its_round_and_manifest(wrapping: SessionWrapping) -> None:
    envelope = parse_under_session(wrapped(wrapping))
    for key, manifest in ((HOUR_KEY, seed("other").hex()), (seed("other"), MANIFEST)):
        with pytest.raises(UnopenableCiphertext):
            envelope.open(key, manifest=manifest)


def test_each_header_has_keys_of_its_own_for_its_seal_and_its_stream() -> None:
    headers = [
        session_header(wrapping, node) for wrapping in SessionWrapping for node in range(3)
    ] + [replace(session_header(SessionWrapping.NOTICE), answer=bytes([n]) * 16) for n in range(3)]
    keys = {seed_for(header, HOUR_KEY, manifest=MANIFEST) for header in headers}
    sealing = {wrapped(each.wrapping, node=each.node, answer=each.answer)[-16:] for each in headers}
    assert len(keys) == len(sealing) == len(headers)


def test_another_answer_has_another_seed() -> None:
    """A machine set back to a snapshot makes another vector, so another answer id."""
    one = session_header(SessionWrapping.NOTICE)
    assert seed_for(one, HOUR_KEY, manifest=MANIFEST) != seed_for(
        replace(one, answer=bytes(16)), HOUR_KEY, manifest=MANIFEST
    )


def test_a_share_has_one_digest_whatever_it_is_wrapped_in() -> None:
    seed_share = SHARES[SessionWrapping.NOTICE]
    explicit = wrap(
        seed_share, session_header(SessionWrapping.SEED), key=seed("later"), manifest=MANIFEST
    )
    opened = parse_under_session(explicit).open(seed("later"), manifest=MANIFEST)
    answer = session_header(SessionWrapping.SEED).answer
    assert share_digest(SPEC.digest, answer, opened) == share_digest(
        SPEC.digest, answer, seed_share
    )
    assert share_digest(SPEC.digest, bytes(16), seed_share) != share_digest(
        SPEC.digest, answer, seed_share
    )


def test_a_notice_of_another_seed_is_not_made() -> None:
    with pytest.raises(ValueError, match="follows from its session"):
        wrap(
            SHARES[SessionWrapping.SEED],
            session_header(SessionWrapping.NOTICE),
            key=HOUR_KEY,
            manifest=MANIFEST,
        )


def test_the_chain_only_goes_forward() -> None:
    assert advance(advance(KEY, 2), 3) == advance(KEY, 5)
    assert len({advance(KEY, steps) for steps in range(50)}) == 50
    with pytest.raises(ValueError, match="back"):
        advance(KEY, -1)


def test_a_round_has_the_key_of_the_hour_in_which_the_later_of_round_and_session_began() -> None:
    assert hour_for(NUMBER, OPENED_AT) == hour_of(OPENED_AT) == NUMBER // 3600 + 2
    assert hour_for(NUMBER, OPENED_AT - timedelta(hours=9)) == NUMBER // 3600


def test_keys_are_derived_by_rfc_5869() -> None:
    expanded = HKDFExpand(SHA256(), 32, b"shoal/v1/session_next\n").derive(KEY)
    assert derive(KEY, b"next") == expanded == advance(KEY, 1)


def test_both_sides_of_an_opening_have_the_same_key() -> None:
    privates = [seed(f"prekey {node}") for node in range(3)]
    prekeys = [prekey(private, node) for node, private in enumerate(privates)]
    opening, keys = open_session(
        prekeys, holder=HOLDER, number=NUMBER, previous=None, random_bytes=random_bytes("three")
    )
    found = [
        first_key(opening, own, private) for own, private in zip(prekeys, privates, strict=True)
    ]
    assert found == [keys[each.node] for each in prekeys]
    assert len(set(found)) == 3


@pytest.mark.parametrize("field, value", [("holder", 5), ("number", NUMBER + 1)])
def test_a_sealed_key_opens_only_for_its_opening(field: str, value: int) -> None:
    assert first_key(OPENING, PREKEY, PREKEY_PRIVATE) == KEY
    with pytest.raises(RefusedOpening):
        first_key(OPENING.model_copy(update={field: value}), PREKEY, PREKEY_PRIVATE)


def test_the_nodes_long_lived_key_opens_no_session() -> None:
    with pytest.raises(RefusedOpening):
        first_key(OPENING, PREKEY, box_private_key(2))


@pytest.mark.parametrize("lifetime", [timedelta(minutes=59), timedelta(days=1, seconds=1)])
def test_a_prekey_lives_an_hour_to_a_day(lifetime: timedelta) -> None:
    fields = PREKEY.model_dump() | {"valid_until": PREKEY.valid_from + lifetime}
    with pytest.raises(ValidationError):
        type(PREKEY).model_validate(fields)


def test_a_weak_prekey_is_the_callers_fault() -> None:
    weak = PREKEY.model_copy(update={"box_key": "00" * 32})
    with pytest.raises(ValueError, match="usable"):
        open_session([weak], holder=1, number=1, previous=None, random_bytes=bytes)


def test_a_header_needs_a_whole_answer_id() -> None:
    short = SessionHeader(SessionWrapping.SEED, 0, 0, 1, SPEC.digest, b"short")
    with pytest.raises(ValueError, match="16 bytes"):
        short.encode()

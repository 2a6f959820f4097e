"""The receipt query: what is asked comes out as it went in, and nothing else is taken for one."""

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.wire.errors import MalformedDocument
from shoal_protocol.wire.receipt_query import (
    ENTRY_BYTES,
    MOST_ENTRIES,
    decode_answer,
    decode_query,
    encode_answer,
    encode_query,
)


def test_the_bytes_are_those_of_the_specification() -> None:
    digest = hashlib.sha256(b"an envelope").digest()
    assert encode_query([(0x0102, digest)]) == b"\x02\x01\x00\x00" + digest
    answer = [True, False, False, True, False, False, False, False, True]
    assert base64.b64decode(encode_answer(answer)) == bytes([0b1001, 0b1])


def test_a_query_may_be_as_long_as_the_specification_says_and_no_longer() -> None:
    assert len(decode_query(bytes(MOST_ENTRIES * ENTRY_BYTES))) == MOST_ENTRIES
    with pytest.raises(MalformedDocument):
        decode_query(bytes((MOST_ENTRIES + 1) * ENTRY_BYTES))


@given(st.binary(min_size=1, max_size=100).filter(lambda body: len(body) % ENTRY_BYTES))
def test_a_query_that_is_cut_short_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedDocument):
        decode_query(body)


@pytest.mark.parametrize(
    "answer",
    [
        *(None, 3, b"AQ==", "AQ", "*", "A Q==", ""),
        base64.b64encode(bytes(3)).decode(),  # more bytes than bits were asked for
        base64.b64encode(b"\0\xfe").decode(),  # bits behind the last entry
    ],
)
def test_an_answer_without_one_bit_for_each_entry_is_refused(answer: object) -> None:
    with pytest.raises(MalformedDocument):
        decode_answer(answer, 9)

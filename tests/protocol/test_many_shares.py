"""What is computed for many shares at once is what is computed for each by itself."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.sharing import shamir, summation
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing, ThresholdSharing
from shoal_protocol.sharing.shamir import MODULUS
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind, key_stream, read_words
from tests.world.adding import added
from tests.world.examples import DIMENSION, seed

NAME = b"twelve bytes"
THRESHOLD = ThresholdSharing(threshold=2)
LENGTHS = [1, 7, 8, 9, 66, summation.SHORT, summation.SHORT + 1]


def seeds(count: int) -> bytes:
    return b"".join(seed(f"stream {number}") for number in range(count))


@pytest.mark.parametrize("length", LENGTHS)
def test_many_streams_are_those_of_a_library(length: int) -> None:
    together = 4096 // -(-length // 8)
    for count in (0, 1, together - 1, together + 1):
        found = [row for some in summation.streams(seeds(count), NAME, length) for row in some]
        assert len(found) == count
        for number in {0, 1, count // 2, count - 1} & set(range(count)):
            expected = read_words(key_stream(seed(f"stream {number}"), NAME), length)
            assert np.array_equal(found[number], expected)


def test_a_seed_that_is_cut_short_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        next(summation.streams(bytes(SEED_BYTES + 1), NAME, 1))


@pytest.mark.parametrize("scheme", [ADDITIVE, THRESHOLD])
@pytest.mark.parametrize("length", [3, 200])
@pytest.mark.parametrize("count", [1, 40])
def test_packed_shares_add_up_to_what_they_do_one_by_one(
    scheme: Sharing, length: int, count: int
) -> None:
    made = [Share(ShareKind.SEED, seed(f"stream {number}")) for number in range(count)]
    words = [read_words(key_stream(seed(f"vector {n}"), NAME), length) for n in range(count)]
    if scheme is THRESHOLD:
        words = [each % np.uint64(MODULUS) for each in words]
    vectors = [Share(ShareKind.VECTOR, each.tobytes()) for each in words]
    for shares in (made, vectors):
        payloads = b"".join(each.payload for each in shares)
        found = summation.add_packed(scheme, shares[0].kind, payloads, length)
        assert np.array_equal(found, added(scheme, shares, length))


def test_a_word_that_is_no_residue_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in 2**61 is: here a stream is given one."""
    honest = next(summation.streams(seeds(3), shamir.STREAM, DIMENSION)).copy()
    honest[1, 2] = np.uint64(MODULUS)
    passed_over = np.arange(DIMENSION, dtype=np.uint64)
    monkeypatch.setattr(summation, "streams", lambda *_: iter([honest]))
    monkeypatch.setattr(shamir, "expand", lambda given, _: {seed("stream 1"): passed_over}[given])
    found = summation.add_packed(THRESHOLD, ShareKind.SEED, seeds(3), DIMENSION)
    rows = [honest[0] & np.uint64(MODULUS), passed_over, honest[2] & np.uint64(MODULUS)]
    assert np.array_equal(found, reduce(shamir.plus, rows))


@given(st.lists(st.sampled_from([0, 1, MODULUS // 2, MODULUS - 1]), min_size=1, max_size=200))
def test_rows_of_residues_add_up_in_the_field(values: list[int]) -> None:
    rows = np.array(values, np.uint64)[:, None]
    assert shamir.sum_of_rows(rows).tolist() == [sum(values) % MODULUS]

"""What is computed for many shares at once is what is computed for each by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.sharing import shamir, summation
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing, ThresholdSharing
from shoal_protocol.sharing.shamir import MODULUS
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind, key_stream, read_words
from tests.world.adding import added
from tests.world.examples import seed

NAME = b"twelve bytes"
THRESHOLD = ThresholdSharing(threshold=2)


@pytest.mark.parametrize("scheme", [ADDITIVE, THRESHOLD])
def test_a_seed_that_is_cut_short_is_refused(scheme: Sharing) -> None:
    with pytest.raises(ValueError):
        summation.add_packed(scheme, ShareKind.SEED, bytes(SEED_BYTES + 1), 1)


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


@given(st.lists(st.sampled_from([0, 1, MODULUS // 2, MODULUS - 1]), min_size=1, max_size=200))
def test_rows_of_residues_add_up_in_the_field(values: list[int]) -> None:
    rows = np.array(values, np.uint64)[:, None]
    assert shamir.sum_of_rows(rows).tolist() == [sum(values) % MODULUS]

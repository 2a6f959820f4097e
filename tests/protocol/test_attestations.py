"""Holdings, votes and cohorts: all nodes derive the same cohort and name it by one digest."""

import hashlib

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_protocol.attestations import (
    AbandonmentReason,
    Holdings,
    cohort_digest,
    cohort_of,
)
from shoal_protocol.encoding import decode_uint64, encode_clients
from shoal_protocol.errors import MalformedDocument
from shoal_protocol.ring import from_ring
from shoal_protocol.sharing import AdditiveSharing
from tests.protocol.examples import (
    COHORT,
    CONSORTIUM,
    NODES,
    RESULT,
    SPEC,
    TOTAL,
    partial_sum,
    seed,
)
from tests.strategies import client_sets

ROUND = SPEC.digest


def holdings(clients: set[int], node: int = 0) -> Holdings:
    return Holdings(
        manifest=CONSORTIUM.digest,
        round=ROUND,
        node=f"compute-{node}",
        clients=encode_clients(clients),
        count=len(clients),
    )


@given(st.lists(client_sets, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_cohort_is_the_intersection_in_whatever_order_holdings_arrive(sets, random) -> None:
    frozen = [holdings(clients, node).held() for node, clients in enumerate(sets)]
    expected = set.intersection(*sets)
    assert set(cohort_of(frozen)) == expected
    random.shuffle(frozen)
    assert set(cohort_of([*frozen, frozen[0]])) == expected


@given(client_sets, st.randoms(use_true_random=False))
def test_a_cohorts_digest_depends_on_its_members_only(clients, random) -> None:
    shuffled = list(clients)
    random.shuffle(shuffled)
    assert cohort_digest(ROUND, shuffled) == cohort_digest(ROUND, BitMap(sorted(clients)))


@given(client_sets, client_sets)
def test_different_cohorts_have_different_digests(one: set[int], other: set[int]) -> None:
    assert (cohort_digest(ROUND, one) == cohort_digest(ROUND, other)) == (one == other)


def test_a_cohorts_digest_is_bound_to_its_round() -> None:
    assert cohort_digest(ROUND, COHORT) != cohort_digest(seed("another round").hex(), COHORT)


def test_a_cohorts_digest_is_over_prefix_round_and_ascending_little_endian_indices() -> None:
    content = b"shoal/v1/cohort\n" + bytes.fromhex(ROUND) + bytes.fromhex("0100000000010000")
    assert cohort_digest(ROUND, [256, 1]) == hashlib.sha256(content).hexdigest()


def test_holdings_that_are_no_bitmap_are_refused_when_they_are_read() -> None:
    broken = holdings({1}).model_copy(update={"clients": "AAAA"})
    with pytest.raises(MalformedDocument):
        broken.held()


def test_the_examples_partial_sums_add_up_to_the_result() -> None:
    sums = [decode_uint64(partial_sum(node).values) for node in range(NODES)]
    total = from_ring(AdditiveSharing().combine(sums))
    assert np.array_equal(total, TOTAL)
    assert np.array_equal(from_ring(decode_uint64(RESULT.values)), TOTAL)


def test_a_reason_is_one_of_the_list_and_short() -> None:
    AbandonmentReason(code="votes_missing", detail="x" * 300)
    with pytest.raises(pydantic.ValidationError):
        AbandonmentReason(code="votes_missing", detail="x" * 301)
    with pytest.raises(pydantic.ValidationError):
        AbandonmentReason(code="bad_luck")  # type: ignore[arg-type]

"""Threshold sharing: any t shares give the secret back, and any t - 1 say nothing of it."""

import itertools
from collections import Counter
from functools import reduce
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.sharing import shamir, summation
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.sharing.shamir import LARGEST_INTEGER, MODULUS
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind
from shoal_protocol.wire.service_errors import WrongShare
from tests.world.adding import added
from tests.world.examples import random_bytes
from tests.world.strategies import clients, seeds

field_vectors = st.lists(st.integers(0, MODULUS - 1), min_size=1, max_size=12).map(
    lambda values: np.array(values, np.uint64)
)


@st.composite
def settings(draw: Any) -> tuple[ThresholdSharing, int]:
    """Return a scheme and a number of nodes, of which it needs more than half."""
    nodes = draw(st.integers(2, 7))
    return ThresholdSharing(threshold=draw(st.integers(max(2, nodes // 2 + 1), nodes))), nodes


def values_of(
    scheme: ThresholdSharing, secret: np.ndarray, *, holder: int, nodes: int, label: str
) -> dict[int, np.ndarray]:
    """Return each node's share as residues, shape (d,), by the node's index."""
    shares = scheme.split(secret, holder=holder, nodes=nodes, random_bytes=random_bytes(label))
    return {node: added(scheme, [share], secret.size) for node, share in enumerate(shares)}


@given(settings(), field_vectors, clients, seeds, st.data())
def test_any_t_shares_give_back_the_secret(setting, secret, client, fixed, data) -> None:
    scheme, nodes = setting
    values = values_of(scheme, secret, holder=client, nodes=nodes, label=fixed.hex())
    size = data.draw(st.integers(scheme.threshold, nodes))
    chosen = data.draw(st.permutations(range(nodes)))[:size]
    combined = summation.combine(scheme, {node: values[node] for node in chosen}, nodes=nodes)
    assert combined is not None
    assert combined.total.tolist() == secret.tolist()
    assert not combined.wrong


@pytest.mark.parametrize(("threshold", "nodes"), [(2, 2), (2, 3), (3, 4), (3, 5), (4, 5), (5, 7)])
def test_every_choice_of_t_nodes_gives_the_sum_over_clients(threshold: int, nodes: int) -> None:
    scheme, dimension = ThresholdSharing(threshold=threshold), 9
    secrets = [np.arange(9, dtype=np.int64) * 10**15 - client * 10**16 for client in range(11)]
    draw = random_bytes("sum over clients")
    of_clients = [
        scheme.split(scheme.encode(secret), holder=client, nodes=nodes, random_bytes=draw)
        for client, secret in enumerate(secrets)
    ]
    sums = {
        node: added(scheme, [shares[node] for shares in of_clients], dimension)
        for node in range(nodes)
    }
    for chosen in itertools.combinations(range(nodes), threshold):
        combined = summation.combine(scheme, {node: sums[node] for node in chosen}, nodes=nodes)
        assert combined is not None
        assert summation.decode(scheme, combined.total).tolist() == np.sum(secrets, axis=0).tolist()


@given(settings(), field_vectors, clients)
def test_t_minus_one_nodes_get_seeds_and_the_others_vectors(setting, secret, client) -> None:
    scheme, nodes = setting
    shares = scheme.split(secret, holder=client, nodes=nodes, random_bytes=random_bytes("any"))
    kinds = Counter(share.kind for share in shares)
    assert kinds[ShareKind.SEED] == scheme.threshold - 1
    assert shares[client % nodes].kind is ShareKind.VECTOR
    for node, share in enumerate(shares):
        due = {"holder": client, "node": node, "nodes": nodes, "dimension": secret.size}
        assert share.kind is scheme.kind_for(holder=client, node=node, nodes=nodes)
        assert len(share.payload) == (
            SEED_BYTES if share.kind is ShareKind.SEED else 8 * secret.size
        )
        summation.check(scheme, share, **due)
        with pytest.raises(WrongShare, match="length"):
            summation.check(scheme, Share(share.kind, share.payload + b"\0"), **due)
        other = ShareKind.VECTOR if share.kind is ShareKind.SEED else ShareKind.SEED
        with pytest.raises(WrongShare, match="other kind"):
            summation.check(scheme, Share(other, share.payload), **due)


@given(st.lists(st.integers(MODULUS, 2**64 - 1), min_size=1, max_size=3), st.integers(0, 3))
def test_a_vector_with_a_word_that_is_no_residue_is_refused(words, before) -> None:
    scheme = ThresholdSharing(threshold=2)
    vector = np.array([MODULUS - 1] * before + words, np.uint64)
    share = Share(ShareKind.VECTOR, vector.tobytes())
    with pytest.raises(WrongShare, match="residue"):
        summation.check(scheme, share, holder=0, node=0, nodes=3, dimension=len(vector))
    with pytest.raises(WrongShare, match="residue"):
        summation.check_residues(scheme, vector)


def test_the_largest_residue_is_accepted() -> None:
    summation.check_residues(ThresholdSharing(threshold=2), np.array([0, MODULUS - 1], np.uint64))


# What t - 1 shares say


@given(settings(), field_vectors, clients, seeds, st.data())
def test_t_minus_one_shares_fit_every_secret_with_exactly_one_polynomial(
    setting, secret, client, fixed, data
) -> None:
    # Through t points of distinct x there is exactly one polynomial of degree t - 1. So for each
    # candidate secret there is one, it gives one value at every other node, and with these the
    # nodes would recover the candidate.
    scheme, nodes = setting
    other = np.array(
        data.draw(
            st.lists(st.integers(0, MODULUS - 1), min_size=secret.size, max_size=secret.size)
        ),
        np.uint64,
    )
    values = values_of(scheme, secret, holder=client, nodes=nodes, label=fixed.hex())
    coalition = data.draw(st.permutations(range(nodes)))[: scheme.threshold - 1]
    known = {0: other, **{node + 1: values[node] for node in coalition}}
    imagined = {node: values[node] for node in coalition}
    for node in set(range(nodes)) - set(coalition):
        weights = shamir.weights_at(node + 1, known)
        terms = [
            shamir.times(vector, weight)
            for vector, weight in zip(known.values(), weights, strict=True)
        ]
        imagined[node] = reduce(shamir.plus, terms)
        if secret.tolist() == other.tolist():
            assert imagined[node].tolist() == values[node].tolist()
    combined = summation.combine(scheme, imagined, nodes=nodes)
    assert combined is not None
    assert combined.total.tolist() == other.tolist()


@given(settings(), field_vectors, field_vectors, clients)
def test_no_seed_depends_on_the_secret(setting, one, other, client) -> None:
    scheme, nodes = setting

    def seeds_of(secret: np.ndarray) -> list[bytes]:
        shares = scheme.split(
            secret, holder=client, nodes=nodes, random_bytes=random_bytes("the same")
        )
        return [share.payload for share in shares if share.kind is ShareKind.SEED]

    assert seeds_of(one) == seeds_of(other)


# Wrong sums


def sums_of(scheme: ThresholdSharing, nodes: int, dimension: int = 4) -> dict[int, np.ndarray]:
    secret = scheme.encode(np.arange(dimension, dtype=np.int64) - 2)
    return values_of(scheme, secret, holder=3, nodes=nodes, label="wrong sums")


def wrong(vector: np.ndarray, at: int, by: int) -> np.ndarray:
    changed = vector.copy()
    changed[at] = (int(changed[at]) + by) % MODULUS
    return changed


@given(
    st.sampled_from([(3, 5), (4, 6), (4, 7), (5, 7)]),
    st.integers(0, 3),
    st.integers(1, MODULUS - 1),
    st.data(),
)
def test_one_wrong_sum_among_t_plus_two_is_named_and_left_out(setting, at, by, data) -> None:
    threshold, nodes = setting
    scheme = ThresholdSharing(threshold=threshold)
    sums = sums_of(scheme, nodes)
    right = summation.combine(scheme, sums, nodes=nodes)
    assert right is not None
    size = data.draw(st.integers(threshold + 2, nodes))
    chosen = data.draw(st.permutations(range(nodes)))[:size]
    liar = data.draw(st.sampled_from(chosen))
    given_sums = {node: sums[node] for node in chosen} | {liar: wrong(sums[liar], at, by)}
    combined = summation.combine(scheme, given_sums, nodes=nodes)
    assert combined is not None
    assert combined.wrong == {liar}
    assert combined.total.tolist() == right.total.tolist()


@given(st.integers(0, 3), st.integers(1, MODULUS - 1), st.integers(0, 2))
def test_one_wrong_sum_among_t_plus_one_is_seen_but_not_named(at, by, liar) -> None:
    scheme = ThresholdSharing(threshold=2)
    sums = sums_of(scheme, 3)
    assert summation.combine(scheme, sums | {liar: wrong(sums[liar], at, by)}, nodes=3) is None


def test_of_exactly_t_sums_none_can_be_told_to_be_wrong() -> None:
    scheme = ThresholdSharing(threshold=2)
    sums = sums_of(scheme, 3)
    right = summation.combine(scheme, sums, nodes=3)
    lied = summation.combine(scheme, {0: sums[0], 1: wrong(sums[1], 0, 1)}, nodes=3)
    assert lied is not None
    assert right is not None
    assert lied.total.tolist() != right.total.tolist()


@pytest.mark.parametrize("chosen", [[], [0], [0, 3], [0, 1, 3]], ids=str)
def test_too_few_sums_or_one_of_no_node_are_the_callers_fault(chosen: list[int]) -> None:
    scheme = ThresholdSharing(threshold=2)
    with pytest.raises(ValueError, match="are needed"):
        summation.combine(scheme, dict.fromkeys(chosen, np.zeros(1, np.uint64)), nodes=3)


def test_fewer_nodes_than_the_threshold_are_the_callers_fault() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        ThresholdSharing(threshold=3).split(
            np.zeros(1, np.uint64), holder=0, nodes=2, random_bytes=bytes
        )


@given(st.lists(st.integers(0, MODULUS - 1), min_size=1, max_size=9), st.data())
def test_what_is_added_to_a_sum_can_be_taken_away(values, data) -> None:
    scheme = ThresholdSharing(threshold=2)
    one = np.array(values, np.uint64)
    other = np.array(data.draw(st.permutations(values)), np.uint64)
    assert summation.minus(scheme, summation.plus(scheme, one, other), other).tolist() == values


def test_an_integer_beyond_the_field_is_the_callers_fault() -> None:
    with pytest.raises(ValueError, match="too large"):
        ThresholdSharing(threshold=2).encode(np.array([LARGEST_INTEGER + 1], np.int64))


# What may be asked for


@pytest.mark.parametrize(
    ("threshold", "nodes", "minimum", "reason"),
    [
        (2, 3, None, "additive sharing only"),
        (2, 3, 3, "at least 3"),
        (2, 4, 2, "more than half"),
        (2, 5, 2, "more than half"),
        (4, 3, 2, "at most all"),
        (2, 3, 2, None),
        (3, 3, 2, None),
        (3, 4, 2, None),
        (3, 5, 3, None),
    ],
)
def test_a_threshold_is_what_the_policy_allows_and_more_than_half(
    threshold: int, nodes: int, minimum: int | None, reason: str | None
) -> None:
    refusal = ThresholdSharing(threshold=threshold).refusal(
        nodes=nodes, minimum_threshold=minimum, minimum_committee=None
    )
    assert (refusal is None) == (reason is None)
    assert reason is None or reason in str(refusal)

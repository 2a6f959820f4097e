"""Secret sharing: all shares give the secret back, and any fewer say nothing of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from shoal_protocol.sharing import summation
from shoal_protocol.sharing.schemes import ADDITIVE, expand
from shoal_protocol.sharing.shares import SEED_BYTES, Share, ShareKind, from_ring, to_ring
from shoal_protocol.wire.service_errors import WrongShare
from tests.world.adding import added
from tests.world.examples import random_bytes
from tests.world.strategies import clients, node_counts, ring_vectors, seeds, signed_vectors

SHARING = ADDITIVE


def as_vector(share: Share, dimension: int) -> np.ndarray:
    return added(SHARING, [share], dimension)


def combined(sums: list[np.ndarray]) -> np.ndarray:
    return summation.combine(SHARING, dict(enumerate(sums)), nodes=len(sums)).total


@given(ring_vectors, clients, node_counts, seeds)
def test_all_shares_together_give_back_the_secret(secret, client, nodes, fixed) -> None:
    shares = SHARING.split(
        secret, holder=client, nodes=nodes, random_bytes=random_bytes(fixed.hex())
    )
    sums = [as_vector(share, secret.size) for share in shares]
    assert np.array_equal(combined(sums), secret)


@given(
    arrays.arrays(np.uint64, st.tuples(st.integers(1, 6), st.integers(1, 5))), node_counts, seeds
)
def test_partial_sums_over_clients_give_the_sum_of_their_secrets(secrets, nodes, fixed) -> None:
    draw = random_bytes(fixed.hex())
    dimension = secrets.shape[1]
    of_clients = [
        SHARING.split(secret, holder=client, nodes=nodes, random_bytes=draw)
        for client, secret in enumerate(secrets)
    ]
    sums = [
        added(SHARING, (shares[node] for shares in of_clients), dimension) for node in range(nodes)
    ]
    assert np.array_equal(combined(sums), secrets.sum(axis=0, dtype=np.uint64))


@given(ring_vectors, clients, node_counts)
def test_the_vector_goes_to_the_node_of_the_clients_index_and_seeds_to_the_others(
    secret, client, nodes
) -> None:
    shares = SHARING.split(secret, holder=client, nodes=nodes, random_bytes=random_bytes("any"))
    for node, share in enumerate(shares):
        vector_is_due = node == client % nodes
        assert share.kind is (ShareKind.VECTOR if vector_is_due else ShareKind.SEED)
        assert len(share.payload) == (8 * secret.size if vector_is_due else SEED_BYTES)
        summation.check(
            SHARING, share, holder=client, node=node, nodes=nodes, dimension=secret.size
        )
        with pytest.raises(WrongShare, match="length"):
            summation.check(
                SHARING,
                Share(share.kind, share.payload + b"\0"),
                holder=client,
                node=node,
                nodes=nodes,
                dimension=secret.size,
            )
        with pytest.raises(WrongShare, match="other kind"):
            summation.check(
                SHARING,
                share,
                holder=client + (1 if vector_is_due else node - client),
                node=node,
                nodes=nodes,
                dimension=secret.size,
            )


@given(ring_vectors, ring_vectors, clients, node_counts)
def test_no_seed_depends_on_the_secret(one, other, client, nodes) -> None:
    def seeds_of(secret: np.ndarray) -> list[bytes]:
        shares = SHARING.split(
            secret, holder=client, nodes=nodes, random_bytes=random_bytes("the same")
        )
        return [share.payload for share in shares if share.kind is ShareKind.SEED]

    assert seeds_of(one) == seeds_of(other)
    assert len(set(seeds_of(one))) == nodes - 1


@given(
    st.data(), ring_vectors, clients, st.integers(3, 6), st.integers(0, 4), st.binary(min_size=8)
)
def test_shares_with_the_vector_but_without_one_seed_fit_every_secret_equally_well(
    data, secret, client, nodes, missing, label
) -> None:
    # Given the other seeds, vector = secret - others - missing stream (mod 2**64): for each
    # candidate secret there is exactly one missing stream, and a uniform one hides which.
    other = data.draw(
        arrays.arrays(np.uint64, secret.size, elements=st.integers(0, 2**64 - 1)), label="other"
    )
    shares = SHARING.split(
        secret, holder=client, nodes=nodes, random_bytes=random_bytes(label.hex())
    )
    holders = [node for node in range(nodes) if node != client % nodes]
    hidden = holders[missing % len(holders)]
    seen = [as_vector(share, secret.size) for node, share in enumerate(shares) if node != hidden]
    would_be_missing = other - combined(seen)
    assert np.array_equal(combined([*seen, would_be_missing]), other)
    assert np.array_equal(would_be_missing + secret - other, as_vector(shares[hidden], secret.size))


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_a_seed_has_32_bytes(length: int) -> None:
    with pytest.raises(ValueError, match=r"key|32"):
        expand(bytes(length), 1)


@pytest.mark.parametrize("nodes", [-1, 0, 1])
def test_fewer_than_two_nodes_are_refused_for_the_only_share_would_be_the_secret(nodes) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        SHARING.split(np.zeros(1, np.uint64), holder=0, nodes=nodes, random_bytes=bytes)


@given(signed_vectors)
def test_integers_come_back_from_the_ring(values: np.ndarray) -> None:
    assert np.array_equal(from_ring(to_ring(values)), values)


@given(st.integers(2, 7), st.data())
def test_without_the_sum_of_every_node_there_is_no_total(nodes, data) -> None:
    missing = data.draw(st.integers(0, nodes - 1))
    sums = {node: np.zeros(1, np.uint64) for node in range(nodes) if node != missing}
    with pytest.raises(ValueError, match=f"of {nodes} Compute nodes"):
        summation.combine(SHARING, sums, nodes=nodes)

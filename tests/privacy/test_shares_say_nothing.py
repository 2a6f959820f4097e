"""Any M - 1 additive shares, and any t - 1 threshold shares, are independent of what is shared.

Why that is exact: docs/mathematics.md, theorems 3 and 4. Here the code is asked. Seeds come from
labels, so no verdict ever changes. Were they drawn anew, an honest scheme would fail any of these
tests with a probability below 2e-7: there are fewer than 2,000 p-values, each held to 1e-10. Weak
blinding, planted into the same code, is found each time.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import nacl.utils
import numpy as np
import pytest

from audit import scenarios
from audit.neighbours import worst_neighbours
from shoal_agent.data_holder import DataHolder
from shoal_protocol.sharing import schemes, shamir
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing, ThresholdSharing
from shoal_protocol.sharing.shares import SEED_BYTES, RandomBytes, Share
from tests.privacy.uniformity import bits_p, correlation_p, difference_p, p_values
from tests.world.adding import added
from tests.world.chance import fixed_bytes

LEVEL = 1e-10
NODES = 3
RUNS = 2_000  # one split each
LONG = 20_000  # coordinates of one split
RING, FIELD = 2**64, shamir.MODULUS
SCHEMES = [
    (ADDITIVE, NODES, NODES - 1),
    (ThresholdSharing(threshold=2), NODES, 1),
    (ThresholdSharing(threshold=3), 4, 2),
]
COALITIONS = [
    pytest.param(scheme, nodes, coalition, id=f"{scheme.scheme} {nodes} nodes, {coalition}")
    for scheme, nodes, size in SCHEMES
    for coalition in combinations(range(nodes), size)
]
QUERY = scenarios.matrix_in_a_ball()
FIRST, SECOND = (QUERY.encode(records) for records in worst_neighbours(QUERY))


def modulus_of(scheme: Sharing) -> int:
    return FIELD if scheme.modulus_bits == 61 else RING


def words_of(scheme: Sharing, share: Share, dimension: int) -> np.ndarray:
    """Return the residues that a share stands for."""
    return added(scheme, [share], dimension)


def seen(
    scheme: Sharing,
    nodes: int,
    coalition: Sequence[int],
    inputs: np.ndarray,
    random_bytes: RandomBytes,
    *,
    client: int = 0,
) -> list[np.ndarray]:
    """Return what a coalition sees of the first coordinate of many splits, one for each input."""
    found = []
    for values in inputs:
        shares = scheme.split(
            scheme.encode(values), holder=client, nodes=nodes, random_bytes=random_bytes
        )
        found.append([words_of(scheme, shares[node], len(values))[0] for node in coalition])
    return list(np.array(found, np.uint64).T)


def at_once(
    scheme: Sharing,
    nodes: int,
    coalition: Sequence[int],
    value: int,
    random_bytes: RandomBytes,
) -> list[np.ndarray]:
    """Return what a coalition sees of one long split of the same value everywhere."""
    inputs = np.full(LONG, value, np.int64)
    shares = scheme.split(scheme.encode(inputs), holder=0, nodes=nodes, random_bytes=random_bytes)
    return [words_of(scheme, shares[node], LONG) for node in coalition]


def smallest(named: Iterator[tuple[str, float]]) -> tuple[float, str]:
    return min((p, name) for name, p in named)


# Pitfalls 12 and 14: any M - 1 shares independent of the input, blinding uniform in the ring.


@pytest.mark.parametrize(("scheme", "nodes", "coalition"), COALITIONS)
def test_any_coalition_below_the_threshold_sees_uniform_independent_words(
    scheme: Sharing, nodes: int, coalition: tuple[int, ...]
) -> None:
    for value in (0, int(FIRST[0])):
        shares = at_once(
            scheme, nodes, coalition, value, fixed_bytes(f"{value} {nodes} {coalition}")
        )
        p, name = smallest(p_values(shares, modulus_of(scheme)))
        assert p > LEVEL, name


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "nodes", "coalition"), COALITIONS)
def test_any_coalition_below_the_threshold_sees_the_same_for_neighbouring_clients(
    scheme: Sharing, nodes: int, coalition: tuple[int, ...]
) -> None:
    worlds = [
        seen(scheme, nodes, coalition, np.tile(values, (RUNS, 1)), fixed_bytes(f"{k} {coalition}"))
        for k, values in enumerate((FIRST, SECOND))
    ]
    assert min(difference_p(worlds[0], worlds[1], scheme.modulus_bits)) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "nodes", "coalition"), COALITIONS)
def test_no_share_below_the_threshold_is_related_to_the_input(
    scheme: Sharing, nodes: int, coalition: tuple[int, ...]
) -> None:
    inputs = np.linspace(-(2.0**50), 2.0**50, RUNS).astype(np.int64)
    shares = seen(scheme, nodes, coalition, inputs[:, None], fixed_bytes(f"input {coalition}"))
    assert min(correlation_p(shares, inputs, modulus_of(scheme))) > LEVEL


def test_given_the_total_the_other_nodes_sums_are_uniform_whoever_added_what() -> None:
    # M - 1 nodes and the published total: what they know beyond the total are their own sums.
    draw = fixed_bytes("sums")
    for answers in ((FIRST, SECOND), (SECOND, FIRST)):  # of two clients; the total is the same
        runs = []
        for _ in range(RUNS):
            shares = [
                ADDITIVE.split(ADDITIVE.encode(each), holder=k, nodes=NODES, random_bytes=draw)
                for k, each in enumerate(answers)
            ]
            runs.append(
                [added(ADDITIVE, held, QUERY.dimension)[0] for held in zip(*shares, strict=True)]
            )
        *sums, _ = np.array(runs, np.uint64).T
        p, name = smallest(p_values(sums, RING))
        assert p > LEVEL, name


# Pitfall 14: weak shares. Each is planted into the code above, and found.


def bounded_masks(seed: bytes, dimension: int) -> np.ndarray:
    """Return masks within +-1e14 instead of the whole ring."""
    return additive_expand(seed, dimension) % np.uint64(2 * 10**14) - np.uint64(10**14)


def short_masks(seed: bytes, dimension: int) -> np.ndarray:
    """Return masks of 60 bits, which leave out half of the prime field."""
    return threshold_expand(seed, dimension) >> np.uint64(1)


def biased_masks(seed: bytes, dimension: int) -> np.ndarray:
    """Return words of 62 bits modulo 3 * 2^59, a modulus bias that every third residue has."""
    return threshold_expand(seed, dimension) * np.uint64(2) % np.uint64(3 * 2**59)


additive_expand, threshold_expand = schemes.expand, shamir.expand


def test_weak_shares_with_bounded_masks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemes, "expand", bounded_masks)
    shares = at_once(ADDITIVE, NODES, (0, 1), int(FIRST[0]), fixed_bytes("bounded"))
    assert smallest(p_values(shares, RING))[0] < LEVEL
    inputs = np.linspace(-(2.0**50), 2.0**50, RUNS).astype(np.int64)
    related = seen(ADDITIVE, NODES, (0, 1), inputs[:, None], fixed_bytes("bounded"))
    assert min(correlation_p(related, inputs, RING)) < LEVEL


def test_weak_shares_of_one_seed_for_all_nodes_are_found() -> None:
    def same_seed(size: int) -> bytes:
        return bytes(range(size))

    shares = at_once(ADDITIVE, 4, (1, 2, 3), int(FIRST[0]), same_seed)
    assert smallest(p_values(shares, RING))[0] < LEVEL


def test_weak_shares_of_one_seed_for_all_clients_are_found() -> None:
    def seeded(seed: int) -> Callable[[int], bytes]:
        return np.random.RandomState(seed).bytes

    inputs = np.linspace(-(2.0**50), 2.0**50, RUNS).astype(np.int64)
    vectors = [
        ADDITIVE.split(
            ADDITIVE.encode(np.array([value])), holder=0, nodes=NODES, random_bytes=seeded(1)
        )[0]
        for value in inputs
    ]
    words = np.array([words_of(ADDITIVE, vector, 1)[0] for vector in vectors])
    assert min(correlation_p([words], inputs, RING)) < LEVEL


@pytest.mark.parametrize("masks", [short_masks, biased_masks])
def test_weak_shares_whose_masks_are_not_uniform_in_the_field_are_found(
    masks: Callable[[bytes, int], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shamir, "expand", masks)
    for node in range(NODES):
        shares = at_once(
            ThresholdSharing(threshold=2), NODES, (node,), int(FIRST[0]), fixed_bytes("weak")
        )
        assert smallest(p_values(shares, FIELD))[0] < LEVEL


# What no statistic would show in a lifetime is shown exactly.


@pytest.mark.parametrize("residue", [0, 1, 2**60, FIELD - 1, FIELD // 3])
def test_each_residue_comes_from_exactly_eight_words_and_the_modulus_from_none(
    residue: int,
) -> None:
    # 2^64 = 8 (2^61 - 1) + 8: taken modulo p without rejection, eight residues would have nine.
    words = np.array([residue + high * 2**61 for high in range(8)], np.uint64)
    skipped = np.array([FIELD + high * 2**61 for high in range(8)], np.uint64)
    stream = iter(np.stack([skipped, words], axis=1).ravel())

    def read(count: int) -> np.ndarray:
        return np.array([next(stream) for _ in range(count)], np.uint64)

    assert np.all(shamir.uniform(read, 8) == residue)
    assert next(stream, None) is None  # all sixteen were read, and eight of them passed over


def test_seeds_come_from_the_operating_systems_generator() -> None:
    # 2^18 bits, each fair with a false alarm below 1e-10.
    assert DataHolder.__init__.__kwdefaults__["random_bytes"] is nacl.utils.random
    words = np.frombuffer(nacl.utils.random(8 * 4096), "<u8")
    assert bits_p(words, 64) > LEVEL
    assert len({nacl.utils.random(SEED_BYTES) for _ in range(1000)}) == 1000

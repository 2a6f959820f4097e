"""Committees: who shares with whom, what is summed, and that only all sums together tell."""

import itertools
from collections import Counter
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_protocol.privacy.job_costs import coalitions
from shoal_protocol.rounds.attestations import (
    Holdings,
    PartialSum,
    PartialSumReference,
    Result,
    StoredAnswers,
    Vote,
    asked_of,
    check_nodes,
    cohort_in,
    digest_in,
)
from shoal_protocol.rounds.outcomes import check_partial_sums
from shoal_protocol.rounds.round_audit import account_of
from shoal_protocol.sharing import committee_sums, summation
from shoal_protocol.sharing.schemes import AdditiveSharing, Sharing, ThresholdSharing
from shoal_protocol.sharing.shares import ShareKind
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.service_errors import RefusedResult, WrongCohort
from shoal_protocol.wire.vectors import encode_uint64
from tests.world import examples
from tests.world.adding import added
from tests.world.examples import PLACE, box_key, box_private_key, random_bytes

DIMENSION = 3
SCHEMES: list[tuple[Sharing, int]] = [
    (AdditiveSharing(committee=3), 5),
    (AdditiveSharing(committee=2), 6),
    (ThresholdSharing(committee=3, threshold=2), 5),
    (ThresholdSharing(committee=3, threshold=3), 6),
    (ThresholdSharing(committee=4, threshold=3), 7),
]
WITH_SCHEMES = pytest.mark.parametrize(("sharing", "nodes"), SCHEMES)
COHORT = "c0" * 32


@WITH_SCHEMES
def test_a_committee_is_nodes_in_a_row_and_all_have_the_same_load(
    sharing: Sharing, nodes: int
) -> None:
    shares: Counter[int] = Counter()
    vectors: Counter[int] = Counter()
    for holder in range(nodes * sharing.shares(nodes)):
        members = sharing.members(holder=holder, nodes=nodes)
        assert members == [(holder + place) % nodes for place in range(len(members))]
        kinds = [sharing.kind_for(holder=holder, node=node, nodes=nodes) for node in members]
        assert kinds.count(ShareKind.SEED) == sharing.opening(nodes) - 1
        shares.update(members)
        vectors.update(
            node for node, kind in zip(members, kinds, strict=True) if kind is ShareKind.VECTOR
        )
        for other in set(range(nodes)) - set(members):
            with pytest.raises(ValueError, match="not of the data holder's committee"):
                sharing.kind_for(holder=holder, node=other, nodes=nodes)
    assert len(shares) == len(vectors) == nodes
    assert len(set(shares.values())) == len(set(vectors.values())) == 1


def secret(holder: int) -> np.ndarray:
    return np.array([holder + 1, -(10**9) * (holder + 3), 7], np.int64)


def masked_sums(
    sharing: Sharing, nodes: int, among: tuple[int, ...], holders: list[int]
) -> dict[int, np.ndarray]:
    """Return the partial sums of the nodes `among` over the holders, as nodes make them."""
    shares: dict[int, dict[int, Any]] = {}
    for holder in holders:
        members = sharing.members(holder=holder, nodes=nodes)
        split = sharing.split(
            sharing.encode(secret(holder)),
            holder=holder,
            nodes=nodes,
            random_bytes=random_bytes(f"committees {holder}"),
        )
        shares[holder] = dict(zip(members, split, strict=True))
    found = {}
    for node in among:
        starts = committee_sums.starts(sharing, node=node, nodes=nodes)
        held = {
            start: added(
                sharing,
                [shares[each][node] for each in holders if each % nodes == start],
                DIMENSION,
            )
            for start in starts
        }
        total = np.sum(list(held.values()), axis=0, dtype=np.uint64)
        if sharing.scheme == "threshold":
            total = committee_sums.weighted(sharing, held, node=node, among=among, nodes=nodes)
        found[node] = summation.plus(sharing, total, mask(sharing, node, among))
    return found


def mask(sharing: Sharing, node: int, among: tuple[int, ...], cohort: str = COHORT) -> np.ndarray:
    return committee_sums.mask(
        sharing,
        {other: box_key(other) for other in among if other != node},
        node=node,
        box_private_key=box_private_key(node),
        cohort=cohort,
        dimension=DIMENSION,
    )


@WITH_SCHEMES
def test_whoever_is_lost_the_plain_sum_is_the_total_of_all_that_can_be_summed(
    sharing: Sharing, nodes: int
) -> None:
    opening = sharing.opening(nodes)
    for size in range(sharing.needed(nodes), nodes + 1):
        for among in itertools.combinations(range(nodes), size):
            holders = [
                holder
                for holder in range(2 * nodes)
                if len(set(sharing.members(holder=holder, nodes=nodes)) & set(among)) >= opening
            ]
            sums = masked_sums(sharing, nodes, among, holders)
            combined = summation.combine(sharing, sums, nodes=nodes)
            assert combined is not None
            total = summation.decode(sharing, combined.total)
            assert total.tolist() == np.sum([secret(each) for each in holders], axis=0).tolist()


def test_masks_hide_the_total_of_a_committee_that_shares_no_node_with_another() -> None:
    """Without them the first three nodes' sums would add up to the first data holder's answer."""
    sharing, nodes = AdditiveSharing(committee=3), 6
    sums = masked_sums(sharing, nodes, tuple(range(nodes)), [0, 3])
    first = np.sum([sums[node] for node in range(3)], axis=0, dtype=np.uint64)
    bare = np.sum(
        [
            summation.minus(sharing, sums[node], mask(sharing, node, tuple(range(nodes))))
            for node in range(3)
        ],
        axis=0,
        dtype=np.uint64,
    )
    assert summation.decode(sharing, bare).tolist() == secret(0).tolist()
    assert all(abs(value) > 2**55 for value in summation.decode(sharing, first).tolist())


@WITH_SCHEMES
def test_masks_of_two_cohorts_or_of_other_nodes_have_nothing_in_common(
    sharing: Sharing, nodes: int
) -> None:
    everybody = tuple(range(nodes))
    pairs = {
        (node, other, cohort): mask(sharing, node, (node, other), cohort).tobytes()
        for node, other in itertools.combinations(everybody, 2)
        for cohort in (COHORT, "c1" * 32)
    }
    assert len(set(pairs.values())) == len(pairs)
    total = np.zeros(DIMENSION, np.uint64)
    for node in everybody:
        total = summation.plus(sharing, total, mask(sharing, node, everybody))
    assert not total.any()


def test_a_weak_key_is_refused() -> None:
    with pytest.raises(ValueError, match="X25519"):
        committee_sums.mask(
            SCHEMES[0][0],
            {1: bytes(32)},
            node=0,
            box_private_key=box_private_key(0),
            cohort=COHORT,
            dimension=1,
        )


@pytest.mark.parametrize(
    ("sharing", "minimum", "said"),
    [
        (AdditiveSharing(committee=3), None, "no committees"),
        (AdditiveSharing(committee=3), 4, "at least 4"),
        (AdditiveSharing(committee=5), 3, "fewer nodes"),
        (AdditiveSharing(committee=3), 3, None),
        (ThresholdSharing(committee=4, threshold=2), 3, "more than half"),
        (ThresholdSharing(committee=4, threshold=5), 3, "more than half"),
        (ThresholdSharing(committee=3, threshold=2), 3, None),
    ],
)
def test_a_policy_says_how_small_a_committee_may_be(
    sharing: Sharing, minimum: int | None, said: str | None
) -> None:
    found = sharing.refusal(nodes=5, minimum_threshold=2, minimum_committee=minimum)
    assert found is None if said is None else said in str(found)


# Cohorts

FIVE = examples.consortium(
    nodes=5,
    policy=examples.POLICY.model_copy(update={"minimum_threshold": 2, "minimum_committee": 3}),
)
SPECS = {
    scheme.scheme: examples.spec(manifest=FIVE, sharing=scheme)
    for scheme in (AdditiveSharing(committee=3), ThresholdSharing(committee=3, threshold=2))
}
ASKED = BitMap(range(12))


@pytest.mark.parametrize("scheme", SPECS)
@given(data=st.data())
def test_a_holder_counts_if_enough_of_its_committee_hold_one_answer(
    scheme: str, data: st.DataObject
) -> None:
    spec = SPECS[scheme]
    least = spec.threshold
    among = data.draw(st.sets(st.sampled_from(spec.compute_nodes), min_size=least))
    held: dict[str, dict[int, bytes]] = {}
    for name in sorted(among):
        of = asked_of(spec, name, ASKED)
        some = data.draw(st.sets(st.sampled_from(sorted(of)))) if of else set()
        held[name] = {
            holder: data.draw(st.sampled_from([bytes(16), b"other answer...."]))
            if holder == 4
            else bytes(16)
            for holder in sorted(set(of) - some)
        }
    expected = []
    for holder in ASKED:
        members = [
            spec.compute_nodes[node] for node in spec.sharing.members(holder=holder, nodes=5)
        ]
        there = [held[name].get(holder) for name in members if name in held]
        if len(there) >= spec.opening and len(set(there)) == 1 and there[0] is not None:
            expected.append((holder, there[0]))
    stored = {name: StoredAnswers.of(sorted(each.items())) for name, each in held.items()}
    assert cohort_in(spec, stored) == StoredAnswers.of(expected)


@pytest.mark.parametrize(
    "named",
    [None, ("compute-0", "compute-1"), tuple(f"compute-{node}" for node in (1, 0, 2, 3))],
    ids=["none", "too few", "disordered"],
)
def test_a_partial_sum_names_enough_nodes_in_their_order(named: tuple[str, ...] | None) -> None:
    spec = SPECS["threshold"]
    check_nodes(spec, "compute-0", spec.compute_nodes[:4])
    with pytest.raises(WrongCohort):
        check_nodes(spec, "compute-0", named)
    with pytest.raises(WrongCohort):
        check_nodes(spec, "compute-4", spec.compute_nodes[:4])
    with pytest.raises(WrongCohort):
        check_nodes(examples.spec(), "compute-0", spec.compute_nodes[:4])


# Coalitions


@pytest.mark.parametrize("nodes", [4, 6, 8])
def test_chances_are_those_of_all_coalitions_counted_one_by_one(nodes: int) -> None:
    for committee in range(2, nodes):
        for opening in range(committee // 2 + 1, committee + 1):
            found = coalitions(nodes=nodes, committee=committee, opening=opening)
            assert min(found) == opening
            for size, chance in found.items():
                opened = sum(
                    sum(place in members for place in range(committee)) >= opening
                    for members in itertools.combinations(range(nodes), size)
                )
                assert chance == pytest.approx(opened / comb(nodes, size), abs=1e-15)


# A round's outcome, and its account

SEVEN = examples.consortium(
    nodes=7,
    policy=examples.POLICY.model_copy(update={"minimum_threshold": 2, "minimum_committee": 3}),
)
LOSSY = examples.spec(
    manifest=SEVEN, sharing=ThresholdSharing(committee=3, threshold=2), dropouts=4
)
THERE = LOSSY.compute_nodes[2:]
BOUND = {"manifest": SEVEN.digest, "round": LOSSY.digest, "entry": PLACE}


def released(named: tuple[str, ...] = THERE) -> tuple[list[Signed[PartialSum]], Signed[Result]]:
    """Return the sums of a cohort without the committees that begin at nodes 6 and 0."""
    cohort = examples.held(holder for holder in ASKED if holder % 7 not in (6, 0))
    over = {
        "cohort": digest_in(LOSSY, cohort, THERE),
        "cohort_size": len(cohort.holders),
    }
    zero = encode_uint64(np.zeros(LOSSY.dimension, np.uint64))
    sums = [
        examples.named(
            node,
            PartialSum(
                node=node,
                nodes=named if node == THERE[-1] else THERE,
                values=zero,
                charge=examples.charge(LOSSY, node),
                **over,
                **BOUND,
            ),
        )
        for node in THERE
    ]
    references = tuple(PartialSumReference(node=each.signer, digest=each.digest) for each in sums)
    body = Result(values=zero, partial_sums=references, **over, **BOUND)
    return sums, examples.named("aggregator", body)


def test_a_result_rests_on_exactly_the_sums_that_each_of_them_names() -> None:
    sums, result = released()
    check_partial_sums(sums, result.body, LOSSY, SEVEN)
    sums, result = released(LOSSY.compute_nodes[1:])
    with pytest.raises(RefusedResult, match="added to each other"):
        check_partial_sums(sums, result.body, LOSSY, SEVEN)
    sums, result = released(LOSSY.compute_nodes[-3:])
    with pytest.raises(WrongCohort):
        check_partial_sums(sums, result.body, LOSSY, SEVEN)


def test_the_account_names_the_nodes_that_a_committee_lost() -> None:
    sums, result = released()
    documents: list[Signed[Any]] = [*sums, result]
    for node in THERE:
        asked = asked_of(LOSSY, node, ASKED)
        lacks = BitMap([3]) if node == "compute-4" else BitMap()
        held = examples.held(asked - lacks)
        documents.append(
            examples.named(
                node,
                Holdings.attest(
                    held,
                    asked,
                    manifest=SEVEN.digest,
                    round_id=LOSSY.digest,
                    node=node,
                    entry=PLACE,
                ),
            )
        )
    whole = {
        each.signer: each.body.held(asked_of(LOSSY, each.signer, ASKED))
        for each in documents
        if isinstance(each.body, Holdings)
    }
    cohort = cohort_in(LOSSY, whole)
    assert list(cohort.holders) == [1, 2, 4, 5, 8, 9, 10, 11]
    for node in THERE:
        body = Vote(
            node=node,
            nodes=THERE,
            cohort=digest_in(LOSSY, cohort, THERE),
            cohort_size=len(cohort.holders),
            **BOUND,
        )
        documents.append(examples.named(node, body))
    found = account_of(examples.named("trainer", LOSSY), SEVEN, documents)
    # its result is over a cohort that nobody voted for, with a holder whom a node lacks
    assert found.of(1) == "left out: the holdings that would say why are not shown"
    over = {"cohort": digest_in(LOSSY, cohort, THERE), "cohort_size": len(cohort.holders)}
    honest = examples.named("aggregator", result.body.model_copy(update=over))
    others = [each for each in documents if not isinstance(each.body, Result | PartialSum)]
    found = account_of(examples.named("trainer", LOSSY), SEVEN, [*others, honest])
    assert found.misconduct == ()
    assert found.groups == {
        "in the cohort": cohort.holders,
        "left out: no share at compute-0, compute-1": BitMap([0, 6, 7]),
        "left out: no share at compute-4": BitMap([3]),
        "left out: its shares are of different answers": BitMap(),
    }

"""The account of a round: who is in, who is out and why, and who contradicted himself."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    Holdings,
    PartialSum,
    PartialSumReference,
    Result,
    StoredAnswers,
    Vote,
    cohort_digest,
    cohort_of,
)
from shoal_protocol.rounds.round_audit import Account, account_of
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.sharing.shares import to_ring
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.encoding import encode_clients
from shoal_protocol.wire.vectors import encode_uint64
from tests.world import examples
from tests.world.examples import CONSORTIUM, PLACE, POPULATION, SPEC, answer_id, named, signing_key

NODES = SPEC.compute_nodes
SIGNED_SPEC = named("trainer", SPEC)
BOUND = {"manifest": CONSORTIUM.digest, "round": SPEC.digest, "entry": PLACE}
EVERYONE = range(12)


def holdings(node: str, held: StoredAnswers) -> Signed[Holdings]:
    return named(
        node,
        Holdings.attest(
            held,
            POPULATION,
            manifest=CONSORTIUM.digest,
            round_id=SPEC.digest,
            node=node,
            entry=PLACE,
        ),
    )


def members_of(cohort: StoredAnswers | Iterable[int]) -> StoredAnswers:
    return cohort if isinstance(cohort, StoredAnswers) else examples.held(cohort)


def vote(
    node: str, cohort: StoredAnswers | Iterable[int], holders: tuple[str, ...] = NODES
) -> Signed[Vote]:
    members = members_of(cohort)
    digest = cohort_digest(SPEC.digest, members)
    body = Vote(node=node, nodes=holders, cohort=digest, cohort_size=len(members.holders), **BOUND)
    return named(node, body)


def partial_sum(
    node: str, cohort: StoredAnswers | Iterable[int], value: int = 1
) -> Signed[PartialSum]:
    members = members_of(cohort)
    body = PartialSum(
        node=node,
        cohort=cohort_digest(SPEC.digest, members),
        cohort_size=len(members.holders),
        values=encode_uint64(to_ring(examples.TOTAL * value)),
        charge=examples.charge(SPEC, node),
        **BOUND,
    )
    return named(node, body)


def result(sums: list[Signed[PartialSum]], value: int = 3) -> Signed[Result]:
    body = Result(
        cohort=sums[0].body.cohort,
        cohort_size=sums[0].body.cohort_size,
        values=encode_uint64(to_ring(examples.TOTAL * value)),
        partial_sums=tuple(
            PartialSumReference(node=each.signer, digest=each.digest) for each in sums
        ),
        **BOUND,
    )
    return named("aggregator", body)


def abandonment(party: str, code: str = "votes_missing") -> Signed[Abandonment]:
    return named(party, Abandonment(party=party, reason=AbandonmentReason(code=code), **BOUND))


def published(held: list[StoredAnswers]) -> list[Signed[Any]]:
    """Return all that honest parties sign when they hold this."""
    cohort = cohort_of(held)
    sums = [partial_sum(node, cohort) for node in NODES]
    return [
        *(holdings(node, each) for node, each in zip(NODES, held, strict=True)),
        *(vote(node, cohort) for node in NODES),
        *sums,
        result(sums),
    ]


def account(documents: Iterable[Signed[Any]]) -> Account:
    return account_of(SIGNED_SPEC, CONSORTIUM, documents)


ATTEMPTS = st.sampled_from(["first", "first", "first", "another"])
HELD = st.dictionaries(st.integers(0, 11), ATTEMPTS).map(
    lambda held: StoredAnswers.of(
        (client, answer_id(client, attempt)) for client, attempt in sorted(held.items())
    )
)


@pytest.mark.slow
@given(held=st.lists(HELD, min_size=3, max_size=3), random=st.randoms(use_true_random=False))
def test_every_share_that_is_held_is_in_the_cohort_or_accounted_for(
    held: list[StoredAnswers], random: Any
) -> None:
    documents = published(held) if cohort_of(held).holders else []
    random.shuffle(documents)
    found = account(documents)
    if not documents:
        assert (found.outcome, found.groups) == ("open", {"the round is open": POPULATION})
        return
    assert found.outcome == "published"
    assert found.groups["in the cohort"] == cohort_of(held).holders
    assert sum(map(len, found.groups.values())) == len(POPULATION)
    assert BitMap.union(*found.groups.values()) == POPULATION
    for what, clients in found.groups.items():
        nodes = what.removeprefix("left out: no share at ").split(", ")
        for node, each in zip(NODES, held, strict=True):
            assert clients.isdisjoint(each.holders) if node in nodes else clients <= each.holders
    minimum = [each for each in found.misconduct if "too small" not in each.what]
    assert minimum == [] and found.refused == 0


def test_of_an_abandoned_round_nothing_is_released_to_anyone() -> None:
    found = account([abandonment("aggregator", "partial_sums_missing"), abandonment("compute-1")])
    assert found.outcome == "abandoned"
    assert found.reason is not None and found.reason.code == "partial_sums_missing"
    assert found.abandoned_by.keys() == {"compute-1"}
    assert found.groups == {"nothing was released": POPULATION}
    assert found.of(3) == "nothing was released"


def test_without_the_holdings_behind_its_cohort_a_published_round_is_unexplained() -> None:
    documents = published([examples.held(EVERYONE)] * 3)
    shown = [each for each in documents if each.signer != "compute-1"]
    found = account(shown)
    assert found.outcome == "published"
    assert found.groups == {"left out: the holdings that would say why are not shown": POPULATION}


def test_documents_that_do_not_verify_or_are_of_another_round_say_nothing() -> None:
    good = vote("compute-1", EVERYONE)
    forged = Signed(good.body, "compute-1", vote("compute-1", range(11)).signature)
    other = good.body.model_copy(update={"round": "0" * 64})
    found = account([forged, sign(other, "compute-1", signing_key("compute-1"))])
    assert (found.refused, found.misconduct) == (2, ())


FULL = [examples.held(EVERYONE)] * 3
ELEVEN = examples.held(range(11))


@pytest.mark.parametrize(
    ("party", "what", "more"),
    [
        ("compute-1", "two documents of the kind holdings", [holdings("compute-1", ELEVEN)]),
        ("compute-1", "two documents of the kind vote", [vote("compute-1", range(11))]),
        ("compute-1", "does not follow", [vote("compute-1", range(11))]),
        (
            "compute-1",
            "two documents of the kind partial sum",
            [partial_sum("compute-1", EVERYONE, 2)],
        ),
        ("compute-1", "did not vote for", [partial_sum("compute-1", range(11))]),
        ("compute-1", "never will", [abandonment("compute-1")]),
        ("aggregator", "there is none", [abandonment("aggregator")]),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_a_contradiction_among_signed_documents_is_found(
    party: str, what: str, more: list[Signed[Any]]
) -> None:
    honest = published(FULL)
    assert account(honest).misconduct == ()
    found = account([*honest, *more])
    assert {each.party for each in found.misconduct} == {party}
    assert any(what in each.what for each in found.misconduct)
    assert found.groups["in the cohort"] == POPULATION


def broken_holdings() -> Signed[Holdings]:
    body = holdings("compute-1", ELEVEN).body.model_copy(
        update={"missing": encode_clients([11, 99])}
    )
    return named("compute-1", body)


@pytest.mark.parametrize(
    ("party", "what", "documents"),
    [
        ("compute-1", "contradict themselves", [broken_holdings()]),
        (
            "compute-1",
            "nobody voted for",
            [partial_sum("compute-1", EVERYONE), vote("compute-0", range(11))],
        ),
        (
            "compute-2",
            "does not hold",
            [
                *(holdings(node, FULL[0]) for node in NODES[:2]),
                holdings("compute-2", ELEVEN),
                vote("compute-2", EVERYONE, NODES[:2]),
            ],
        ),
        (
            "compute-0",
            "too small",
            [
                *(holdings(node, examples.held(range(9))) for node in NODES),
                vote("compute-0", range(9)),
            ],
        ),
        (
            "aggregator",
            "not the sum",
            [
                *published(FULL)[:-1],
                result([partial_sum(node, EVERYONE) for node in NODES], 4),
            ],
        ),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else "",
)
def test_a_document_that_cannot_be_honest_is_found(
    party: str, what: str, documents: list[Signed[Any]]
) -> None:
    [found] = account(documents).misconduct
    assert found.party == party and what in found.what


def test_who_signs_very_many_holdings_accuses_nobody_but_himself() -> None:
    many = [
        holdings("compute-0", StoredAnswers(POPULATION, number.to_bytes(2, "big") * 12))
        for number in range(65)
    ]
    found = account([*many, *published(FULL)])
    assert {each.party for each in found.misconduct} == {"compute-0"}


def test_late_sums_together_name_the_wrong_one_that_the_result_rests_on() -> None:
    policy = examples.POLICY.model_copy(update={"minimum_threshold": 2})
    trust = examples.consortium(nodes=5, policy=policy)
    spec = named("trainer", examples.spec(manifest=trust, sharing=ThresholdSharing(threshold=3)))
    bound = {"manifest": trust.digest, "round": spec.digest, "entry": PLACE}
    cohort = {"cohort": cohort_digest(spec.digest, examples.held(POPULATION)), "cohort_size": 12}

    def sum_of(node: int, value: int) -> Signed[PartialSum]:
        values = encode_uint64(np.full(spec.body.dimension, value, np.uint64))
        name = f"compute-{node}"
        charge = examples.charge(spec.body, name)
        return named(name, PartialSum(node=name, values=values, charge=charge, **cohort, **bound))

    used = [sum_of(0, 8), sum_of(1, 7), sum_of(2, 7)]
    references = tuple(PartialSumReference(node=each.signer, digest=each.digest) for each in used)
    values = encode_uint64(np.full(spec.body.dimension, 10, np.uint64))  # 3 * 8 - 3 * 7 + 7
    total = named("aggregator", Result(values=values, partial_sums=references, **cohort, **bound))
    found = account_of(spec, trust, [*used, sum_of(3, 7), sum_of(4, 7), total])
    assert {each.party for each in found.misconduct} == {"compute-0"}


@pytest.mark.parametrize(
    ("nodes", "threshold", "party"),
    [(3, 2, "compute-0 or compute-1 or compute-2"), (5, 3, "compute-4")],
)
def test_a_late_sum_that_does_not_fit_the_others_is_found(
    nodes: int, threshold: int, party: str
) -> None:
    policy = examples.POLICY.model_copy(update={"minimum_threshold": 2})
    trust = examples.consortium(nodes=nodes, policy=policy)
    spec = named(
        "trainer", examples.spec(manifest=trust, sharing=ThresholdSharing(threshold=threshold))
    )
    bound = {"manifest": trust.digest, "round": spec.digest, "entry": PLACE}
    cohort = {"cohort": cohort_digest(spec.digest, examples.held(POPULATION)), "cohort_size": 12}

    def sum_of(node: int, value: int) -> Signed[PartialSum]:
        values = encode_uint64(np.full(spec.body.dimension, value, np.uint64))
        name = f"compute-{node}"
        charge = examples.charge(spec.body, name)
        return named(name, PartialSum(node=name, values=values, charge=charge, **cohort, **bound))

    used = [sum_of(node, 7) for node in range(nodes - 1)]  # of a polynomial of degree 0
    references = tuple(PartialSumReference(node=each.signer, digest=each.digest) for each in used)
    total = Result(values=used[0].body.values, partial_sums=references, **cohort, **bound)
    for value, found in ((7, []), (8, [party])):
        late = sum_of(nodes - 1, value)
        account = account_of(spec, trust, [*used, late, named("aggregator", total)])
        sums = [each for each in account.misconduct if "nobody voted" not in each.what]
        assert [each.party for each in sums] == found


def test_a_sum_whose_charge_cannot_be_the_rounds_is_found() -> None:
    honest = published(FULL)
    assert account(honest).misconduct == ()
    body = partial_sum("compute-1", EVERYONE).body
    late = body.charge.model_copy(update={"entry": body.entry})
    forged = named("compute-1", body.model_copy(update={"charge": late}))
    others = [
        each for each in honest if (each.body.kind, each.signer) != ("partial_sum", "compute-1")
    ]
    found = account([*others, forged]).misconduct
    assert ("compute-1", True) in {(each.party, "its charge" in each.what) for each in found}

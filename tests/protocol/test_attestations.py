"""Holdings, votes and cohorts: all nodes derive the same cohort and name it by one digest."""

import hashlib

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_protocol.rounds.attestations import (
    FAILURES,
    AbandonmentReason,
    Holdings,
    RoundFailure,
    StoredAnswers,
    cohort_digest,
    cohort_of,
)
from shoal_protocol.wire.encoding import encode_clients
from shoal_protocol.wire.errors import MalformedDocument
from tests.world.examples import (
    COHORT,
    CONSORTIUM,
    PLACE,
    POPULATION,
    SPEC,
    held,
)
from tests.world.strategies import clients

ROUND = SPEC.digest


def holdings(what: StoredAnswers, population: BitMap = POPULATION) -> Holdings:
    return Holdings.attest(
        what, population, manifest=CONSORTIUM.digest, round_id=ROUND, node="compute-0", entry=PLACE
    )


answers = st.dictionaries(clients, st.binary(min_size=16, max_size=16))


@given(answers, st.sets(clients))
def test_holdings_say_who_is_held_and_with_which_answer(held, others) -> None:
    population = BitMap([*held, *others])
    what = StoredAnswers.of(sorted(held.items()))
    read = holdings(what, population).held(population)
    assert set(read.holders) == held.keys()
    assert read.tags == b"".join(held[client][:4] for client in sorted(held))


# few clients and few answers, so that nodes often agree and often do not
few_answers = st.dictionaries(st.integers(0, 9), st.sampled_from([b"a" * 16, b"b" * 16]))


@given(st.lists(few_answers, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_cohort_is_who_all_hold_with_one_answer_in_whatever_order_holdings_arrive(
    nodes: list[dict[int, bytes]], random
) -> None:
    frozen = [StoredAnswers.of(sorted(each.items())) for each in nodes]
    expected = {
        client
        for client in range(10)
        if all(client in each for each in nodes) and len({each[client] for each in nodes}) == 1
    }
    assert set(cohort_of(frozen).holders) == expected
    random.shuffle(frozen)
    again = cohort_of([*frozen, frozen[0]])
    assert set(again.holders) == expected
    assert again.tags == b"".join(nodes[0][client][:4] for client in sorted(expected))


def test_answers_are_told_apart_by_their_first_four_bytes_only() -> None:
    one, same, other = (
        StoredAnswers.of([(5, answer)]) for answer in (b"abcd5678", b"abcd0000", b"abdc5678")
    )
    assert set(cohort_of([one, same]).holders) == {5}
    assert set(cohort_of([one, other]).holders) == set()


def test_the_cohort_of_many_clients_with_few_mismatches_leaves_out_only_those() -> None:
    everyone = np.arange(100_000)
    tags = (everyone * 7919 % 65_536).astype(np.uint32)
    changed = tags.copy()
    changed[[5, 77_777]] += 1
    held = [
        StoredAnswers(BitMap(everyone), tags.tobytes()),
        StoredAnswers(BitMap(everyone[1:]), changed[1:].tobytes()),
    ]
    cohort = cohort_of(held)
    assert set(everyone) - set(cohort.holders) == {0, 5, 77_777}
    assert cohort.tags == np.delete(tags, [0, 5, 77_777]).tobytes()


tagged = st.dictionaries(clients, st.binary(min_size=4, max_size=4))


@given(tagged.filter(bool), st.data())
def test_a_cohorts_digest_names_each_members_answer(members, data) -> None:
    client = data.draw(st.sampled_from(sorted(members)))
    changed = members | {client: bytes(byte ^ 1 for byte in members[client])}
    digests = {
        cohort_digest(ROUND, StoredAnswers.of(sorted(each.items()))) for each in (members, changed)
    }
    assert len(digests) == 2


def test_a_cohorts_digest_is_over_prefix_round_and_ascending_indices_with_tags() -> None:
    members = bytes.fromhex("01000000aabbccdd00010000ddccbbaa")
    content = b"shoal/v1/cohort\n" + bytes.fromhex(ROUND) + members
    cohort = StoredAnswers.of(
        [(1, bytes.fromhex("aabbccdd99")), (256, bytes.fromhex("ddccbbaa99"))]
    )
    assert cohort_digest(ROUND, cohort) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    "changes",
    [
        {"missing": "AAAA"},
        {"missing": encode_clients([0, 99])},
        {"missing": encode_clients([])},
        {"count": 12},
        {"answers": ""},
        {"answers": "AAAA"},
    ],
)
def test_holdings_that_contradict_themselves_are_refused_when_they_are_read(changes) -> None:
    broken = holdings(held(COHORT)).model_copy(update=changes)
    with pytest.raises(MalformedDocument):
        broken.held(POPULATION)


def test_every_failure_of_a_round_has_words_a_code_and_a_detail() -> None:
    codes = RoundFailure.model_json_schema()["properties"]["code"]["anyOf"]
    assert {code for part in codes for code in part["enum"]} == FAILURES.keys()
    failure = RoundFailure(code="not_accepted", detail="compute-1 (no answer)")
    assert str(failure) == (
        "not all services accepted it in time (not_accepted; compute-1 (no answer))"
    )
    with pytest.raises(pydantic.ValidationError):  # nobody signs the trainer's own reasons
        AbandonmentReason(code="not_accepted")  # type: ignore[arg-type]


def test_a_reason_is_one_of_the_list_and_short() -> None:
    AbandonmentReason(code="votes_missing", detail="x" * 300)
    with pytest.raises(pydantic.ValidationError):
        AbandonmentReason(code="votes_missing", detail="x" * 301)
    with pytest.raises(pydantic.ValidationError):
        AbandonmentReason(code="bad_luck")  # type: ignore[arg-type]

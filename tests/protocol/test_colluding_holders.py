"""A round's noise suffices against its largest data holders, in whatever cohort is released."""

from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.rounds.batches import make_spec
from shoal_protocol.rounds.round_spec import AskedHolders, RoundSpec, check_spec
from shoal_protocol.sharing.schemes import ADDITIVE
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.roster_changes import roster_of
from shoal_protocol.wire.errors import RefusedSpec
from tests.world.examples import JOB, MATRIX, OPENED_AT, POLICY, consortium
from tests.world.examples import signing_key as key

CLINICS = (136, 136, 136)


def clinics(*sizes: int, **policy: Any) -> Consortium:
    """Return a consortium of data holders with so many slots each."""
    roster = roster_of([(key(f"clinic {n}").verify_key, size) for n, size in enumerate(sizes)])
    return consortium(of=roster, policy=POLICY.model_copy(update=policy))


def a_round(asked: Consortium, population: BitMap, *, dropouts: int, colluders: int) -> RoundSpec:
    return make_spec(
        manifest=asked,
        job=JOB.digest,
        number=0,
        query=MATRIX,
        mechanism="discrete_gaussian",
        cost=Cost.gaussian(0.25),
        population=population,
        dropouts=dropouts,
        colluders=colluders,
        opened_at=OPENED_AT,
        deadline=OPENED_AT + timedelta(seconds=60),
        give_up_at=OPENED_AT + timedelta(seconds=90),
        sharing=ADDITIVE,
    )


@pytest.mark.parametrize("holders", [1, 2])
def test_the_largest_data_holders_are_colluders_as_a_whole(holders: int) -> None:
    asked = clinics(*CLINICS, colluding_holders=holders)
    everybody, least = BitMap(range(sum(CLINICS))), holders * 136
    made = a_round(asked, everybody, dropouts=0, colluders=least)
    assert made.parties == sum(CLINICS) - least - 1
    with pytest.raises(ValueError, match=f"colluders must be at least {least}, the slots of the"):
        a_round(asked, everybody, dropouts=0, colluders=least - 1)


def test_only_slots_that_the_round_asks_count() -> None:
    asked = clinics(*CLINICS, colluding_holders=1)
    batch = BitMap([*range(10), *range(136, 146), *range(272, 282)])
    assert a_round(asked, batch, dropouts=0, colluders=10).population_size == 30


def test_a_spec_with_too_few_colluders_is_refused_by_everybody() -> None:
    loose, strict = (clinics(*CLINICS, colluding_holders=k) for k in (0, 1))
    made = a_round(loose, BitMap(range(408)), dropouts=0, colluders=5)
    bound = made.model_copy(update={"manifest": strict.digest})
    with pytest.raises(RefusedSpec, match="at least 136"):
        check_spec(bound, strict, now=OPENED_AT)


def test_a_round_asks_no_fewer_data_holders_than_the_policy_says() -> None:
    asked = clinics(*CLINICS, minimum_holders=3)
    with pytest.raises(ValueError, match="at least 3 data holders"):
        a_round(asked, BitMap(range(272)), dropouts=0, colluders=5)


@given(st.lists(st.integers(1, 30), min_size=3, max_size=7), st.data())
def test_the_others_noise_suffices_in_every_cohort_that_may_be_released(
    sizes: list[int], data: st.DataObject
) -> None:
    """The page's rule: of a cohort less its k largest holders and the victim, n slots are left."""
    holders = data.draw(st.integers(1, len(sizes) - 1))
    total = sum(sizes)
    roster = roster_of([(key(f"clinic {n}").verify_key, size) for n, size in enumerate(sizes)])
    asked = AskedHolders.of(BitMap(range(total)), roster)
    colluders = asked.largest(holders) + data.draw(st.integers(0, 3))
    dropouts = data.draw(st.integers(0, total))
    parties = total - dropouts - colluders - 1
    for size in range(1, len(sizes) + 1):
        for cohort in combinations(sizes, size):
            if sum(cohort) >= total - dropouts:
                largest = sum(sorted(cohort)[-holders:])
                single = colluders - asked.largest(holders)
                assert sum(cohort) - largest - single - 1 >= parties

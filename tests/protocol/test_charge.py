"""Charges in partial sums: what they say of a node's journal."""

import pytest

from shoal_protocol.journal import content_hash, entry_hash
from shoal_protocol.rounds.attestations import CHARGE, Charge
from shoal_protocol.wire.service_errors import WrongCharge
from tests.world import examples
from tests.world.examples import PLACE, SPEC

HONEST = examples.partial_sum(0)
OLDER = f"0-{'f' * 32}"
NEWER = f"2-{'0' * 32}"


def with_charge(**changes: object) -> Charge:
    return Charge(**dict(HONEST.charge) | changes)


def test_a_charges_hash_is_that_of_the_journals_entry() -> None:
    charge = HONEST.charge
    content = content_hash(charge.salt, CHARGE, HONEST.round, b'{"job_rounds":1}')
    assert HONEST.charged == entry_hash(charge.entry, content)


@pytest.mark.parametrize(
    "changed",
    [
        with_charge(salt="0" * 32),
        with_charge(job_rounds=2),
        with_charge(entry=HONEST.charge.entry.model_copy(update={"number": 2})),
        with_charge(entry=HONEST.charge.entry.model_copy(update={"epoch": NEWER})),
    ],
)
def test_another_charge_has_another_hash(changed: Charge) -> None:
    assert changed.hash_for(HONEST.round) != HONEST.charged
    assert HONEST.charge.hash_for("5" * 64) != HONEST.charged


@pytest.mark.parametrize(
    ("place", "follows"),
    [
        ({"number": 99}, True),
        ({"number": 100}, False),
        ({"number": 101}, False),
        ({"epoch": OLDER, "number": 1000}, True),
        ({"epoch": NEWER, "number": 1}, False),
    ],
)
def test_a_round_is_charged_before_its_sum_is_signed(
    place: dict[str, object], follows: bool
) -> None:
    charge = with_charge(entry=PLACE.model_copy(update=place))
    body = HONEST.model_copy(update={"charge": charge})
    if follows:
        body.check_charge(SPEC)
    else:
        with pytest.raises(WrongCharge):
            body.check_charge(SPEC)


@pytest.mark.parametrize(
    ("number", "counted", "possible"), [(0, 1, True), (0, 2, False), (2, 2, True), (2, 4, False)]
)
def test_a_charge_counts_no_more_rounds_than_the_job_can_have_had(
    number: int, counted: int, possible: bool
) -> None:
    body = HONEST.model_copy(update={"charge": with_charge(job_rounds=counted)})
    if possible:
        body.check_charge(examples.spec(number=number))
    else:
        with pytest.raises(WrongCharge):
            body.check_charge(examples.spec(number=number))

"""Rounds with hidden participation: what each may state, who has paid, and the coin itself."""

import math
from datetime import timedelta
from typing import Any

import pydantic
import pytest
from pyroaring import BitMap

from shoal_protocol.accounting import NOTHING, Cost
from shoal_protocol.amplification import hidden_mu
from shoal_protocol.certificate_checks import verify_certificate
from shoal_protocol.errors import RefusedCertificate, RefusedJob, RefusedSpec
from shoal_protocol.hidden_participation import HiddenParticipation
from shoal_protocol.jobs import check_job, check_round_of_job
from shoal_protocol.ledger import LedgerEntry
from shoal_protocol.prepayment import check_prepaid
from shoal_protocol.rounds import RoundSpec, check_spec
from tests.protocol import examples
from tests.protocol.certified import Making
from tests.protocol.hidden_rounds import (
    CONSORTIUM,
    DEARER,
    FIRST,
    FIRST_HIDDEN,
    OF_ONE,
    POLICY,
    QUERY,
    RATE,
    ROUNDS,
    SMALLER,
    TASK,
    TOTAL,
    first,
    job,
    later,
)


def check(spec: RoundSpec, consortium: Any = CONSORTIUM) -> None:
    check_spec(spec, consortium, now=examples.OPENED_AT)


def lied(spec: RoundSpec, **changes: Any) -> RoundSpec:
    return RoundSpec.model_validate(spec.model_dump(mode="json") | changes)


def test_the_first_round_costs_what_all_cost_and_the_others_nothing() -> None:
    whole = hidden_mu(rate=RATE, mu=FIRST.known_cost.mu, rounds=ROUNDS)
    assert FIRST.mu == pytest.approx(whole)
    assert FIRST.mu <= TOTAL
    assert FIRST.epsilon is None
    assert later(FIRST).cost == NOTHING
    assert FIRST.known_cost.mu * math.sqrt(ROUNDS) > 1.5 * FIRST.mu  # what it would be without
    check(FIRST)
    check(later(FIRST))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mu": FIRST.mu * (1 - 1e-6)}, "mu is not what"),
        ({"mu": FIRST.mu * 1.01}, "mu is not what"),
        ({"mu": 0.0, "epsilon": 0.0}, "mu is not what"),
        ({"epsilon": 0.0}, "epsilon is not what"),
        ({"number": 1}, "first round pays"),
        ({"number": ROUNDS}, "are over"),
        ({"hidden": None}, "mu is not what"),
        ({"hidden": FIRST_HIDDEN.model_dump() | {"rate": RATE / 2}}, "mu is not what"),
        ({"hidden": FIRST_HIDDEN.model_dump() | {"rounds": ROUNDS - 1}}, "mu is not what"),
        ({"hidden": FIRST_HIDDEN.model_dump() | {"prepaid_by": "0" * 64}}, "first round pays"),
        (
            {"hidden": FIRST_HIDDEN.model_dump() | {"prepaid_by": "0" * 64}, "number": 1},
            "mu is not what",
        ),
    ],
    ids=str,
)
def test_a_spec_that_states_another_price_than_its_rounds_have_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(RefusedSpec, match=reason):
        check(lied(FIRST, **changes))


def test_only_gradients_under_gaussian_noise_and_a_delta_that_forgives_can_be_hidden() -> None:
    with pytest.raises(ValueError, match="cannot be hidden"):
        first(query=examples.spec().query, manifest=examples.CONSORTIUM)
    tiny = examples.consortium(policy=POLICY.model_copy(update={"delta": 1e-9}))
    with pytest.raises(ValueError, match="delta is too small"):
        first(manifest=tiny)
    with pytest.raises(RefusedJob, match="the job's delta is too small"):
        check_job(
            job(privacy=examples.JOB.privacy.model_copy(update={"delta": 1e-9})),
            CONSORTIUM.manifest,
        )
    with pytest.raises(RefusedJob, match="the policy's delta is too small"):
        check_job(
            job(tiny, privacy=examples.JOB.privacy.model_copy(update={"epsilon": 0.05})),
            tiny.manifest,
        )


def check_of_job(spec: RoundSpec, **changes: Any) -> None:
    request = job(**changes)
    spec = spec.model_copy(update={"job": request.digest})
    check_round_of_job(spec, request, spent=NOTHING, earlier=None)


def test_a_round_that_hides_otherwise_than_the_job_said_is_refused() -> None:
    check_of_job(FIRST)
    check_of_job(later(FIRST))
    known = first(hidden=None, cost=Cost.gaussian(TOTAL / 10))
    with pytest.raises(RefusedSpec, match="not as the job has it"):
        check_of_job(known)
    for task in (
        TASK.model_copy(update={"participation": None}),
        TASK.model_copy(update={"participation": RATE / 2}),
        TASK.model_copy(update={"rounds": ROUNDS + 1}),
    ):
        with pytest.raises(RefusedSpec, match="not as the job has it"):
            check_of_job(FIRST, task=task)


def test_a_prepaid_round_with_less_noise_than_the_job_allows_is_refused_by_whoever_joined() -> None:
    """A client may not have seen the first round: it judges each by the job's whole price."""
    poor = later(FIRST, cost=Cost.gaussian(3.0))
    check(poor)  # by itself it is a fine spec
    with pytest.raises(RefusedSpec, match="together cost more than the job may"):
        check_of_job(poor)


def test_a_round_that_was_paid_for_is_taken() -> None:
    check_prepaid(FIRST, None, earlier=0)
    for number in range(1, ROUNDS):
        check_prepaid(later(FIRST, number), FIRST, earlier=number)
    check_prepaid(later(FIRST, population=SMALLER), FIRST, earlier=1)


HALF = first(hidden=FIRST_HIDDEN.model_copy(update={"rate": RATE / 2}))
SHORT = first(hidden=FIRST_HIDDEN.model_copy(update={"rounds": ROUNDS - 1}))
FEWER = first(population=SMALLER)
KNOWN = first(hidden=None)
ANOTHER = first(job="1" * 64)


@pytest.mark.parametrize(
    ("spec", "paying", "earlier", "reason"),
    [
        (later(FIRST), None, 1, "was not charged"),
        (later(FIRST), FEWER, 1, "was not charged"),  # another round than it names
        (later(ANOTHER), ANOTHER, 1, "was not charged"),  # of another job
        (later(KNOWN), KNOWN, 1, "not paid for this rate"),
        (later(HALF), HALF, 1, "not paid for this rate"),
        (later(SHORT), SHORT, 1, "not paid for this rate"),
        (later(FIRST), FIRST, ROUNDS, "used up"),
        (later(FEWER), FEWER, 1, "a client of its population"),
        (later(FIRST, cost=DEARER), FIRST, 1, "less noise"),
        (later(later(FIRST)), later(FIRST), 1, "not paid for this rate"),
    ],
)
def test_a_round_that_was_not_paid_for_is_refused(
    spec: RoundSpec, paying: RoundSpec | None, earlier: int, reason: str
) -> None:
    check(spec)
    with pytest.raises(RefusedSpec, match=reason):
        check_prepaid(spec, paying, earlier=earlier)


def test_a_smaller_population_makes_each_client_add_more_noise_not_less() -> None:
    fewer = later(FIRST, population=SMALLER)
    assert fewer.known_cost.mu <= FIRST.known_cost.mu * (1 + 1e-11)
    assert fewer.noise.scale > FIRST.noise.scale


def test_a_ledger_charges_a_prepaid_round_with_nothing_in_either_currency() -> None:
    entry = examples.charge(later(FIRST), "node")
    assert (entry.mu, entry.epsilon, entry.cost) == (0.0, 0.0, NOTHING)
    for change in ({"mu": 0.1}, {"epsilon": None}):
        with pytest.raises(pydantic.ValidationError, match="costs nothing"):
            LedgerEntry.model_validate(entry.model_dump() | change)


@pytest.mark.parametrize(("rate", "coins"), [(0.5, 2**31), (2**-32, 1), (1 - 2**-32, 2**32 - 1)])
def test_the_coin_says_yes_to_exactly_as_many_of_the_numbers_as_its_rate_has(
    rate: float, coins: int
) -> None:
    hidden = HiddenParticipation(rate=rate, rounds=1, prepaid_by=None)

    def drawn(number: int) -> int:
        def give(count: int) -> bytes:
            assert count == 4
            return number.to_bytes(4, "little")

        return hidden.toss(give)

    assert (drawn(0), drawn(coins - 1)) == (1, 1)
    assert drawn(coins) == drawn(2**32 - 1) == 0


def test_a_rate_is_one_that_a_coin_of_32_bits_has() -> None:
    assert TASK.model_copy().participation == 0.25
    rounded = HiddenParticipation(rate=0.05, rounds=1, prepaid_by=None).rate
    assert rounded * 2**32 == round(0.05 * 2**32)


@pytest.mark.parametrize("rate", [2**-32, 0.05, 1.0 - 2**-33, 1.0 - 2**-53])
def test_a_rate_that_is_allowed_stays_allowed_once_it_was_written_and_read(rate: float) -> None:
    hidden = HiddenParticipation(rate=rate, rounds=1, prepaid_by=None)
    assert HiddenParticipation.model_validate_json(hidden.model_dump_json()) == hidden
    for wrong in (0.0, 1.0, -0.1, 1.5, math.nan, 2**-34):
        with pytest.raises(pydantic.ValidationError):
            HiddenParticipation(rate=wrong, rounds=1, prepaid_by=None)


def test_all_are_asked_where_participation_is_hidden() -> None:
    with pytest.raises(pydantic.ValidationError, match="leave out the batch"):
        type(TASK).model_validate(TASK.model_dump() | {"batch": 5})
    assert BitMap(FIRST.clients()) == examples.POPULATION


class Hidden(Making):
    """The certificate of a job with hidden participation; `poor` rounds after the first have less
    noise, and `elsewhere` they name a first round that is not in the certificate."""

    def _spec(self, number: int, request: Any) -> RoundSpec:
        at = {
            "job": request.digest,
            "opened_at": examples.OPENED_AT + timedelta(minutes=5 * number),
        }
        at |= {"deadline": at["opened_at"] + timedelta(seconds=60)}
        at |= {"give_up_at": at["opened_at"] + timedelta(seconds=90)}
        generous = first(**at, cost=Cost.gaussian(OF_ONE.mu * 0.9))
        if number == 0:
            return generous
        paying = first(**at) if "elsewhere" in self.lies else self._made[0]
        cost = OF_ONE if "poor" in self.lies else generous.known_cost
        return later(paying, number, **at, cost=cost)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        ("none", "the report: its posterior is not of the job's task"),  # all before it holds
        ("poor", "the spec of round 1: it has less noise than was paid for"),
        ("elsewhere", "the spec of round 1: the round that it says has paid for it was not"),
    ],
)
def test_a_certificate_whose_rounds_were_not_paid_for_is_refused(lie: str, said: str) -> None:
    made = Hidden(
        consortia=(CONSORTIUM,),
        job=job(),
        queries=(QUERY,) * ROUNDS,
        cohorts=(examples.COHORT,) * ROUNDS,
        lies={lie: lambda honest: honest},
    )
    with pytest.raises(RefusedCertificate, match=f"(?i){said}"):
        verify_certificate(made.encode(), made.manifest)

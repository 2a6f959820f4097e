"""A Compute node takes a round of hidden participation only if it charged the one that paid."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shoal_protocol.documents import Signed
from shoal_protocol.rounds import RoundSpec
from tests.compute import federation as nodes
from tests.protocol.hidden_rounds import (
    CONSORTIUM,
    DEARER,
    FIRST_HIDDEN,
    OF_ONE,
    POLICY,
    QUERY,
    RATE,
    ROUNDS,
    SMALLER,
)


class Federation(nodes.Federation):
    """Compute nodes and a trainer that announces what it likes."""

    def round(self, number: int, paying: Signed[RoundSpec] | None, **changes: Any) -> Any:
        hidden, cost = FIRST_HIDDEN, OF_ONE
        if paying is not None:
            hidden, cost = hidden.paid_by(paying.digest), paying.body.known_cost
        arguments = {"query": QUERY, "cost": cost, "hidden": hidden, "number": number}
        return self.spec(**(arguments | changes))

    async def try_round(self, spec: Signed[RoundSpec], node: int = 0) -> str:
        reply = await self.request(node, "POST", "/v1/rounds", spec.encode())
        return "taken" if reply.status_code == 201 else str(reply.json()["detail"])


@pytest.fixture
async def federation(tmp_path: Path) -> AsyncIterator[Federation]:
    opened = Federation(tmp_path, trust=nodes.consortium(policy=POLICY))
    yield opened
    await opened.close()


async def test_the_rounds_that_were_paid_for_are_taken_and_no_more(federation: Federation) -> None:
    first = federation.round(0, None)
    assert await federation.try_round(first) == "taken"
    for number in range(1, ROUNDS):
        assert await federation.try_round(federation.round(number, first)) == "taken"
    # a number that was used already, asked again with another question
    again = federation.round(ROUNDS - 1, first, opened_at=federation.clock() + nodes.SECOND)
    assert "number" in await federation.try_round(again)
    with pytest.raises(ValueError, match="are over"):
        federation.round(ROUNDS, first)


async def test_a_trainer_that_changes_its_terms_between_rounds_is_refused(
    federation: Federation,
) -> None:
    of_few, of_half, of_short = ({"job": digit * 64} for digit in "234")
    half_rate = FIRST_HIDDEN.model_copy(update={"rate": RATE / 2})
    few = federation.round(0, None, population=SMALLER, **of_few)
    half = federation.round(0, None, hidden=half_rate, **of_half)
    two_rounds = FIRST_HIDDEN.model_copy(update={"rounds": 2})
    short = federation.round(0, None, hidden=two_rounds, **of_short)
    for first in (few, half, short):
        assert await federation.try_round(first) == "taken"
    for spec, reason in (
        (federation.round(1, federation.round(0, None)), "was not charged"),  # never announced
        (federation.round(1, few, cost=DEARER, population=SMALLER, **of_few), "less noise"),
        (federation.round(1, few, **of_few), "has not paid"),
        (federation.round(1, half, **of_half), "not paid for this rate"),
        (federation.round(1, short, **of_short), "not paid for this rate"),
        (federation.round(1, few, job="1" * 64, population=SMALLER), "was not charged"),
    ):
        assert reason in await federation.try_round(spec)


async def test_a_job_has_one_round_that_pays_for_the_others(federation: Federation) -> None:
    first, second = federation.round(0, None), federation.round(0, None, cost=DEARER)
    assert await federation.try_round(first) == "taken"
    assert "number" in await federation.try_round(second)
    assert "was not charged" in await federation.try_round(federation.round(1, second))
    assert await federation.try_round(federation.round(1, first)) == "taken"


async def test_what_paid_for_other_rounds_is_not_given_back(federation: Federation) -> None:
    first = federation.round(0, None)
    await federation.announce(first)
    federation.clock.move(100)  # nobody answered, and it is given up
    await federation.step(times=3)
    assert (await federation.state(0, first))["phase"] == "abandoned"
    federation.crash(0)  # the ledger is whole
    assert await federation.try_round(federation.round(1, first)) == "taken"
    with federation.services[0]._storage._engine.begin() as db:
        rows = db.exec_driver_sql("SELECT kind, mu FROM ledger ORDER BY number").all()
    assert [tuple(row) for row in rows] == [("charge", first.body.mu), ("charge", 0.0)]
    assert CONSORTIUM.manifest.policy.cap.mu > first.body.mu

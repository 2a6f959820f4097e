"""The ledger of rounds in containers says what does not fit."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from shoal_protocol.rounds.attestations import Abandonment, AbandonmentReason, Holdings, Vote
from shoal_protocol.rounds.round_spec import AskedHolders
from tests.containers.ledger import Outbox, Round, reckon
from tests.world import examples
from tests.world.examples import PLACE

SPEC, RESULT = examples.SPEC, examples.RESULT
BOUND: dict[str, Any] = {"manifest": SPEC.manifest, "round": SPEC.digest, "entry": PLACE}
LEFT_OUT = max(examples.POPULATION)  # the one client who is not in the cohort


def holdings(node: str, clients: Iterable[int]) -> Holdings:
    return Holdings.attest(
        examples.held(clients),
        examples.POPULATION,
        manifest=SPEC.manifest,
        round_id=SPEC.digest,
        node=node,
        entry=PLACE,
    )


HELD = {node: holdings(node, examples.COHORT) for node in SPEC.compute_nodes} | {
    "compute-0": holdings("compute-0", examples.POPULATION)
}
VOTES = {
    node: Vote(
        **BOUND,
        node=node,
        nodes=SPEC.compute_nodes,
        cohort=RESULT.cohort,
        cohort_size=RESULT.cohort_size,
    )
    for node in SPEC.compute_nodes
}
ABANDONMENT = Abandonment(
    **BOUND, party="aggregator", reason=AbandonmentReason(code="holdings_missing")
)
PUBLISHED: dict[str, Any] = {
    "spec": SPEC,
    "asked": AskedHolders.of(examples.POPULATION, examples.CONSORTIUM.roster),
    "result": RESULT,
    "abandonment": None,
    "holdings": HELD,
    "votes": VOTES,
}


def outbox(clients: dict[str, Iterable[int]], paid: int = 1) -> Outbox:
    acknowledged = {
        (SPEC.digest, node): dict.fromkeys(found, b"") for node, found in clients.items()
    }
    return Outbox(acknowledged, Counter({(SPEC.digest, 0): paid}))


def test_shares_are_counted_left_out_or_in_an_abandoned_round() -> None:
    box = outbox({"compute-0": examples.POPULATION, "compute-1": examples.COHORT})
    ledger = reckon([Round(**PUBLISHED)], [box], lost=0)
    size = len(examples.COHORT)
    assert (ledger.wrong, ledger.published, ledger.lost, ledger.double) == ([], 1, 0, 0)
    assert (ledger.acknowledged, ledger.counted, ledger.left_out) == (2 * size + 1, 2 * size, 1)
    abandoned = Round(**PUBLISHED | {"result": None, "abandonment": ABANDONMENT})
    ledger = reckon([abandoned], [box], lost=0)
    assert (ledger.wrong, ledger.unreleased) == ([], 2 * size + 1)
    assert ledger.abandoned == Counter(holdings_missing=1)


@pytest.mark.parametrize(
    "change",
    [
        {"abandonment": ABANDONMENT},  # two ends
        {"result": None},  # none
        {"votes": {"compute-0": VOTES["compute-0"]}},
        {"holdings": HELD | {"compute-1": holdings("compute-1", [0, 1])}},
        {"result": RESULT.model_copy(update={"cohort_size": RESULT.cohort_size - 1})},
    ],
)
def test_what_does_not_fit_is_said(change: dict[str, Any]) -> None:
    assert reckon([Round(**PUBLISHED | change)], [], lost=0).wrong


def test_a_share_that_was_acknowledged_and_is_not_attested_is_said() -> None:
    box = outbox({"compute-1": [LEFT_OUT]})
    assert reckon([Round(**PUBLISHED)], [box], lost=0).wrong

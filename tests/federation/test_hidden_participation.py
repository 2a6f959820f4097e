"""Jobs in which each client's own coin decides in every round whether its records count."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal_compute.schema import ledger as tables
from shoal_protocol.amplification import hidden_mu
from shoal_protocol.certificate_checks import verify_certificate
from shoal_protocol.ledger import LedgerEntry
from tests.simulated.audit import audit, coins_of, look_at
from tests.simulated.batches import (
    CLIENTS,
    CONSORTIUM,
    HIDDEN_ROUNDS,
    HIDDEN_TASK,
    HOLDERS,
)
from tests.simulated.trust import SITES, Trust, make_trust
from tests.simulation import PRIVACY, Federation


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"), **CONSORTIUM)


@pytest.fixture
async def federation(trust: Trust, tmp_path: Path) -> AsyncIterator[Federation]:
    async with Federation(trust, tmp_path, holders=HOLDERS) as running:
        yield running


def charged_by_node(federation: Federation, name: str) -> list[LedgerEntry]:
    with federation._up[name].party._storage._engine.begin() as db:
        return [each.entry for each in tables.after(db, 0)]


async def test_all_answer_every_round_and_pay_once_for_all(
    federation: Federation, trust: Trust
) -> None:
    job = await federation.submit(task=HIDDEN_TASK)
    assert (await federation.finish(job))["phase"] == "finished"
    report = await federation.report(job)

    assert set(report.cohort_sizes) == {CLIENTS}
    assert len(report.rounds) == HIDDEN_ROUNDS
    whole = PRIVACY.cost.mu
    assert whole * (1 - 1e-4) < report.privacy.mu <= whole
    assert report.privacy.epsilon <= PRIVACY.epsilon
    for site in SITES:
        for costs in (await federation.holder(site).spent()).values():
            assert [cost.mu for cost in costs] == [whole, *[0.0] * (HIDDEN_ROUNDS - 1)]
    for node in federation.nodes:
        entries = charged_by_node(federation, node)
        assert [entry.mu for entry in entries] == [report.privacy.mu, *[0.0] * (HIDDEN_ROUNDS - 1)]
    results = await audit(federation)  # each contribution is a record or zeros, and fresh noise
    assert None not in results.values()
    check_coins(federation)

    encoded = await federation.after(federation.analyst.certificate(job))
    verified = verify_certificate(encoded, trust.consortium.signed_manifest.encode())
    public, *_, colluding, opening = verified.certificate.prices
    assert public.promised is not None and colluding.promised is not None
    assert public.promised.mu < colluding.promised.mu
    assert colluding.promised.mu == pytest.approx(report.privacy.mu, rel=1e-9)
    spec = look_at(federation).specs[report.rounds[0]]
    known = spec.known_cost.mu
    assert colluding.promised.mu == pytest.approx(
        hidden_mu(rate=0.25, mu=known, rounds=HIDDEN_ROUNDS), rel=1e-9
    )
    # who opens each client's own vector sees its coin, and that client's noise only
    assert opening.promised is not None
    expected = known * (spec.parties * HIDDEN_ROUNDS) ** 0.5
    assert opening.promised.mu == pytest.approx(expected, rel=1e-6)


def check_coins(federation: Federation) -> None:
    """112 coins of 1/4: outside of 9 to 48 with probability below 1e-4."""
    coins = coins_of(federation)
    assert len(coins) == HIDDEN_ROUNDS * CLIENTS
    assert 9 <= sum(coins.values()) <= 48
    rounds = {round_id for round_id, _ in coins}
    clients = {client for _, client in coins}
    by_round = {tuple(coins[each, client] for client in clients) for each in rounds}
    by_client = {tuple(coins[each, client] for each in rounds) for client in clients}
    assert len(by_round) > 5 and len(by_client) > 7  # neither rounds nor clients share coins


async def test_who_missed_the_first_round_pays_with_the_first_that_it_answers(
    federation: Federation,
) -> None:
    late = "clinic-c"  # as many clients as may be missing
    job, first = await federation.collecting(task=HIDDEN_TASK)
    await federation.crash(late)
    federation.absent.add(late)
    await federation.until(lambda: _has_result(federation, first))
    federation.absent.clear()
    assert (await federation.finish(job))["phase"] == "finished"
    for site in SITES:
        for costs in (await federation.holder(site).spent()).values():
            charges = [cost.mu for cost in costs]
            assert charges == [PRIVACY.cost.mu, *[0.0] * (len(charges) - 1)]
            assert (len(charges) < HIDDEN_ROUNDS) == (site == late)
    await audit(federation)


async def _has_result(federation: Federation, round_id: str) -> bool:
    return await federation.result(round_id) is not None

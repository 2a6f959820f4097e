"""What a node's operator is shown of its ledger, while the node runs, and no other way."""

import json
from typing import Any

import pytest
from pyroaring import BitMap

from shoal_compute.ledger_view import open_to_read, read_ledger
from shoal_protocol.wire.errors import LedgerBroken
from tests.service.test_charges import tamper
from tests.world.around_node import Federation

SETTINGS = {"dropouts": 1, "colluders": 2, "mu": 0.3}


@pytest.fixture
async def charged(federation: Federation) -> Federation:
    """A running node that charged two rounds; only clients 8 to 11 are in both."""
    for number, clients in enumerate((range(12), range(8, 19))):
        spec = federation.spec(number=number, population=BitMap(clients), **SETTINGS)
        await federation.announce(spec, [0])
    return federation


def look(federation: Federation, client: int | None = None) -> Any:
    engine = open_to_read(federation.directory / "0" / "compute.sqlite", None)
    with engine.connect() as db:
        shown = read_ledger(db, client)
    engine.dispose()
    return json.loads(json.dumps(shown))


async def test_the_whole_ledger_is_shown(charged: Federation) -> None:
    shown = look(charged)
    last = shown["entries"][-1]
    assert shown["head"] == {"number": last["number"], "hash": last["hash"]}
    once, twice = (line["cumulative_mu"] for line in shown["entries"])
    assert twice == pytest.approx(2**0.5 * once)
    assert shown["entries"][1]["cumulative_epsilon"] > shown["entries"][0]["cumulative_epsilon"]


async def test_a_client_is_shown_only_if_it_is_asked_for(charged: Federation) -> None:
    assert "client" not in look(charged)
    for client, charges in ((3, [1]), (9, [1, 2]), (15, [2]), (19, [])):
        shown = look(charged, client)
        assert [line["number"] for line in shown["charges"]] == charges
        assert all(line["clients"] in (11, 12) for line in shown["charges"])
    last = look(charged, 15)["charges"][-1]
    assert last["cumulative_mu"] == last["mu"]


async def test_a_ledger_that_was_tampered_with_is_not_shown(charged: Federation) -> None:
    engine = charged.services[0].resources.storage._engine
    tamper(engine, "UPDATE journal SET hash = content WHERE number = 1")
    with pytest.raises(LedgerBroken, match="entry 1"):
        look(charged)

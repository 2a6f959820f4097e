"""Whoever runs a service sees how a job went there; strangers do not."""

import re
from pathlib import Path

import httpx
import pytest

from shoal_kit.database_file import ACCEPT
from shoal_kit.pages.console import SIGN_IN, START
from shoal_service.view import Operator
from tests.world.federation import Federation
from tests.world.trust import Trust, make_trust

TOKEN = "a" * 64
OPERATOR = Operator(TOKEN, console=True)


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    return make_trust(tmp_path_factory.mktemp("trust"))


async def page_of(client: httpx.AsyncClient, path: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", (await client.get(path)).text))


async def test_every_service_has_a_console_that_shows_a_job_s_end(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, operator=OPERATOR) as federation:
        await federation.learn()
        for name, expected in {
            "trainer": ("Jobs by phase Phase Jobs finished 1", "Journal 2 entries"),
            "aggregator": ("Rounds by phase Phase Rounds published 1",),
            federation.nodes[0]: ("Rounds published 1", "Journal 5 entries"),
        }.items():
            transport = httpx.ASGITransport(federation.app(name))
            async with httpx.AsyncClient(transport=transport, base_url="https://it") as client:
                assert (await client.get(START)).headers["location"] == SIGN_IN
                await client.post(SIGN_IN, data={"token": TOKEN})
                page = await page_of(client, START)
                if name == "trainer":
                    refused = await client.get("/v1/ledger")
                    token = {"Authorization": f"Bearer {TOKEN}"}
                    (charge,) = (await client.get("/v1/ledger", headers=token)).json()["entries"]
                    assert refused.status_code == 401 and charge["job"] not in refused.text
            for words in (
                "Action needed: The certificate ends in 29 days",
                f" {name} ",
                *expected,
            ):
                assert words in page, page


async def test_an_operator_is_told_how_to_restore_a_service_that_was_set_back_and_strangers_are_not(
    trust: Trust, tmp_path: Path
) -> None:
    async with Federation(trust, tmp_path, operator=OPERATOR) as federation:
        await federation.learn()
        name = federation.nodes[0]
        await federation.set_back(name, None)
        for _ in range(3):
            await federation.step()
            federation.clock.move(6.0)
        transport = httpx.ASGITransport(federation.app(name))
        async with httpx.AsyncClient(transport=transport, base_url="https://it") as client:
            stranger = (await client.get("/readyz")).text
            await client.post(SIGN_IN, data={"token": TOKEN})
            page = await page_of(client, START)
    remedy = f"read .{{1,5}}Restore.{{1,5}} in docs/handbook.md.*{ACCEPT}=[0-9a-f]{{16}}"
    assert re.search(remedy, page), page
    assert "operator" not in page.partition("Action needed")[2][:300]
    assert "set back" in stranger and ACCEPT not in stranger

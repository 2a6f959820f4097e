"""The console of a Compute node: who sees it, what it shows, and that it names no data holder."""

import json
from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path

import pytest
from playwright.async_api import Page

from shoal_hosting.operators.view import Operator, RecentLines
from shoal_hosting.pages.console import START
from shoal_hosting.security import server_tls
from tests.world.around_node import Federation
from tests.world.browsers import DESK, PHONE, browser_page, faults, needs_browser, picture
from tests.world.loopback import served
from tests.world.parties import reachable
from tests.world.tls_identities import make_identity

TOKEN = "a" * 64
EVENTS = (
    {"event": "round frozen", "level": "info", "round": "3f" * 32, "held": 11},
    {"event": "a peer's clock differs", "level": "warning", "party": "compute-2", "seconds": 8},
    {"event": "<i>work</i> failed", "level": "error", "frames": ["node.py:7 step", "x.py:1 y"]},
)


@pytest.fixture
def log() -> RecentLines:
    kept = RecentLines(StringIO())
    for each in EVENTS:
        kept.write(json.dumps({"timestamp": "2026-03-01T12:00:00.5Z"} | each) + "\n")
    return kept


@pytest.fixture
async def federation(tmp_path: Path, log: RecentLines) -> AsyncIterator[Federation]:
    """Three nodes, of which the first has a console; a round is under way there."""
    made = Federation(tmp_path, trust=reachable())
    await made.services[0].close()
    operator = Operator(TOKEN, log=log)
    made.services[0] = made.start(0, tmp_path / "0", operator=operator)
    made.wire.apps["compute-0.example"] = made.services[0].app
    yield made
    await made.close()


async def signed_in(page: Page, url: str) -> None:
    await page.goto(url)
    await page.get_by_label("Token").fill(TOKEN)
    await page.keyboard.press("Enter")


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
async def test_its_pages_are_readable_in_a_browser(
    federation: Federation, tmp_path: Path, scripts: bool, dark: bool, size: dict[str, int]
) -> None:
    spec, other = federation.spec(), federation.spec(number=1)
    for each in (spec, other):
        await federation.announce(each)
    for part in range(0, 12, 3):
        await federation.upload_all(spec, range(part, part + 3))
        federation.clock.move(13)
    await federation.upload_all(other, range(4))
    federation.clock.skew_seconds = {"compute-1": 8.0, "compute-2": 8.0}
    federation.clock.move(21)
    await federation.step(times=2)
    federation.wire.cut.add("compute-1.example")
    await federation.request(0, "GET", f"/v1/rounds/{'0' * 64}")
    identity = make_identity()
    tls = server_tls(*identity.write(tmp_path), identity.pem)
    look = {"scripts": scripts, "dark": dark, "size": size}
    async with served(federation.services[0].app, tls) as port, browser_page(**look) as page:
        await signed_in(page, f"https://127.0.0.1:{port}{START}")
        for name, heading in (("Now", "compute-0"), ("Refused", "Refused"), ("Log", "Log")):
            await page.get_by_role("link", name=name, exact=True).click()
            await page.get_by_role("heading", level=1, name=heading).wait_for()
            assert await faults(page, scripts=scripts) == []
            if scripts:
                look_of = "dark" if dark else "light"
                await picture(page, f"operator-{name}-{look_of}-{size['width']}")

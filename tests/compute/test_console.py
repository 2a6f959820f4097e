"""The console of a Compute node: who sees it, what it shows, and that it names no data holder."""

import json
import re
from collections.abc import AsyncIterator
from io import StringIO
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page

from shoal_hosting.operators.console import LOG, REFUSED
from shoal_hosting.operators.view import Operator, RecentLines
from shoal_hosting.pages.console import SIGN_IN, START
from shoal_hosting.security import server_tls
from tests.world.around_node import Federation
from tests.world.browsers import DESK, PHONE, browser_page, faults, needs_browser, picture
from tests.world.loopback import served
from tests.world.parties import reachable
from tests.world.tls_identities import make_identity

TOKEN = "a" * 64
PAGES = (START, REFUSED, LOG)
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


async def browser(federation: Federation) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(federation.services[0].app)
    return httpx.AsyncClient(transport=transport, base_url="https://compute-0.example")


async def shown(federation: Federation, path: str = START) -> str:
    """Return the words of a page as its operator sees it."""
    async with await browser(federation) as client:
        await client.post(SIGN_IN, data={"token": TOKEN})
        answer = await client.get(path)
        assert answer.status_code == 200
        return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", answer.text))


async def test_strangers_see_the_sign_in_and_nothing_of_the_node(federation: Federation) -> None:
    async with await browser(federation) as client:
        for path in PAGES:
            answer = await client.get(path, headers={"Authorization": f"Bearer {'b' * 64}"})
            assert (answer.status_code, answer.headers["location"]) == (303, SIGN_IN)
            assert answer.content == b""
        assert "compute-0" not in (await client.get(SIGN_IN)).text


async def test_without_a_console_nothing_is_at_its_paths(federation: Federation) -> None:
    for path in (*PAGES, SIGN_IN, f"{START}/files/style.css"):
        assert (await federation.request(1, "GET", path)).status_code == 404


async def test_it_shows_rounds_shares_ledger_and_that_nothing_is_wrong(
    federation: Federation,
) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec, range(11))
    federation.clock.move(10)
    page = await shown(federation)
    assert "Nothing needs you." in page
    assert re.search(r"collecting 1 ", page)
    assert re.search(rf"{spec.digest[:12]} collecting \S+ \S+ UTC 12 11 ", page)
    assert "0.2 over the last minute; at most 1.1 in ten seconds" in page
    assert re.search(r"Ledger 1 entry; the digest of the last one is [0-9a-f]{64}", page)
    assert "Release 1.0, protocol 1 " in page
    assert re.search(r"Certificate ends in [\d,]+ days", page)
    assert re.search(r"Disk [\d,.]+ GiB free of", page)
    assert "TOKEN" not in page and TOKEN not in page


async def test_it_says_that_a_peer_s_clock_is_off(federation: Federation) -> None:
    spec = federation.spec()
    await federation.announce(spec)
    await federation.upload_all(spec)
    federation.clock.skew_seconds = {"compute-1": 8.0, "compute-2": 8.0}
    federation.clock.move(61)
    await federation.step(times=2)
    page = await shown(federation)
    # whom it asked first is by chance
    assert re.search(r"The clock of compute-[12] and this one differ by 8 seconds\.", page)
    assert "+8.0 s" in page
    assert re.search(r"messages answered [1-9]", page)


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

"""Who may see a console's pages and change something there, and what a browser is told."""

import re

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.responses import Response

from shoal_kit.pages.console import SIGN_IN, START, Console, Form, application, go
from shoal_kit.peers.service_calls import Refused
from tests.world.clock import HandMovedClock

TOKEN = "a" * 64


class Site:
    """An application with a console that counts what is changed."""

    def __init__(self, clock: HandMovedClock, token: str = TOKEN) -> None:
        self.changes = 0
        self.app = FastAPI()
        console = Console(
            title="Party",
            sections={START: "Start", "/console/other": "Other"},
            token=token,
            token_file="/data/owner.token",
            package="shoal_kit.pages",
            clock=clock,
        )

        async def show(request: Request) -> Response:
            return console.shown(request, "message.html", heading="Start", message="<b>5</b>")

        async def change(request: Request, form: Form) -> Response:
            self.changes += int(form["by"])
            return go(START)

        console.page(START, show)
        console.action("/console/change", change)
        console.action("/console/end", change, is_final=True)
        self.app.include_router(console.routes)

    def browser(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="https://party")


@pytest.fixture
def clock() -> HandMovedClock:
    return HandMovedClock()


@pytest.fixture
def site(clock: HandMovedClock) -> Site:
    return Site(clock)


async def signed_in(site: Site) -> tuple[httpx.AsyncClient, str]:
    browser = site.browser()
    assert (await browser.post(SIGN_IN, data={"token": TOKEN})).headers["location"] == START
    page = (await browser.get(START)).text
    found = re.search(r'name="form" value="([0-9a-f]{64})"', page)
    assert found is not None
    return browser, found[1]


@pytest.mark.parametrize("token", ["", "b" * 64, TOKEN + "a", "é"])
async def test_a_stranger_sees_the_sign_in_alone(site: Site, token: str) -> None:
    async with site.browser() as browser:
        refused = await browser.post(SIGN_IN, data={"token": token})
        assert refused.status_code == 403
        assert "set-cookie" not in refused.headers
        assert token == "" or token not in refused.text
        assert (await browser.get(START)).headers["location"] == SIGN_IN
        changed = await browser.post("/console/change", data={"by": 1, "form": "0" * 64})
        assert changed.headers["location"] == SIGN_IN
    assert site.changes == 0


async def test_of_what_a_stranger_sends_only_a_few_short_fields_are_read(site: Site) -> None:
    """A form with parts within parts takes a minute to read, in which a service does nothing."""
    long = f"much={'m' * 4096}&token={TOKEN}".encode()
    async with site.browser() as browser:
        for sent in (
            await browser.post(SIGN_IN, data={"token": TOKEN}, files={"file": b""}),
            await browser.post(SIGN_IN, content=long),
        ):
            assert sent.status_code == 403


async def test_who_has_the_token_reads_and_changes(site: Site) -> None:
    browser, form = await signed_in(site)
    page = await browser.get(START)
    assert "&lt;b&gt;5&lt;/b&gt;" in page.text  # values are text
    changed = await browser.post("/console/change", data={"by": 2, "form": form})
    assert (changed.status_code, changed.headers["location"]) == (303, START)
    assert site.changes == 2


async def test_what_cannot_be_undone_needs_its_box_ticked(site: Site) -> None:
    browser, form = await signed_in(site)
    unsure = await browser.post("/console/end", data={"by": 2, "form": form})
    assert (unsure.status_code, site.changes) == (409, 0)
    sure = await browser.post("/console/end", data={"by": 2, "form": form, "sure": "on"})
    assert (sure.status_code, site.changes) == (303, 2)


@pytest.mark.parametrize("form", ["", "0" * 64, TOKEN])
async def test_another_site_s_form_changes_nothing(site: Site, form: str) -> None:
    browser, _ = await signed_in(site)
    assert (await browser.post("/console/change", data={"by": 1, "form": form})).status_code == 403
    assert site.changes == 0


@pytest.mark.parametrize("session", ["", ".", "1.2", "9999999999.", f"x.{'0' * 64}", "é.1"])
async def test_no_cookie_is_believed_that_the_token_does_not_authenticate(
    site: Site, session: str
) -> None:
    async with site.browser() as browser:
        [cookie] = (await browser.post(SIGN_IN, data={"token": TOKEN})).cookies
        browser.cookies.clear()
        headers = {b"Cookie": f"{cookie}={session}".encode()}
        assert (await browser.get(START, headers=headers)).headers["location"] == SIGN_IN


async def test_pages_load_nothing_from_elsewhere_and_are_kept_nowhere(site: Site) -> None:
    browser, _ = await signed_in(site)
    for path in (START, SIGN_IN, "/console/files/style.css", "/console/files/live.js"):
        answer = await browser.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        assert answer.headers["cache-control"] == "no-store"
        assert "http://" not in answer.text and "https://" not in answer.text
    assert (await browser.get("/console/files/console.py")).status_code == 303


async def test_a_page_tells_why_a_service_refuses_and_nothing_of_a_fault_of_ours(
    clock: HandMovedClock,
) -> None:
    console = Console(
        title="Party",
        sections={},
        token=TOKEN,
        token_file="",
        package="shoal_kit.pages",
        clock=clock,
    )

    async def refused(request: Request) -> Response:
        raise Refused("the job is over")

    async def faulty(request: Request) -> Response:
        raise ValueError("a value of ours")

    console.serve("The service", {START: refused, "/console/other": faulty}, {}, {})
    app = application("Party", console, token=TOKEN)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://localhost") as browser:
        await browser.post(SIGN_IN, data={"token": TOKEN})
        told, silent = await browser.get(START), await browser.get("/console/other")
    assert (told.status_code, silent.status_code) == (409, 500)
    assert "the job is over" in told.text and "a value of" not in silent.text

"""The console's frame in a real browser: sign-in, live updates, colours, keyboard."""

import pytest
from fastapi import FastAPI, Request
from starlette.responses import Response

from shoal_kit.clock import system_clock
from shoal_kit.pages.console import SIGN_IN, START, Console, Form, go
from tests.world.browsers import browser_page, needs_browser
from tests.world.loopback import served

pytestmark = [needs_browser, pytest.mark.slow]
TOKEN = "a" * 64


def site() -> tuple[FastAPI, list[str]]:
    app, shown = FastAPI(), ["first"]
    console = Console(
        title="Party",
        sections={START: "Start", "/console/other": "Other"},
        token=TOKEN,
        token_file="/data/owner.token",
        package="tests.kit.pages",
        clock=system_clock,
        is_encrypted=False,
    )

    async def show(request: Request) -> Response:
        return console.shown(request, "counting.html", what=shown[-1])

    async def change(request: Request, form: Form) -> Response:
        shown.append(form["what"])
        return go(START)

    console.page(START, show)
    console.action("/console/change", change)
    app.include_router(console.routes)
    return app, shown


@pytest.mark.parametrize("scripts", [True, False])
async def test_sign_in_forms_and_sign_out_work_with_and_without_scripts(scripts: bool) -> None:
    app, _ = site()
    async with served(app) as port, browser_page(scripts=scripts) as page:
        await page.goto(f"http://127.0.0.1:{port}{START}")
        await page.get_by_label("Token").fill(TOKEN)
        await page.keyboard.press("Enter")
        await page.get_by_label("What").fill("<i>second</i>")
        await page.get_by_role("button", name="Change").click()
        assert await page.get_by_test_id("what").inner_text() == "<i>second</i>"
        await page.get_by_role("button", name="Sign out").click()
        assert page.url.endswith(SIGN_IN)

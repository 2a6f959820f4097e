"""A real browser for pages, where the machine has one: Debian's package `chromium`."""

import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, async_playwright

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no browser here: install Debian's package chromium"
)
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
_SIDEWAYS: Final = """
    [document.documentElement, ...document.querySelectorAll(".wide")]
        .filter(each => each.scrollWidth > each.clientWidth)
        .map(each => each.outerHTML.slice(0, 200))
"""
_COUNTED: Final = "elements => document.querySelectorAll(elements).length"
_TABLES: Final = {
    "table": "table",
    "row": "tr",
    "columnheader": "thead th",
    "rowheader": "tbody th",
    "cell": "td",
}
_QUIET: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SCREENSHOTS: Final = os.environ.get("SHOAL_SCREENSHOTS")
"""A directory in which tests leave pictures of pages for people to look at; or None."""


@asynccontextmanager
async def browser_page(
    *, scripts: bool = True, dark: bool = False, size: dict[str, int] = DESK
) -> AsyncIterator[Page]:
    """Yield an empty page of a new browser, which asks nobody but the servers of tests."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM,
            chromium_sandbox=os.geteuid() != 0,
            args=list(_QUIET),
        )
        try:
            given: dict[str, Any] = {"viewport": size, "color_scheme": "dark" if dark else "light"}
            page = await browser.new_page(
                ignore_https_errors=True, java_script_enabled=scripts, **given
            )
            page.set_default_timeout(20_000)
            yield page
        finally:
            await browser.close()


async def faults(page: Page, *, scripts: bool = True) -> Sequence[str]:
    """Return what is wrong with the page shown, by its width, its tables and accessibility.

    The checker of accessibility is a script: without `scripts` it is not asked.
    """
    return [*await _misfits(page), *(await _findings(page) if scripts else ())]


async def _findings(page: Page) -> Sequence[str]:
    """Return what a checker of accessibility calls serious or critical on the page shown."""
    violations = (await Axe().run(page)).response["violations"]
    return [
        f"{each['id']}: {node['html']}"
        for each in violations
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


async def _misfits(page: Page) -> Sequence[str]:
    """Return what of the page shown scrolls sideways, and what of its tables is not told as such.

    What is told is what the browser tells a screen reader.
    """
    sideways: list[str] = await page.evaluate(_SIDEWAYS)
    session = await page.context.new_cdp_session(page)
    nodes = (await session.send("Accessibility.getFullAXTree"))["nodes"]
    told = Counter(each["role"]["value"] for each in nodes if not each["ignored"])
    untold = []
    for role, elements in _TABLES.items():
        shown = await page.evaluate(_COUNTED, f"{elements}:not(details:not([open]) *)")
        if told[role] < shown:
            untold.append(f"{shown - told[role]} of {shown} {elements} are no {role}")
    return [*sideways, *untold]


async def picture(page: Page, name: str) -> None:
    """Leave a picture of the whole page, if somebody wants to look at it."""
    if SCREENSHOTS is not None:
        await page.screenshot(path=f"{SCREENSHOTS}/{name}.png", full_page=True)

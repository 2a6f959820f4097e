"""The analyst's console over a whole federation: every page, every form, and who may not."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import date
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI

from shoal.jobs.analyst import Analyst
from shoal_command_groups.console.pages import console_of, parsed
from shoal_kit.clock import system_clock
from shoal_kit.pages.console import SIGN_IN, START
from shoal_protocol.trust.dictionary import Category, Date, Flag, Number
from tests.world.browsers import DESK, PHONE, browser_page, faults, needs_browser, picture
from tests.world.federation import Federation
from tests.world.loopback import served
from tests.world.trust import SITES, Trust

TOKEN = "a-token-of-many-letters"
VARIABLES = (
    Number(name="age", meaning="age at admission", unit="years", lower=18, upper=90),
    Number(name="pressure", meaning="systolic", lower=80, upper=180, missing="indicator"),
    Flag(name="smoker", meaning="smokes now"),
    Category(name="stage", meaning="of the disease", levels=("I", "II", "III", "IV")),
    Date(name="since", meaning="first visit", earliest=date(2000, 1, 1), latest=date(2026, 1, 1)),
)
CLIENTS = sum(SITES.values())
TASK_FILE = f"""
[task]
name = "linear_regression"
method = "plain"
[features]
age = [18, 90]
[target]
pressure = [80, 180]
[settings]
purpose = "what raises <b>blood pressure</b>"
epsilon = 2.0
delta = 1e-6
dropouts = 2
colluders = 2
minimum_population = 10
maximum_population = {CLIENTS}
join_seconds = 10
round_seconds = 40
grace_seconds = 40
"""


class Desk:
    """An analyst at her browser: the console of a federation, and forms that are sent from it."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        own = federation.analyst.inner
        self.app: FastAPI = console_of(self._analyst(), token=TOKEN, clock=own.clock)
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://127.0.0.1:8470"
        )

    def _analyst(self) -> Analyst:
        own, federation = self.federation.analyst.inner, self.federation
        return Analyst(
            name=own.name,
            key=own._key_in,
            book=own.book,
            clock=own.clock,
            random_bytes=own._random_bytes,
            transport=federation.wire.of(federation._analyst_life),
        )

    async def get(self, path: str) -> httpx.Response:
        return await self.federation.after(self.http.get(path))

    async def send(self, path: str, fields: dict[str, str], **more: Any) -> httpx.Response:
        page = (await self.get(START)).text
        found = re.search(r'name="form" value="([0-9a-f]{64})"', page)
        assert found is not None
        sent = self.http.post(path, data={"form": found[1], **fields}, **more)
        return await self.federation.after(sent)

    async def submit(self) -> str:
        """Check the task file and submit it from the page that says so; return the job."""
        page = (await self.send("/console/new/check", {"toml": TASK_FILE})).text
        assert "It would run" in page
        fields = dict(re.findall(r'name="(ticket)" value="([^"]*)"', page))
        taken = await self.send("/console/new/submit", {**fields, "toml": TASK_FILE})
        again = await self.send("/console/new/submit", {**fields, "toml": TASK_FILE})
        assert taken.headers["location"] == again.headers["location"]
        return str(taken.headers["location"]).rpartition("/")[2]


@asynccontextmanager
async def at(federation: Federation) -> AsyncIterator[Desk]:
    """Sign in at the console of a federation."""
    await federation.step()
    opened = Desk(federation)
    await opened.http.post(SIGN_IN, data={"token": TOKEN})
    yield opened
    await opened.http.aclose()


@pytest.fixture
async def desk(federation: Federation) -> AsyncIterator[Desk]:
    async with at(federation) as opened:
        yield opened


async def test_a_job_is_checked_submitted_followed_and_read_in_the_console(desk: Desk) -> None:
    assert "No job is under way" in (await desk.get(START)).text
    job = await desk.submit()
    joining = (await desk.get(f"{START}/jobs/{job}")).text
    for said in (
        "Clients are joining",
        "Joining open until",
        "0 of 1 rounds published",
        "Job ends by",
    ):
        assert said in joining
    assert "what raises &lt;b&gt;blood pressure" in joining
    await desk.federation.until(lambda: desk.federation.is_collecting(job))
    running = (await desk.get(f"{START}/jobs/{job}")).text
    assert "Rounds are under way" in running and "collecting" in running and " data-live" in running
    state = await desk.federation.finish(job)
    finished = (await desk.get(f"{START}/jobs/{job}")).text
    report = await desk.federation.report(job)
    for said in (
        "The job is finished",
        "intercept",
        f"{report.posterior.mean[1]:.5g}",
        "1 of 1 rounds published",
    ):
        assert said in finished
    [cohort] = report.cohort_sizes
    assert [(each["asked"], each["cohort"]) for each in state["rounds"]] == [(CLIENTS, cohort)]
    assert " data-live" not in finished and "Cancel the job" not in finished
    late = await desk.send(f"{START}/jobs/{job}/cancel", {"sure": "on"})
    assert late.status_code == 409 and "This cannot be done" in late.text
    listed = (await desk.get(START)).text
    assert "linear regression of age, pressure" in listed and "finished" in listed
    budget = (await desk.get("/console/budget")).text
    assert f"{CLIENTS} clients" in budget and "One more job may cost" in budget


class Replay:
    """What a real trainer told the analyst, told again: a browser does not wait for moved clocks.

    It stands for both the analyst and her only job.
    """

    def __init__(self, **told: Any) -> None:
        self.name, self.book = told.pop("name"), told.pop("book")
        self._told = told

    def job(self, job: str) -> "Replay":
        assert job == self._told["state"].job
        return self

    def hand_in(self, request: object) -> None:
        """Take the job that is finished already."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        told = self._told[name]
        return lambda *_, **__: told


@pytest.fixture
async def replay(trust: Trust, tmp_path: Path) -> Replay:
    """A federation's answers after a job, with variables as a dictionary has them."""
    async with Federation(trust, tmp_path) as federation:
        await federation.step()
        job = await federation.submit(purpose="what raises blood pressure")
        await federation.finish(job)
        analyst, after = federation.analyst, federation.after
        file = parsed(TASK_FILE)
        return Replay(
            name=analyst.name,
            book=analyst.book,
            state=await after(analyst.job(job).state()),
            request=await after(analyst.job(job).request()),
            result=await after(analyst.job(job).result()),
            certificate=await after(analyst.job(job).certificate()),
            jobs=await after(analyst.jobs()),
            check=await after(analyst.check(file.task, file.settings)),
            variables={each.name: each for each in VARIABLES},
            submit=analyst.job(job),
        )


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
async def test_pages_are_accessible_on_desk_and_phone(
    replay: Replay, dark: bool, size: dict[str, int]
) -> None:
    look = f"{'dark' if dark else 'light'}-{size['width']}"
    app = console_of(cast("Analyst", replay), token=TOKEN, clock=system_clock)
    async with served(app) as port, browser_page(dark=dark, size=size) as page:
        wrong: list[str] = []
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        await page.goto(f"http://127.0.0.1:{port}/")
        await page.get_by_label("Token").fill(TOKEN)
        await page.keyboard.press("Enter")

        async def look_at(name: str, heading: str) -> None:
            await page.get_by_role("heading", name=heading, level=1).wait_for()
            assert await faults(page) == []
            await picture(page, f"analyst-{name}-{look}")

        await look_at("jobs", "Jobs")
        for name in ("Budget", "Dictionary", "New job"):
            await page.get_by_role("link", name=name, exact=True).click()
            await look_at(name.replace(" ", "-"), name)
        await page.get_by_label("The text of a task file").fill(TASK_FILE)
        await page.get_by_role("button", name="Check the file").click()
        await look_at("check", "Would this job run?")
        await page.get_by_role("link", name="Jobs", exact=True).click()
        await page.get_by_role("link", name="linear regression of age, pressure").click()
        await look_at("job", "Linear regression of age, pressure")
        assert await page.evaluate("document.querySelector('img').naturalWidth") > 100
        await page.get_by_role("link", name="The certificate’s page").click()
        await look_at("certificate", "Release certificate")
        assert wrong == []


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("scripts", [True, False])
async def test_a_job_is_written_with_the_keyboard_and_without_scripts(
    replay: Replay, scripts: bool
) -> None:
    app = console_of(cast("Analyst", replay), token=TOKEN, clock=system_clock)
    async with served(app) as port, browser_page(scripts=scripts) as page:
        await page.goto(f"http://127.0.0.1:{port}{START}")
        await page.get_by_label("Token").press_sequentially(TOKEN)
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="New job").click()
        await page.get_by_role("link", name="linear regression", exact=True).click()
        text = page.get_by_label("The text of a task file")
        await text.fill(TASK_FILE.replace("pressure = [80, 180]", "pressure = [80]"))
        await page.get_by_role("button", name="Check the file").press("Enter")
        await page.get_by_text("The task file is not valid.").wait_for()
        await text.fill(TASK_FILE)
        await page.get_by_role("button", name="Check the file").press("Enter")
        await page.get_by_role("heading", name="Would this job run?").wait_for()
        await page.get_by_role("button", name="Submit the job").press("Enter")
        await page.get_by_text("The job is finished").wait_for()

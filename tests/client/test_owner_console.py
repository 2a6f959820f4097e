"""The data owner's console over an agent: every page and form, who may not, and what goes wrong."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from nacl.signing import SigningKey
from prometheus_client import CollectorRegistry

from shoal_agent.application import create_agent_application
from shoal_agent.console.pages import JOBS, LEDGER, RULES, console_of
from shoal_agent.console.sentences import rules
from shoal_holder.policy import Policy
from shoal_holder.vault import Vault
from shoal_kit.pages.console import SIGN_IN, START
from shoal_kit.peers.service_calls import Endpoint
from shoal_kit.security import server_tls
from shoal_protocol.jobs.membership import approval_of
from shoal_protocol.wire.documents import sign
from tests.world.around_holder import POLICY, PRIVACY, World
from tests.world.browsers import DESK, PHONE, browser_page, faults, needs_browser, picture
from tests.world.examples import signing_key
from tests.world.loopback import served
from tests.world.tls_identities import make_identity

TOKEN, OF_THE_AGENT = "a-token-of-many-letters", "b" * 64
CLIENTS = 60
PURPOSE = "what raises <b>blood pressure</b>"
PAGES = (START, JOBS, LEDGER, RULES)


class Desk:
    """An owner at a browser: an agent, and the console that asks it."""

    def __init__(self, directory: Path, **policy: Any) -> None:
        self.world = World(directory, CLIENTS)
        rules = Policy.model_validate(POLICY.model_dump() | policy)
        self.holder = self.world.holder(policy=rules)
        self.agent = create_agent_application(
            self.holder,
            token=OF_THE_AGENT,
            registry=CollectorRegistry(),
            vitals=None,
            metrics_for_anybody=False,
        )
        self.app = self.console()
        self.http = self.browser()

    def console(
        self, token: str = OF_THE_AGENT, app: Any = None, owner: SigningKey | None = None
    ) -> Any:
        over = httpx.ASGITransport(app or self.agent)
        agent = Endpoint("https://agent.example", None, token, over)
        return console_of(agent, token=TOKEN, clock=self.world.clock, owner_key=owner)

    async def sit_down(self, owner: SigningKey | None) -> None:
        """Have an owner start a console of her own, and sign in."""
        self.http = self.browser(self.console(owner=owner))
        await self.http.post(SIGN_IN, data={"token": TOKEN})

    def browser(self, app: Any = None) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app or self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8471")

    async def job(self, *, silent: str | None = None, **changes: Any) -> str:
        """Have a job joined and its round answered, to a node that is `silent` in vain."""
        request = self.world.submit(**{"purpose": PURPOSE, **changes})
        await self.holder.step()
        if (await self.holder.vault.ask(Vault.policy)).approval != "automatic":
            for name, key in (("alice", ALICE), ("bob", BOB)):
                body = approval_of(
                    request.body, holder=0, owner=name, decision="approve", now=self.world.clock()
                )
                await self.holder.decide(sign(body, name, key).encode())
            await self.settle()
        if silent is not None:
            self.world.wire.scripts[silent] = lambda _: httpx.Response(503)
        self.world.announce(request)
        await self.holder.step()
        return request.digest

    async def settle(self) -> None:
        """Have the agent see what was decided, and then act on it."""
        for _ in range(2):
            await self.holder.step()

    async def get(self, path: str) -> str:
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return words(answer)

    async def send(self, path: str, **fields: str) -> httpx.Response:
        page = (await self.http.get(START)).text
        found = re.search(r'name="form" value="([0-9a-f]{64})"', page)
        assert found is not None
        return await self.http.post(path, data={"form": found[1], **fields})


def words(answer: httpx.Response) -> str:
    """Return a page's words."""
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", answer.text))


ALICE, BOB = signing_key("alice"), signing_key("bob")
OWNERS = {"alice": bytes(ALICE.verify_key).hex(), "bob": bytes(BOB.verify_key).hex()}


@pytest.fixture
async def asking(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    """A desk at which owners approve jobs: one of them, or as many as a test says."""
    needed = getattr(request, "param", "one")
    desk = Desk(tmp_path, approval=needed, owners=OWNERS)
    await desk.sit_down(ALICE)
    yield desk
    await desk.http.aclose()
    await desk.holder.close()


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path)
    await desk.http.post(SIGN_IN, data={"token": TOKEN})
    yield desk
    await desk.http.aclose()
    await desk.holder.close()


async def test_strangers_see_the_sign_in_and_forms_from_elsewhere_change_nothing(
    desk: Desk,
) -> None:
    job = await desk.job()
    async with desk.browser() as stranger:
        for path in (*PAGES, f"{JOBS}/{job}"):
            assert (await stranger.get(path)).headers["location"] == SIGN_IN
        assert (await stranger.post(SIGN_IN, data={"token": OF_THE_AGENT})).status_code == 403
        rebound = await stranger.get(SIGN_IN, headers={"Host": "evil.example"})
        assert rebound.status_code == 400
    forged = await desk.http.post(f"{JOBS}/{job}/leave", data={"form": "0" * 64})
    assert forged.status_code == 403
    assert (await desk.holder.status()).jobs[0].ended is None
    for path in PAGES:
        answer = await desk.http.get(path)
        assert OF_THE_AGENT not in answer.text and TOKEN not in answer.text
        assert "unsafe" not in answer.headers["content-security-policy"]


async def test_only_the_agent_with_the_owner_s_certificate_is_asked(
    desk: Desk, tmp_path: Path
) -> None:
    own, other = make_identity(), make_identity()
    async with served(desk.agent, server_tls(*own.write(tmp_path), own.pem)) as port:
        for identity, status in ((own, 200), (other, 502)):
            asked = Endpoint(f"https://127.0.0.1:{port}", identity.pem, OF_THE_AGENT)
            app = console_of(asked, token=TOKEN, clock=desk.world.clock)
            async with desk.browser(app) as browser:
                await browser.post(SIGN_IN, data={"token": TOKEN})
                assert (await browser.get(LEDGER)).status_code == status


async def test_an_agent_that_shows_another_job_is_not_believed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await desk.job()
    view = await desk.holder.job(job)
    view.request["body"]["purpose"] = "another"

    async def lie(_: str) -> Any:
        return view

    monkeypatch.setattr(desk.holder, "job", lie)
    answer = await desk.http.get(f"{JOBS}/{job}")
    assert answer.status_code == 409 and "do not trust this agent" in answer.text


async def ask(desk: Desk, **changes: Any) -> str:
    """Have a job ask; return the path of its page."""
    job = desk.world.submit(purpose=PURPOSE, **changes).digest
    await desk.holder.step()
    return f"{JOBS}/{job}"


async def test_an_approval_is_signed_here_once_the_box_is_ticked(asking: Desk) -> None:
    path = await ask(asking)
    page = await asking.get(path)
    assert "Approve as alice" in page and "your agent takes part from now on." in page
    unsure = await asking.send(f"{path}/approve")
    assert unsure.status_code == 409 and "tick the box" in unsure.text
    await asking.settle()
    assert asking.world.trainer.joined == {}  # to look approves nothing
    assert (await asking.send(f"{path}/approve", sure="on")).headers["location"] == path
    assert "It is approved. " in await asking.get(path)
    await asking.settle()
    assert list(asking.world.trainer.joined) == [path.rpartition("/")[2]]
    assert "alice approved it 2026" in await asking.get(path)
    listed = await asking.get(START)
    assert "waits for a decision" not in listed and "Decided Job Outcome" in listed


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("asking", ["two"], indirect=True)
async def test_its_pages_are_readable_in_a_browser(
    asking: Desk, scripts: bool, dark: bool, size: dict[str, int]
) -> None:
    desk = asking
    desk.world.submit(privacy=PRIVACY.model_copy(update={"colluders": 1}))
    for silent in (None, "compute-2"):
        for node in desk.world.nodes:  # which keep one answer each
            node.held.clear()
        await desk.job(silent=silent)
    await ask(desk)
    look = {"scripts": scripts, "dark": dark, "size": size}
    async with served(desk.console(owner=ALICE)) as port, browser_page(**look) as page:
        wrong: list[str] = []
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)

        async def look_at(name: str, heading: str) -> None:
            await page.get_by_role("heading", name=heading, level=1).wait_for()
            assert await faults(page, scripts=scripts) == []
            if scripts:
                shade = "dark" if dark else "light"
                await picture(page, f"owner-{name}-{shade}-{size['width']}")

        await page.goto(f"http://127.0.0.1:{port}/")
        await page.get_by_label("Token").fill(TOKEN)
        await page.keyboard.press("Enter")
        await look_at("asks", "Asks")
        await page.get_by_role("link", name="Read and decide").press("Enter")
        await look_at("ask", "what raises")
        await page.get_by_label("For good").first.press("Space")
        await page.get_by_role("button", name="Approve as alice").press("Enter")
        await page.get_by_text("alice approved it").wait_for()
        for name in ("Ledger", "Policy", "Jobs"):
            await page.get_by_role("link", name=name, exact=True).first.press("Enter")
            await look_at(name.replace(" ", "-").lower(), name)
        await page.get_by_role("link", name="what raises").first.press("Enter")
        await look_at("job", "what raises")
        await page.get_by_label("For good").press("Space")
        await page.get_by_role("button", name="Leave the job").press("Enter")
        await page.get_by_text("You left it").wait_for()
        assert wrong == []


def test_an_owner_that_lets_crowds_spend_pure_epsilon_reads_the_odds_of_that() -> None:
    """e / (1 + e) is .731: 74 of 100, where Gaussian noise at the same epsilon leaves fewer."""
    with_crowds = {"maximum_local_epsilon": 1.0, "crowd_families": ("linear",)}
    rounds = POLICY.model_copy(update={"maximum_epsilon": 2.0, "delta": 1e-9})
    crowds = Policy.model_validate(rounds.model_dump() | with_crowds)
    less = Policy.model_validate(rounds.model_dump() | with_crowds | {"maximum_local_epsilon": 0.1})
    odds = rules(rounds)["In plain words"]
    assert "at most 57 of 100 cases" in odds
    assert "at most 74 of 100 cases" in rules(crowds)["In plain words"]
    assert rules(less)["In plain words"] == odds

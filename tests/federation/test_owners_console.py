"""A job waits for a data owner, who approves it in the console; then it runs to its certificate."""

import re
from pathlib import Path

import httpx
from nacl.signing import SigningKey
from prometheus_client import CollectorRegistry

from shoal_agent.application import create_agent_application
from shoal_agent.console.pages import LEDGER, SENT, console_of
from shoal_hosting.pages.console import SIGN_IN, START
from shoal_hosting.peers.service_calls import Endpoint
from tests.world.examples import signing_key
from tests.world.federation import Federation
from tests.world.trust import HOLDER_POLICY, SITES, Trust

TOKEN = "a-token-of-many-letters"


def browser(federation: Federation, site: str, owner: SigningKey) -> httpx.AsyncClient:
    """Return who asks the console that the owner of a site runs."""
    agent = create_agent_application(
        federation.holder(site),
        token=TOKEN,
        registry=CollectorRegistry(),
        vitals=None,
        metrics_for_anybody=False,
    )
    asked = Endpoint("https://agent.example", None, TOKEN, httpx.ASGITransport(agent))
    clock = federation.clock.of(site)
    app = console_of(asked, token=TOKEN, clock=clock, owner_key=owner)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1")


async def test_a_job_waits_until_its_owner_approves_it_and_then_runs(
    trust: Trust, tmp_path: Path
) -> None:
    alice = signing_key("alice")
    rules = HOLDER_POLICY.model_copy(
        update={"approval": "one", "owners": {"alice": bytes(alice.verify_key).hex()}}
    )
    holders = {"clinic-b": {"policy": rules}}
    async with Federation(trust, tmp_path, holders=holders) as federation:
        await federation.step()
        job = await federation.submit(purpose="blood pressure and age", join_seconds=120)

        async def is_told() -> bool:
            return bool((await federation.state(job))["approvals"]["waits"])

        await federation.until(is_told)
        state = await federation.state(job)
        others = sum(SITES.values()) - SITES["clinic-b"]
        assert (state["phase"], state["joined"]) == ("joining", others)
        async with browser(federation, "clinic-b", alice) as http:
            await http.post(SIGN_IN, data={"token": TOKEN})
            asks = (await http.get(START)).text
            assert "One job waits for a decision." in asks and "blood pressure and age" in asks
            page = (await http.get(f"{START}/asks/{job}/approve")).text
            form = re.search(r'name="form" value="([0-9a-f]{64})"', page)
            assert form is not None
            await http.post(f"{START}/asks/{job}/approve", data={"form": form[1]})
            finished = await federation.finish(job)
            assert (finished["phase"], finished["joined"]) == ("finished", sum(SITES.values()))
            assert "all 3 Compute nodes have it" in (await http.get(SENT)).text
            assert f"{SITES['clinic-b']} records have paid" in (await http.get(LEDGER)).text

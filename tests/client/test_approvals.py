"""An agent whose owners are asked: what it shows them, how they decide, and what follows."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import Result

from shoal_agent.assembly import Service
from shoal_agent.client_files import hex_line
from shoal_agent.console.own_agent import request_of
from shoal_holder.policy import Policy
from shoal_kit.peers import service_calls
from shoal_kit.private_files import write_new
from shoal_kit.tls_certificates import self_signed
from shoal_protocol.crowds.draws import CrowdJobRequest
from shoal_protocol.jobs.membership import JOINED, Membership, approval_of
from shoal_protocol.wire.documents import decode, sign
from shoal_protocol.wire.encoding import format_time
from tests.client.test_agent import owner_token, start
from tests.client.test_agent import world as world  # a fixture
from tests.client.test_policy import RULES
from tests.command.running import run, words
from tests.holder.test_approvals import ALICE, BOB, ONE, OWNERS
from tests.world.around_holder import World, vault_of
from tests.world.around_holder_crowds import CROWD_POLICY, CrowdWorld
from tests.world.examples import signing_key

LISTED = f'owners = {{alice = "{OWNERS["alice"]}", bob = "{OWNERS["bob"]}"}}\n'


def asking(world: World, approval: str, owners: str = LISTED) -> Service:
    """Start the agent of a data holder that asks its owners."""
    rules = RULES.replace('"automatic"', f'"{approval}"') + owners
    (world.directory / "policy.toml").write_text(rules)
    return start(world)


@pytest.fixture
async def agent(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """Start one whose owners are two of two, and let commands ask it without a port."""
    service = asking(world, "two")
    heard(world)
    transport, call = httpx.ASGITransport(app=service.app), service_calls.call
    monkeypatch.setattr(
        service_calls,
        "call",
        lambda place, *of, **how: call(replace(place, transport=transport), *of, **how),
    )
    tls = self_signed("agent", ["agent"], now=world.clock(), valid_days=10)
    (world.directory / "party" / "tls.crt").write_text(tls.certificate_pem)
    for name, key in (("alice", ALICE), ("bob", BOB), ("eve", signing_key("eve"))):
        write_new(world.directory / name, hex_line(bytes(key)), private=True)
    yield service
    await service.close()


def heard(world: World) -> list[Membership]:
    """Have the trainer take notices; return what comes."""
    taken: list[Membership] = []

    def trainer(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith("/memberships"):
            return None
        said = decode(request.content, Membership).body
        if said.state == JOINED:
            return None
        taken.append(said)
        return httpx.Response(201, json={})

    world.wire.scripts["trainer"] = trainer
    return taken


async def shoal(world: World, command: str, *arguments: object, asked: str | None = "y") -> Result:
    home = world.directory
    where = ("--agent", home / "party", "--data", home / "data", "--url", "https://agent")
    return await asyncio.to_thread(run, "agent", command, *arguments, *where, asked=asked)


async def decided(world: World, command: str, job: str, who: str, *more: str) -> Result:
    return await shoal(world, command, job, "--owner", world.directory / who, *more)


async def api(agent: Service, world: World, **request: Any) -> httpx.Response:
    transport = httpx.ASGITransport(app=agent.app)
    headers = {"Authorization": f"Bearer {owner_token(world)}"}
    async with httpx.AsyncClient(transport=transport, base_url="https://agent") as client:
        return await client.request(**({"url": "/v1/approvals", "headers": headers} | request))


async def test_two_owners_approve_by_the_command_and_then_it_takes_part(
    world: World, agent: Service
) -> None:
    job = world.submit(purpose="Does salt raise the pressure?").digest
    await agent.step()
    status = await agent.holder.status()
    assert (status.jobs, status.waiting, status.refused) == ((), (job,), {})
    listed = await shoal(world, "approvals")
    assert "Does salt raise the pressure?" in words(listed) and "0 of 2" in listed.stdout
    first = await shoal(world, "approve", job, "--owner", world.directory / "alice")
    said = " ".join((first.stdout + first.stderr).split())
    for fact in ("age, between 0 and 120", "ε = 1 at δ = 1e-06", "Approve this job?", "analyst"):
        assert fact in said
    assert "What would be left" in said
    assert "Another owner must approve it, too." in said
    await agent.step()
    assert world.trainer.joined == {}
    second = await decided(world, "approve", job, "bob", "--yes", "--json")
    printed = second.stdout[second.stdout.index("{\n") :]  # behind what the agent logs
    assert json.loads(printed) == {"job": job, "decision": "approve", "stage": "approved"}
    await agent.step()
    assert world.trainer.joined[job].keys() == {0}
    assert (await agent.holder.status()).waiting == ()


async def test_only_the_owner_s_token_shows_what_asks_and_takes_decisions(
    world: World, agent: Service
) -> None:
    request = world.submit()
    await agent.step()
    body = approval_of(request.body, holder=0, owner="alice", decision="approve", now=world.clock())
    signed = sign(body, "alice", ALICE).encode()
    for method, content in (("GET", None), ("POST", signed)):
        refused = await api(agent, world, method=method, content=content, headers={})
        assert refused.status_code == 401
    forged = sign(body, "alice", BOB).encode()
    answer = await api(agent, world, method="POST", content=forged)
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:shoal:problem:bad-signature")
    for _ in range(2):  # sent again, it is the same decision
        assert (await api(agent, world, method="POST", content=signed)).status_code == 200
    [shown] = (await api(agent, world, method="GET")).json()["jobs"]
    assert [each["owner"] for each in shown["decisions"]] == ["alice"]
    assert shown["until"] == format_time(request.body.join_deadline)


def test_an_owner_s_key_is_private_and_its_line_is_what_a_policy_takes(tmp_path: Path) -> None:
    made = run("agent", "owner-key", tmp_path / "key", "--name", "carol")
    assert made.exit_code == 0
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    line = made.stdout.splitlines()[-1]
    (tmp_path / "policy.toml").write_text(RULES + line + "\n")
    assert list(Policy.from_toml(tmp_path / "policy.toml").owners) == ["carol"]
    again = run("agent", "owner-key", tmp_path / "key")
    assert again.exit_code == 1 and "exists already" in again.stderr


async def test_a_crowd_job_asks_once_and_is_contributed_to_when_it_is_approved(
    tmp_path: Path,
) -> None:
    world = CrowdWorld(tmp_path)
    rules = CROWD_POLICY.model_copy(update={"approval": "one", "owners": ONE.owners})
    holder = world.holder(policy=rules)
    await world.run(holder, seconds=30)
    assert (await holder.status()).crowds == ()
    [asked] = await holder.approvals()
    assert (asked.job, asked.stage) == (world.job, "waits")
    assert told(world) == ["waits"]
    request = request_of(asked)
    assert isinstance(request, CrowdJobRequest)
    body = approval_of(request, holder=0, owner="bob", decision="approve", now=world.clock())
    await holder.decide(sign(body, "bob", BOB).encode())
    await world.run(holder, seconds=35)
    [crowd] = (await holder.status()).crowds
    assert crowd.job == world.job
    await holder.close()
    holder = world.holder(policy=rules)
    await world.run(holder, seconds=30)
    assert told(world) == ["waits", "approved"]
    await holder.close()


async def test_a_refusal_that_did_not_arrive_is_not_told_once_the_time_to_decide_is_over(
    world: World, agent: Service
) -> None:
    world.wire.cut("holder", "trainer", "/memberships")
    request = world.submit()
    await agent.step()
    assert (await decided(world, "refuse", request.digest, "alice", "--yes")).exit_code == 0
    await agent.step()
    letters = vault_of(agent.holder)._approvals.letters
    assert [each.id for each in letters()] == [f"refused/{request.digest}"]
    world.clock.now = request.body.join_deadline
    assert not [*letters()]


def told(world: CrowdWorld) -> list[str]:
    """Return what the trainer was told of the owners' approval of the crowd job."""
    notices = [
        decode(each.body, Membership)
        for each in world.wire.log
        if each.path == f"/v1/jobs/{world.job}/memberships"
    ]
    return [each.body.state for each in notices]

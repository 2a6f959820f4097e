"""The agent: it starts from its owner's files or says what is wrong, and shows its owner all."""

import asyncio
import json
import logging
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import structlog
import structlog.testing

from shoal_agent.assembly import Service, assemble
from shoal_agent.client_files import write_holder_key
from shoal_agent.data_holder import DataHolder
from shoal_agent.settings import Settings
from shoal_agent.status import ChainPage
from shoal_consortium.consortium_files import create
from shoal_holder.site import Sources
from shoal_kit.settings import read_settings
from shoal_kit.startup import StartupRefused
from shoal_kit.web.logs import configure_logs
from shoal_protocol.privacy.accounting import Cap, Cost
from shoal_protocol.privacy.job_costs import epsilon_left
from shoal_protocol.wire.encoding import decode_clients, format_time
from shoal_protocol.wire.errors import BadSignature
from tests.client.test_policy import RULES
from tests.scenarios.neighbours.leaving import OF_THE_MACHINE
from tests.world.around_holder import PRIVACY, QUERY, World, no_noise
from tests.world.clock import HandMovedTimer
from tests.world.people import csv_of

CLIENTS = 12


@pytest.fixture
def world(tmp_path: Path) -> World:
    return made_world(tmp_path)


def made_world(tmp_path: Path) -> World:
    world = World(tmp_path, CLIENTS)
    create(tmp_path / "consortium", world.consortium.signed_manifest, world.consortium.roster)
    party = tmp_path / "party"
    party.mkdir()
    (party / "pin").write_text(world.consortium.digest + "\n")
    write_holder_key(party / "holder.key", world.key, slots=CLIENTS)
    (tmp_path / "records.csv").write_text(csv_of(world.records))
    (tmp_path / "policy.toml").write_text(RULES)
    return world


def environment(directory: Path) -> dict[str, str]:
    return {
        "SHOAL_PARTY": str(directory / "party"),
        "SHOAL_CONSORTIUM": str(directory / "consortium"),
        "SHOAL_DATA": str(directory / "data"),
        "SHOAL_PORT": "0",
        "SHOAL_AGENT_KEY": str(directory / "party" / "holder.key"),
        "SHOAL_AGENT_RECORDS": str(directory / "records.csv"),
        "SHOAL_AGENT_POLICY": str(directory / "policy.toml"),
    }


def start(world: World, **changes: str) -> Service:
    settings = read_settings(Settings, environment(world.directory) | changes)
    return assemble(settings, clock=world.clock, transport=world.transport, inside=inside(world))


def inside(world: World) -> Sources:
    """Have the vault in this process, by this world's clock and chance."""
    return Sources(no_noise, world.clock, world.random_bytes, HandMovedTimer())


@pytest.fixture
async def agent(world: World) -> AsyncIterator[Service]:
    service = start(world)
    yield service
    await service.close()


async def ask(agent: Service, path: str, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app=agent.app)
    async with httpx.AsyncClient(transport=transport, base_url="https://agent") as client:
        return await client.get(path, headers=headers)


async def work(world: World, agent: Service) -> str:
    request = world.submit()
    await agent.step()
    world.announce(request)
    await agent.step()
    return request.digest


def owner_token(world: World) -> str:
    return (world.directory / "data" / "owner.token").read_text().strip()


async def shown_status(world: World, agent: Service) -> Any:
    return (await ask(agent, "/v1/status", Authorization=f"Bearer {owner_token(world)}")).json()


async def test_it_takes_part_and_shows_what_it_did(world: World, agent: Service) -> None:
    job = await work(world, agent)
    assert [sorted(node.held) for node in world.nodes] == [[0]] * 3
    status = await shown_status(world, agent)
    assert (status["enrolled"], status["refused"]) == (CLIENTS, {})
    [shown] = status["jobs"]
    assert shown["job"] == job
    assert (shown["join"], shown["slots"]) == ("acknowledged", CLIENTS)
    assert shown["rounds"][0]["envelopes"] == {"acknowledged": 3}
    assert shown["rounds"][0]["answered_at"] == format_time(world.clock())


async def test_the_process_of_a_vault_adds_real_noise_to_what_it_answers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The noise of 6 coordinates, all at once, is 0 with probability below 1e-30."""
    settings = environment(world.directory)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    world.clock.now = datetime.now(UTC).replace(microsecond=0)  # the process reads the system's
    agent = assemble(
        read_settings(Settings, settings), clock=world.clock, transport=world.transport
    )
    request = world.submit(
        join_deadline=world.clock() + timedelta(hours=1), round_seconds=1800, grace_seconds=1800
    )
    await agent.step()
    now = world.clock()
    deadline, end = now + timedelta(seconds=1800), now + timedelta(seconds=3600)
    world.announce(request, deadline=deadline, give_up_at=end)
    await agent.step()
    await agent.close()
    without_noise = sum(QUERY.encode(row[np.newaxis]) for row in world.records.values)
    assert (world.total() != without_noise).any()


async def test_it_is_woken_by_a_round_and_asks_no_more_until_then(world: World) -> None:
    settings = read_settings(Settings, environment(world.directory))
    agent = assemble(
        settings,
        clock=world.clock,
        transport=world.transport,
        long_polls=True,
        inside=inside(world),
    )
    request = world.submit()
    await agent.step()  # it joins, and its question for a round is open from here on
    world.announce(request)
    async with asyncio.timeout(30):
        while not agent.wake.is_set():  # this trainer does not wait, so it is asked again
            await agent.step()
            await asyncio.sleep(0.01)
        while not all(node.held for node in world.nodes):
            await agent.step()
            await asyncio.sleep(0.01)
    await agent.close()
    assert [sorted(node.held) for node in world.nodes] == [[0]] * 3
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def test_the_journal_is_shown_to_its_owner_in_pages(world: World, agent: Service) -> None:
    job = await work(world, agent)
    bearer = {"Authorization": f"Bearer {owner_token(world)}"}
    first = (await ask(agent, "/v1/ledger/chain?count=1", **bearer)).json()
    second = (await ask(agent, f"/v1/ledger/chain?after={first['next']}", **bearer)).json()
    pages = [ChainPage.model_validate(each).entries for each in (first, second)]
    said = [each.statement for page in pages for each in page if each.statement is not None]
    assert [(each.kind, each.document["job"]) for each in said] == [("join", job), ("answer", job)]
    assert second["next"] is None
    assert [each for page in pages for each in page] == await agent.holder.chain()
    charge = said[1].document
    assert len(decode_clients(charge["slots"])) == CLIENTS
    spent = (await ask(agent, "/v1/ledger", **bearer)).json()["spent"]
    assert spent["clients"] == CLIENTS
    assert 0.99 < spent["epsilon"]["least"] <= spent["epsilon"]["most"] < 1.0001
    assert spent["maximum_epsilon"] == 3.0
    pure, gaussian = epsilon_left(
        Cap(epsilon=3.0, delta=spent["delta"]), Cost.gaussian(charge["mu"])
    )
    assert spent["left"] == pytest.approx({"pure": pure, "gaussian": gaussian}, rel=1e-3)


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer ", "Bearer x", "Basic x", "Bearer \xe9"]
)
async def test_the_ledger_is_shown_to_nobody_else(
    world: World, agent: Service, authorization: str | None
) -> None:
    await work(world, agent)
    headers: Any = (
        {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    )
    for path in ("/v1/ledger", "/v1/ledger/chain"):
        answer = await ask(agent, path, **headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert answer.headers["content-type"] == "application/problem+json"
        assert "entries" not in answer.json()


async def test_the_owners_token_is_made_once_and_private(world: World, agent: Service) -> None:
    path = world.directory / "data" / "owner.token"
    token = owner_token(world)
    assert len(token) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await agent.close()
    again = start(world)
    assert owner_token(world) == token
    await again.close()


async def test_logs_hold_no_record_key_or_client(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        configure_logs(level="debug")
        agent = start(world)
        await work(world, agent)
        await agent.close()
    finally:
        structlog.reset_defaults()
        logging.getLogger().handlers = []
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    expected = {"12 slots are enrolled", "job joined", "envelope settled"}
    assert {line["event"] for line in lines} >= expected
    assert {line["level"] for line in lines} == {"info", "warning"}  # of the vault in this process
    for line in lines:
        assert not {"client", "clients", "record", "key"} & line.keys()
    text = json.dumps(lines)
    assert not any(bytes(key).hex() in text for key in [world.key])
    assert not any(bytes(key.verify_key).hex() in text for key in [world.key])


async def seen_by_strangers(agent: Service) -> list[str]:
    """Ask each route of the agent, by each method, without a token; return all that is answered."""
    seen = []
    transport = httpx.ASGITransport(app=agent.app)
    async with httpx.AsyncClient(transport=transport, base_url="https://agent") as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
        assert {"/v1/status", "/v1/jobs/{job}/leave", "/metrics"} <= set(paths)
        for path in (*paths, "/openapi.json", "/console", "/nothing"):
            for method in ("GET", "HEAD", "POST", "OPTIONS"):
                answer = await client.request(method, path.replace("{job}", "ab" * 32))
                text = answer.text
                if path == "/metrics":
                    text = OF_THE_MACHINE.sub("", text)
                    answer.headers.pop("content-length")
                seen.append(f"{method} {path} {answer.status_code} {answer.headers} {text}")
    return seen


UNDECLARED = "declare = false\n" + RULES
PEOPLE = {f"patient-{each}": (40 + each, 120) for each in range(CLIENTS)}
OUT_OF_BOUNDS = PEOPLE | {"patient-3": (10**9, -1)}


async def seen_of(
    home: Path, rules: str, people: dict[str, tuple[int, int]], metrics_for_anybody: str
) -> tuple[list[str], dict[str, Any]]:
    """Return what strangers and the owner see of these people once these rules refused a job."""
    world = made_world(home)
    (home / "policy.toml").write_text(rules)
    rows = [f"{name},{age},{pressure}\n" for name, (age, pressure) in people.items()]
    (home / "records.csv").write_text("id,age,pressure\n" + "".join(rows))
    agent = start(world, SHOAL_METRICS_FOR_ANYBODY=metrics_for_anybody)
    world.submit(privacy=PRIVACY.model_copy(update={"epsilon": 3.5}))
    for _ in range(2):
        await agent.step()
    seen = await seen_by_strangers(agent), await shown_status(world, agent)
    await agent.close()
    return seen


@pytest.mark.parametrize("metrics_for_anybody", ["false", "true"])
@pytest.mark.parametrize(
    ("rules", "people", "differs"),
    [
        pytest.param(UNDECLARED, OUT_OF_BOUNDS, None, id="values"),
        pytest.param(UNDECLARED.replace("= 3.0", "= 0.5"), PEOPLE, "refused", id="cap"),
        pytest.param(UNDECLARED.replace(', "pressure"', ""), PEOPLE, "refused", id="columns"),
    ],
)
async def test_a_stranger_sees_the_same_whatever_the_records_and_rules_that_are_not_declared(
    tmp_path: Path,
    rules: str,
    people: dict[str, tuple[int, int]],
    differs: str | None,
    metrics_for_anybody: str,
) -> None:
    seen, told = await seen_of(tmp_path / "one", UNDECLARED, PEOPLE, metrics_for_anybody)
    others, told_others = await seen_of(tmp_path / "other", rules, people, metrics_for_anybody)
    assert seen == others
    assert differs is None or told[differs] != told_others[differs]


async def test_what_is_left_of_the_cap_is_in_metrics_for_anybody_only_if_the_cap_is_declared(
    world: World,
) -> None:
    for declared in (False, True):
        rules = "declare_cap = true\n" if declared else ""
        (world.directory / "policy.toml").write_text(rules + RULES)
        agent = start(world, SHOAL_METRICS_FOR_ANYBODY="true")
        text = (await ask(agent, "/metrics")).text
        [line] = [
            each for each in text.splitlines() if each.startswith("shoal_agent_epsilon_left_pure ")
        ]
        assert (line.split()[1] != "NaN") == declared
        await agent.close()


def test_it_does_not_start_with_keys_that_others_can_read(world: World) -> None:
    (world.directory / "party" / "holder.key").chmod(0o640)
    with pytest.raises(StartupRefused, match="chmod 600"):
        start(world)


async def test_columns_that_the_policy_does_not_name_are_never_read(world: World) -> None:
    path = world.directory / "records.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(["name," + lines[0], *(f"SECRET,{line}" for line in lines[1:])]))
    agent = start(world)
    await work(world, agent)
    assert sorted(world.nodes[0].held) == [0]
    await agent.close()


async def test_a_version_that_the_vault_refuses_does_not_end_the_agent(
    holder: DataHolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused() -> None:
        raise BadSignature

    monkeypatch.setattr(holder._directory, "bring_vault_up", refused)
    told: list[str] = []
    monkeypatch.setattr(holder, "_report", lambda what, **_: told.append(what))
    await holder.step()
    assert told == ["a step was not finished"]

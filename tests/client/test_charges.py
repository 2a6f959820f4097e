"""A ledger that forgot what Compute nodes charged is found out before it is relied upon."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyroaring import BitMap

from shoal_agent.charge_comparison import WAITING
from shoal_agent.data_holder import DataHolder
from shoal_holder.charge_comparison import BETWEEN_COMPARISONS
from shoal_holder.status import ADOPTED
from shoal_hosting.marks import MemoryLost
from shoal_protocol.jobs.charges import Charges, RoundCharged
from shoal_protocol.wire.documents import decode, sign
from shoal_protocol.wire.encoding import encode_clients
from tests.world.around_holder import World, problem
from tests.world.examples import signing_key

CHARGE = RoundCharged(
    entry=1,
    round="1a" * 32,
    job="2b" * 32,
    number=0,
    mu=0.5,
    epsilon=None,
    clients=encode_clients(BitMap((2, 3))),
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def charged_by(world: World, *charges: RoundCharged, nodes: tuple[int, ...] = (0, 1, 2)) -> None:
    for node in nodes:
        world.nodes[node].charged = list(charges)


async def refusal(holder: DataHolder) -> str:
    with pytest.raises(MemoryLost) as lost:
        await holder.step()
    assert (await holder.status()).refusal == str(lost.value)
    return str(lost.value)


def token(refused: str) -> str:
    found = re.search("SHOAL_ACCEPT_LOSS=([0-9a-f]{16})", refused)
    assert found is not None
    return found[1]


def asked(world: World) -> set[str]:
    return {request.url.path for request in world.requests}


async def test_an_empty_ledger_refuses_until_the_loss_is_accepted_and_takes_it_for_spent(
    world: World,
) -> None:
    later = CHARGE.model_copy(update={"entry": 2, "round": "3c" * 32, "number": 1})
    charged_by(world, CHARGE, later)
    world.submit()
    holder = world.holder()
    refused = await refusal(holder)
    assert "2 rounds" in refused
    assert await refusal(holder) == refused
    assert asked(world) == {"/v1/charges"}, "it took part in something"
    await holder.close()

    other = world.holder(accept_loss="0" * 16)
    assert token(await refusal(other)) == token(refused)
    await other.close()

    accepting = world.holder(accept_loss=token(refused))
    await accepting.step()
    status = await accepting.status()
    assert (status.refusal, status.adopted) == (None, 2)
    charges = [(each.round_id, each.number, each.client) for each in await accepting.ledger()]
    expected = [(each.round, each.number, client) for each in (CHARGE, later) for client in (2, 3)]
    assert charges == expected
    assert (await accepting.committed())[2].mu == pytest.approx(0.5**0.5)
    await accepting.close()

    said: list[str] = []
    # the chain is verified, and nothing is new
    again = world.holder(
        accept_loss=token(refused), report=lambda event, /, **facts: said.append(event)
    )
    assert ADOPTED in said
    await again.step()
    assert [(each.round_id, each.client) for each in await again.ledger()] == [
        (round_id, client) for round_id, _, client in expected
    ]
    charged_by(world, CHARGE, later, CHARGE.model_copy(update={"entry": 3, "number": 2}))
    await again.close()
    once_more = world.holder(accept_loss=token(refused))  # which was for that loss alone
    await refusal(once_more)
    await once_more.close()


async def test_a_forgotten_job_is_never_joined_again(world: World) -> None:
    job = world.submit()
    charged_by(world, CHARGE.model_copy(update={"job": job.digest}))
    holder = world.holder()
    refused = await refusal(holder)
    await holder.close()
    accepting = world.holder(accept_loss=token(refused))
    await accepting.step()
    assert world.trainer.joined == {}
    await accepting.close()


async def test_a_directory_that_was_set_back_answers_no_round_of_what_it_joined(
    world: World,
) -> None:
    job = world.submit()
    holder = world.holder()
    await holder.step()
    await holder.close()
    shutil.copytree(world.directory / "holder", world.directory / "copy")
    world.announce(job)
    holder = world.holder()
    await holder.step()
    answered = {each.client for each in await holder.ledger()}
    assert answered == set(range(12))
    charge = (await holder.chain())[0]
    await holder.close()
    world.requests.clear()
    envelopes = [dict(node.held) for node in world.nodes]
    charged_by(
        world,
        CHARGE.model_copy(
            update={
                "round": charge.round,
                "job": job.digest,
                "mu": charge.mu,
                "epsilon": charge.epsilon,
                "clients": encode_clients(BitMap(answered)),
            }
        ),
    )
    whole = world.holder()
    await whole.step()
    assert (await whole.status()).refusal is None
    await whole.close()

    copy = world.holder("copy")
    refused = await refusal(copy)
    await copy.close()
    accepting = world.holder("copy", accept_loss=token(refused))
    await accepting.step()
    [status] = (await accepting.status()).jobs
    assert status.ended == "forgotten"
    assert {each.client for each in await accepting.ledger()} == answered
    assert [dict(node.held) for node in world.nodes] == envelopes
    await accepting.close()


def down(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("no route")


async def test_one_node_that_answers_is_enough_and_the_others_are_heard_when_they_answer(
    world: World,
) -> None:
    for node in range(3):
        world.scripts[f"compute-{node}"] = down
    world.submit()
    said: list[tuple[str, object]] = []
    holder = world.holder(report=lambda event, /, **facts: said.append((event, facts)))
    for _ in range(2):
        await holder.step()
    assert asked(world) == {"/v1/charges"}
    assert world.trainer.joined == {}
    [told] = [facts for event, facts in said if event == WAITING]
    assert "SHOAL_WITHOUT_NODES" in str(told)

    del world.scripts["compute-1"]
    world.clock.move(2)
    await holder.step()
    assert len(world.trainer.joined) == 1

    del world.scripts["compute-2"]
    charged_by(world, CHARGE, nodes=(2,))
    world.clock.move(5)
    with pytest.raises(MemoryLost):
        for _ in range(100):  # it is heard beside the steps
            await holder.step()
    await holder.close()


async def test_nodes_that_are_gone_or_not_believed_are_waived_by_name(world: World) -> None:
    for node in range(3):
        world.scripts[f"compute-{node}"] = down
    charged_by(world, CHARGE)
    world.submit()
    holder = world.holder(without_nodes=("compute-0", "compute-1", "compute-2"))
    await holder.step()
    assert len(world.trainer.joined) == 1
    await holder.close()


async def test_a_ledger_is_compared_again_before_a_job_is_joined(world: World) -> None:
    holder = world.holder()
    await holder.step()
    charged_by(world, CHARGE)
    world.clock.move(BETWEEN_COMPARISONS.total_seconds())
    world.submit()
    await refusal(holder)
    assert world.trainer.joined == {}
    await holder.close()


def other_nonce(body: dict[str, Any]) -> None:
    body["nonce"] = "ff" * 16


def another_holder(body: dict[str, Any]) -> None:
    body["holder"] = 1


def somebody_elses_charge(body: dict[str, Any]) -> None:
    stray = CHARGE.model_copy(update={"clients": encode_clients(BitMap((99,)))})
    body |= {"rounds": [stray.model_dump(mode="json")], "head": 1, "through": 1}


def another_stretch(body: dict[str, Any]) -> None:
    body["after"] = 7


@pytest.mark.parametrize(
    "lie", [other_nonce, another_holder, somebody_elses_charge, another_stretch]
)
async def test_an_answer_to_something_else_is_none(
    world: World, lie: Callable[[dict[str, Any]], None]
) -> None:
    def answer(node: int, request: httpx.Request) -> httpx.Response | None:
        if request.url.path != "/v1/charges":
            return None
        told = decode(world.nodes[node].tell_charges(request).content, Charges)
        body = told.body.model_dump(mode="json")
        lie(body)
        key = signing_key(told.signer)
        forged = sign(Charges.model_validate(body), told.signer, key)
        return httpx.Response(200, content=forged.encode())

    for node in range(3):
        world.scripts[f"compute-{node}"] = lambda request, node=node: answer(node, request)
    world.submit()
    holder = world.holder()
    await holder.step()
    assert world.trainer.joined == {}
    assert (await holder.status()).refusal is None
    await holder.close()


async def test_a_node_that_refuses_to_say_is_not_asked_all_the_time(world: World) -> None:
    for node in range(3):
        world.scripts[f"compute-{node}"] = lambda request: problem(409, "stale-query")
    holder = world.holder()
    for _ in range(5):
        await holder.step()
        world.clock.move(1)
    assert len(world.requests) == 3
    world.clock.move(30)
    world.scripts.clear()
    await holder.step()
    assert "/v1/jobs" in asked(world)
    await holder.close()

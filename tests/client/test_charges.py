"""A ledger that forgot what Compute nodes charged is found out before it is relied upon."""

import errno
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from nacl.signing import SigningKey
from pyroaring import BitMap

from shoal_agent.data_holder import DataHolder
from shoal_agent.directory import MemoryLost
from shoal_agent.restoring import restore_file
from shoal_consortium.parties import next_manifest
from shoal_holder import spending
from shoal_holder.charge_comparison import BETWEEN_COMPARISONS
from shoal_holder.restoring import RESTORED
from shoal_holder.rounds import BEFORE_RESTORE
from shoal_holder.site_files import STATE_FILE
from shoal_holder.state import State
from shoal_holder.vault import Vault
from shoal_kit.manifest_book import ManifestBook
from shoal_protocol.jobs.charges import Charges, ChargesQuery, RoundCharged
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.sharing import received
from shoal_protocol.sharing.envelope import epoch_of
from shoal_protocol.sharing.schemes import ThresholdSharing
from shoal_protocol.trust.roster_changes import with_key
from shoal_protocol.wire.documents import Role, Signed, decode, sign
from shoal_protocol.wire.encoding import canonical_json, domain, encode_clients
from shoal_protocol.wire.errors import NotReady
from tests.world.around_holder import POLICY, World, charged_on, state_of
from tests.world.examples import AUTHORITY, signing_key
from tests.world.spending import costs_of

CHARGE = RoundCharged(
    entry=1,
    round="1a" * 32,
    job="2b" * 32,
    number=0,
    mu=0.5,
    epsilon=None,
    clients=encode_clients(BitMap((2, 3))),
)


def charged_by(world: World, *charges: RoundCharged, nodes: tuple[int, ...] = (0, 1, 2)) -> None:
    for node in nodes:
        world.nodes[node].charged = list(charges)


async def refusal(holder: DataHolder) -> str:
    with pytest.raises(MemoryLost) as lost:
        await holder.step()
    assert (await holder.status()).refusal == str(lost.value)
    return str(lost.value)


def restore(world: World, name: str = "holder") -> None:
    directory = world.directory / name
    directory.mkdir(exist_ok=True)
    restore_file(
        directory / STATE_FILE,
        authority=world.consortium.manifest.authority,
        random_bytes=world.random_bytes,
        now=world.clock(),
    )


def asked(world: World) -> set[str]:
    return {each.path for each in world.wire.log}


async def test_R3_a_restored_machine_supersedes_the_lost_one_which_stops_for_good(
    world: World,
) -> None:
    lost = world.holder("lost")
    await lost.step()
    restore(world)
    restored = world.holder(book=ManifestBook(world.consortium, world.directory / "else"))
    job = world.submit()
    for _ in range(2):  # it hears of the lost one's epoch, and raises it
        await restored.step()
    assert (await restored.status()).refusal is None
    assert set(world.trainer.joined) == {job.digest}
    assert {node.machine.body.epoch for node in world.nodes if node.machine} == {1}

    world.clock.move(BETWEEN_COMPARISONS.total_seconds() + 1)
    world.submit()
    assert "superseded" in await refusal(lost)
    await lost.close()
    world.wire.log.clear()
    again = world.holder("lost")
    assert "superseded" in await refusal(again)
    assert not world.wire.log
    await again.close()
    await restored.close()


def by_a_key_that_is_replaced(world: World) -> Signed[ChargesQuery]:
    """Return the query of a machine with this key, which the authority then replaces."""
    first, machine = world.consortium, {"epoch": 7, "instance": "1c" * 16}
    asking = {"holder": 0, "node": "compute-1", "nonce": "0a" * 16, "at": world.clock()}
    query = ChargesQuery.model_validate({"manifest": first.digest} | machine | asking)
    signed = sign(query, Role.HOLDER, world.key)
    world.key = SigningKey.generate()
    roster = with_key(first.roster, 0, world.key.verify_key)
    newer = next_manifest(first, roster=roster, authority=AUTHORITY)
    world.book.accept(newer.encode(), roster.encode())
    world.consortium = world.book.current
    return signed


async def test_who_stole_a_key_that_was_replaced_supersedes_no_machine_with_a_node_that_lies(
    world: World,
) -> None:
    stolen = by_a_key_that_is_replaced(world)
    holder = world.holder()
    await holder.step()
    assert (await holder.status()).refusal is None
    world.nodes[1].machine = stolen
    world.clock.move(BETWEEN_COMPARISONS.total_seconds() + 1)
    job = world.submit()
    assert "another machine takes part" in await refusal(holder)
    await holder.close()
    world.nodes[1].machine = None
    again = world.holder()
    await again.step()
    assert (await again.status()).refusal is None and set(world.trainer.joined) == {job.digest}
    await again.close()


async def test_an_answer_that_was_held_back_says_nothing_of_what_was_charged_since(
    world: World,
) -> None:
    holder = world.holder()
    for letter in await holder.vault.ask(Vault.due) or ():
        request = httpx.Request("POST", f"https://node{letter.path}", content=letter.body)
        body = world.nodes[int(letter.party[-1])].answer(request).content
        if letter.party == "compute-2":
            world.clock.move(BETWEEN_COMPARISONS.total_seconds() + 1)
        await holder.vault.ask(Vault.settle, letter=letter.id, status=200, body=body)
    await holder.vault.ask(Vault.due)
    assert (await holder.vault.ask(Vault.opened)).is_compared
    with pytest.raises(NotReady, match="what it charged"):
        job = world.submit()
        letter = f"job/{job.digest}"
        await holder.vault.ask(Vault.settle, letter=letter, status=200, body=job.encode())
    await holder.close()


async def test_a_state_that_is_restored_waits_for_all_nodes_that_are_not_waived(
    world: World,
) -> None:
    charged_by(world, CHARGE, nodes=(2,))
    world.wire.scripts["compute-2"] = down
    restore(world)
    world.submit(sharing=ThresholdSharing(threshold=2))
    policy = POLICY.model_copy(update={"minimum_threshold": 2})
    holder = world.holder(policy=policy)
    await holder.step()
    assert world.trainer.joined == {}
    del world.wire.scripts["compute-2"]
    world.clock.move(5)
    for _ in range(100):
        await holder.step()
    charged = {client for what, _, client in charged_on(state_of(holder)) if what == CHARGE.round}
    assert charged == {2, 3}
    assert len(world.trainer.joined) == 1
    await holder.close()


async def test_a_round_that_was_announced_before_the_restore_is_not_answered(
    world: World,
) -> None:
    job = world.submit()
    world.announce(job)
    world.clock.move(1)
    restore(world)
    holder = world.holder()
    for _ in range(2):
        await holder.step()
    [status] = (await holder.status()).jobs
    assert [each.ended for each in status.rounds] == [BEFORE_RESTORE]
    assert not any(node.held for node in world.nodes)

    world.announce(world.submit())
    await holder.step()
    assert {epoch_of(received.parse(node.held[0]).header.answer) for node in world.nodes} == {1}
    await holder.close()


async def crowds_after_a_loss(world: World, own: float | None, *, kept: bool = False) -> float:
    """Return what crowd jobs count as for each slot once a holder of such a policy is restored."""
    if not kept:
        (world.directory / "holder" / STATE_FILE).unlink(missing_ok=True)
    restore(world)
    holder = world.holder(policy=POLICY.model_copy(update={"maximum_local_epsilon": own}))
    for _ in range(2):
        await holder.step()
    spent = await costs_of(holder)
    await holder.close()
    assert set(spent) == set(range(12))
    [epsilon] = {cost.epsilon for costs in spent.values() for cost in costs}
    return epsilon


@pytest.mark.parametrize(
    ("own", "counted"),
    [(1.5, 1.5), (0.25, 1.0), (None, 1.0)],  # the policy of the lost machine is not known
)
async def test_after_a_loss_crowd_jobs_count_as_all_that_owner_or_consortium_allow(
    tmp_path: Path, own: float | None, counted: float
) -> None:
    world = World(tmp_path, maximum_local_epsilon=1.0)
    assert await crowds_after_a_loss(world, own) == counted


async def test_the_highest_allowance_that_was_ever_in_force_counts_after_a_loss(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, maximum_local_epsilon=1.0)
    for allowed in (3.0, 0.25):
        policy = POLICY.model_copy(update={"maximum_local_epsilon": allowed})
        holder = world.holder(policy=policy)
        await holder.step()
        await holder.close()
    assert await crowds_after_a_loss(world, 0.25, kept=True) == 3.0


async def test_a_forgotten_job_is_never_joined_again(world: World) -> None:
    job = world.submit()
    charged_by(world, CHARGE.model_copy(update={"job": job.digest}))
    holder = world.holder()
    await refusal(holder)
    await holder.close()
    restore(world)
    restored = world.holder()
    await restored.step()
    assert (await restored.status()).refusal is None
    assert world.trainer.joined == {}
    await restored.close()


async def test_a_node_that_claims_one_round_for_several_jobs_leaves_a_state_that_opens_again(
    world: World,
) -> None:
    job = world.submit()
    holder = world.holder()
    await holder.step()
    round_id = world.announce(job).digest
    await holder.step()
    await holder.close()
    restore(world)
    claims = [
        CHARGE.model_copy(update={"entry": entry, "round": round_id, "job": f"{entry}c" * 32})
        for entry in (1, 2)
    ]
    charged_by(world, *claims, nodes=(1,))
    for _ in range(2):  # the second one opens what the first one charged
        restored = world.holder()
        for _ in range(2):
            await restored.step()
        assert (await restored.status()).refusal is None
        charged = charged_on(state_of(restored))
        assert {(each.job, client) for each in claims for client in (2, 3)} <= {
            (job, client) for _, job, client in charged
        }
        await restored.close()


def test_a_round_that_was_claimed_for_another_job_before_it_came_leaves_a_state_that_opens(
    tmp_path: Path,
) -> None:
    path, round_id, job = tmp_path / "holder.sqlite", "aa" * 32, "bb" * 32
    state = State(path, authority="00" * 32)
    claim = spending.Charge("cc" * 32, 1, round_id, BitMap([2]), Cost.pure(1.0))
    state.adopt([claim], datetime(2026, 1, 1, tzinfo=UTC))
    with state.file.transaction():
        state.file.database.execute("INSERT INTO jobs (job, request) VALUES (?, x'')", (job,))
        state.file.database.execute(
            "INSERT INTO rounds (round, job, number, spec) VALUES (?, ?, 0, x'')", (round_id, job)
        )
    state.close()
    state = State(path, authority="00" * 32)
    assert charged_on(state) == [(round_id, "cc" * 32, 2)]
    state.close()


async def test_R3_a_directory_that_was_set_back_answers_no_round_of_what_it_joined(
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
    answered = set(await costs_of(holder))
    assert answered == set(range(12))
    [charge] = spending.charges(state_of(holder).file)
    await holder.close()
    world.wire.log.clear()
    envelopes = [dict(node.held) for node in world.nodes]
    charged_by(
        world,
        CHARGE.model_copy(
            update={
                "round": charge.what,
                "job": job.digest,
                "mu": charge.cost.mu,
                "epsilon": charge.cost.stated_epsilon,
                "clients": encode_clients(BitMap(answered)),
            }
        ),
    )
    whole = world.holder()
    await whole.step()
    assert (await whole.status()).refusal is None
    await whole.close()

    copy = world.holder("copy")
    await refusal(copy)
    await copy.close()
    restore(world, "copy")
    restored = world.holder("copy")
    for _ in range(2):
        await restored.step()
    [status] = (await restored.status()).jobs
    assert status.ended == RESTORED
    assert set(await costs_of(restored)) == answered
    assert [dict(node.held) for node in world.nodes] == envelopes
    await restored.close()


def down(_: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("no route") from OSError(errno.EHOSTUNREACH, "no route")


async def test_nodes_that_are_gone_or_not_believed_are_waived_by_name(world: World) -> None:
    for node in range(3):
        world.wire.scripts[f"compute-{node}"] = down
    charged_by(world, CHARGE)
    world.submit()
    holder = world.holder(without_nodes=("compute-0", "compute-1", "compute-2"))
    await holder.step()
    assert len(world.trainer.joined) == 1
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


def a_cost(**cost: float | None) -> Callable[[dict[str, Any]], None]:
    def lie(body: dict[str, Any]) -> None:
        dear = CHARGE.model_copy(update=cost)
        body |= {"rounds": [dear.model_dump(mode="json")], "head": 1, "through": 1}

    return lie


@pytest.mark.parametrize(
    "lie",
    [
        *(other_nonce, another_holder, somebody_elses_charge, another_stretch),
        pytest.param(a_cost(mu=5.0, epsilon=None), id="beyond the policy"),
        pytest.param(a_cost(mu=5.0, epsilon=0.1), id="dearer in mu than its epsilon can be"),
        pytest.param(a_cost(mu=1e200, epsilon=None), id="whose square is no number"),
    ],
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
        # a liar's program builds no document of ours: what it signs may be impossible
        message = domain(Charges.model_fields["kind"].default) + canonical_json(body)
        forged = {"body": body, "signature": key.sign(message).signature.hex()}
        return httpx.Response(200, content=canonical_json(forged | {"signer": told.signer}))

    for node in range(3):
        world.wire.scripts[f"compute-{node}"] = lambda request, node=node: answer(node, request)
    world.submit()
    holder = world.holder()
    await holder.step()
    assert world.trainer.joined == {}
    assert (await holder.status()).refusal is None
    await holder.close()

"""A service whose whole directory was set back is told by others what it forgot.

They keep what it signed. Some may be absent, and one may lie: one honest keeper is enough, and
nobody makes a node forget, or take for signed, what it did not sign.
"""

import json
import re
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shoal_compute.schema import charges
from shoal_kit.database_file import ACCEPT, RESTORE
from shoal_protocol.keeping import HEADS_PATH, HeadsAsked, KeptHeads
from shoal_protocol.rounds.attestations import Abandonment, AbandonmentReason
from shoal_protocol.wire.documents import decode
from tests.world.audit import audit
from tests.world.examples import PLACE
from tests.world.federation import PRIVACY, Federation
from tests.world.parties import problem_code
from tests.world.trust import SITES
from tests.world.wire import Fault, Rule

pytestmark = pytest.mark.essential

NODE = "compute-0"
KEEPERS = ("compute-1", "compute-2", "aggregator", "trainer")
CHEAP = PRIVACY.model_copy(update={"epsilon": 0.5})


async def restart(federation: Federation) -> str | None:
    """Start the node again; return the token of the loss that it tells its operator of."""
    with capture_logs() as said:
        for _ in range(3):
            await federation.step()
            federation.clock.move(6.0)
    words = " ".join(each["event"] for each in said if each["log_level"] == "error")
    found = re.search(f"{RESTORE}.*{ACCEPT}=([0-9a-f]{{16}})", words)
    return found and found[1]


async def has_two(federation: Federation, round_id: str) -> bool:
    answer = await federation.ask(NODE, f"/v1/rounds/{round_id}")
    return answer.status_code == 200 and bool(answer.json()["held"] == 2)


def charged(federation: Federation) -> int:
    storage = federation.party(NODE).resources.storage
    return storage.run_here(lambda db: len(list(charges.after(db, 0))))


async def is_ready(federation: Federation, name: str = NODE) -> bool:
    answer = await federation.ask(name, "/readyz")
    assert answer.status_code == 200 or json.loads(answer.content)["type"].endswith("ledger-broken")
    return answer.status_code == 200


async def test_a_node_that_was_set_back_whole_charges_nothing_until_that_is_accepted_by_name(
    federation: Federation, tmp_path: Path
) -> None:
    await federation.learn(privacy=CHEAP)
    await federation.copy_of(NODE, tmp_path / "copy")
    assert await restart(federation) is None
    await federation.learn(privacy=CHEAP)
    whole = charged(federation)

    await federation.set_back(NODE, tmp_path / "copy")
    token = await restart(federation)
    assert token is not None
    assert not await is_ready(federation)
    [*_, end] = [each.body for each in federation.wire.log if each.path == "/v1/totals"]
    answer = await federation.ask(NODE, "/v1/totals", method="POST", content=end)
    assert problem_code(answer) == "ledger-broken"  # nor does it sign what it may have forgotten
    assert charged(federation) == whole - 1
    job = await federation.submit(privacy=CHEAP)
    await federation.until(lambda: federation.is_over(job), seconds=600)
    assert (await federation.state(job))["phase"] == "failed"
    assert charged(federation) == whole - 1

    federation.accept_loss[NODE] = token
    await federation.crash(NODE)
    assert await restart(federation) is None
    assert await is_ready(federation)
    await federation.learn(privacy=CHEAP)
    await federation.crash(NODE)
    assert await restart(federation) is None  # the setting may stay, and the loss is known
    await federation.set_back(NODE, tmp_path / "copy")
    assert await restart(federation) not in (None, token)  # it was for that loss only


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "set back"])
async def test_an_aggregator_that_was_set_back_decides_on_no_round_until_that_is_accepted(
    federation: Federation, tmp_path: Path, is_lost: bool
) -> None:
    job, round_id = await federation.collecting(privacy=CHEAP)
    if not is_lost:
        await federation.copy_of("aggregator", tmp_path / "copy")
    await federation.until(lambda: federation.is_over(job), seconds=600)
    await federation.set_back("aggregator", None if is_lost else tmp_path / "copy")
    token = await restart(federation)
    assert token is not None
    assert not await is_ready(federation, "aggregator")
    # nor does a node have it call off the round that it published
    word = Abandonment(
        manifest=federation.trust.consortium.digest,
        round=round_id,
        party="compute-1",
        reason=AbandonmentReason(code="holdings_missing"),
        entry=PLACE,
    )
    path = f"/v1/rounds/{round_id}/ends"
    encoded = federation.party("compute-1").resources.sign(word).encode()
    answer = await federation.ask("aggregator", path, method="POST", content=encoded)
    if is_lost:
        assert problem_code(answer) == "unknown-round"
    else:
        assert answer.status_code == 201
    job = await federation.submit(privacy=CHEAP)
    await federation.until(lambda: federation.is_over(job), seconds=600)
    assert (await federation.state(job))["phase"] == "failed"
    outcome = await federation.ask("aggregator", f"/v1/rounds/{round_id}/outcome")
    assert outcome.status_code == (404 if is_lost else 202)

    federation.accept_loss["aggregator"] = token
    await federation.crash("aggregator")
    assert await restart(federation) is None
    assert await is_ready(federation, "aggregator")
    await federation.learn(privacy=CHEAP)
    await federation.crash("aggregator")
    assert await restart(federation) is None


async def test_a_node_is_told_of_a_vote_of_which_no_head_is_kept(
    federation: Federation, tmp_path: Path
) -> None:
    await federation.copy_of(NODE, tmp_path / "copy")
    federation.wire.rules.append(Rule(Fault.LOST, sender=NODE, path="/heads$"))
    job = await federation.submit(privacy=CHEAP)
    await federation.until(lambda: federation.is_over(job), seconds=600)
    answer = HeadsAsked(nonce="ab" * 16, service=NODE).encode()
    for keeper in KEEPERS:
        shown = await federation.ask(keeper, HEADS_PATH, method="POST", content=answer)
        kept = decode(shown.content, KeptHeads).body
        assert kept.of(NODE) is None
        assert kept.statement is not None
    federation.wire.rules.clear()
    await federation.set_back(NODE, tmp_path / "copy")
    assert await restart(federation) is not None


@pytest.mark.parametrize("forgets", ["shares", "the round"])
async def test_a_job_ends_although_a_node_is_set_back_in_it(
    federation: Federation, tmp_path: Path, forgets: str
) -> None:
    await federation.learn(privacy=CHEAP)
    if forgets == "the round":
        await federation.copy_of(NODE, tmp_path / "copy")
    cut = Rule(Fault.LOST, receiver=NODE, path="/shares$")
    federation.wire.rules.append(cut)
    job, round_id = await federation.collecting(privacy=CHEAP)
    await federation.step()
    if forgets == "shares":
        await federation.copy_of(NODE, tmp_path / "copy")
    federation.wire.rules.remove(cut)
    # one answer is late, or the node would sign what it holds before it forgets that
    late = federation.wire.cut("clinic-b", NODE, "/shares$")
    await federation.until(lambda: has_two(federation, round_id))
    await federation.set_back(NODE, tmp_path / "copy")
    assert await restart(federation) is None, "it signed nothing that it lacks"
    federation.wire.rules.remove(late)
    state = await federation.finish(job)
    assert state["phase"] == "finished", state
    result = (await audit(federation))[round_id]
    assert result is not None
    assert result["cohort_size"] == sum(SITES.values())


def hides(_: bytes) -> bytes:
    return b'{"documents":[]}'


def shows_nonsense(_: bytes) -> bytes:
    return b'{"documents":[{"body":{},"signature":"00","signer":"compute-0"}]}'


def forges(answer: bytes) -> bytes:
    """Show what the node signed as if it had signed something else."""
    return re.sub(rb'("(?:round|hash)":")[0-9a-f]{64}', rb"\g<1>" + b"f" * 64, answer)


SOME = [(), *combinations(KEEPERS, 1)]
ALL = [each for count in range(5) for each in combinations(KEEPERS, count)]


@pytest.mark.parametrize(
    "present",
    [SOME, pytest.param(ALL, marks=pytest.mark.exhaustive)],
    ids=["none or one", "any"],
)
@pytest.mark.parametrize(
    "lie",
    [
        None,
        pytest.param(hides, marks=pytest.mark.exhaustive),
        pytest.param(shows_nonsense, marks=pytest.mark.exhaustive),
        forges,
    ],
)
async def test_one_honest_keeper_is_enough_whoever_is_absent_and_whatever_one_says(
    federation: Federation, tmp_path: Path, present: Iterable[tuple[str, ...]], lie: object
) -> None:
    """A keeper that is there hears of it late: after the node has started without it."""
    await federation.copy_of(NODE, tmp_path / "copy")
    await federation.learn(privacy=CHEAP)
    for honest in present:
        for liar in [None] if lie is None else [each for each in KEEPERS if each not in honest]:
            federation.wire.rules.clear()
            if callable(lie):
                federation.wire.rules.append(
                    Rule(Fault.LIES, receiver=liar, path="/heads$", lie=lie)
                )
            await federation.set_back(NODE, tmp_path / "copy")
            for other in set(KEEPERS) - federation.absent:
                await federation.crash(other)
            federation.absent |= set(KEEPERS)
            assert await restart(federation) is None  # nobody is there to say so
            assert await is_ready(federation)
            federation.absent -= {*honest, liar}
            assert bool(await restart(federation)) == bool(honest), (honest, liar)
            assert await is_ready(federation) != bool(honest)


async def test_keepers_find_nothing_where_nothing_was_forgotten_whatever_one_says(
    federation: Federation,
) -> None:
    await federation.learn(privacy=CHEAP)
    for lie in (hides, shows_nonsense, forges):
        federation.wire.rules.append(
            Rule(Fault.LIES, receiver="compute-1", path="/heads$", lie=lie)
        )
        await federation.crash(NODE)
        assert await restart(federation) is None
        assert await is_ready(federation)
        federation.wire.rules.clear()

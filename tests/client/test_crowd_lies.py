"""What a lying trainer can do in a crowd job shows: at the draw, or by the closing for ever."""

import dataclasses
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal_agent.data_holder import DataHolder
from shoal_holder.crowds import memory
from shoal_holder.crowds.crowd import LogPage
from shoal_holder.crowds.status import is_cheating
from shoal_protocol.crowds.draws import CrowdClosing, Draw, LogEntry, SubmissionReceipt
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import MalformedDocument
from tests.world.around_holder import state_of
from tests.world.around_holder_crowds import CrowdWorld, Lies
from tests.world.spending import costs_of


@pytest.fixture
def world(tmp_path: Path) -> CrowdWorld:
    return CrowdWorld(tmp_path)


def changed(document: Any, **changes: Any) -> Any:
    return type(document)(**(dict(document) | changes))


BAD_DRAWS: dict[str, Callable[[Draw], Draw]] = {
    "of another job": lambda draw: changed(draw, job="f" * 64),
    "of another nonce": lambda draw: changed(draw, nonce="f" * 64),
    "of no instance": lambda draw: changed(draw, instance=7),
    "of another length": lambda draw: changed(draw, weights=(*draw.weights, 0)),
    "of another beginning": lambda draw: changed(draw, revision=0, weights=(5, 5)),
}


@pytest.mark.parametrize("name", BAD_DRAWS)
async def test_a_draw_that_cannot_be_one_is_not_answered_and_costs_nothing(
    world: CrowdWorld, holder: DataHolder, name: str
) -> None:
    world.crowds.lies = Lies(draw=BAD_DRAWS[name])
    await world.run(holder, seconds=1000)
    [found] = (await holder.status()).crowds
    assert str(found.ended).startswith("refused")
    assert not world.crowds.taken and await costs_of(holder) == {}


async def test_a_draw_that_the_trainer_did_not_sign_is_not_answered(
    world: CrowdWorld, holder: DataHolder
) -> None:
    world.crowds.signed = lambda body: {  # type: ignore[method-assign]
        "body": body.model_dump(mode="json"),
        "signature": "00" * 64,
        "signer": "trainer",
    }
    await world.run(holder, seconds=1000)
    assert not world.crowds.taken and await costs_of(holder) == {}


@pytest.mark.slow
@pytest.mark.parametrize("said", ["<html>back soon</html>", '{"documents": []}'])
async def test_what_is_no_answer_of_the_trainers_ends_no_job(
    world: CrowdWorld, holder: DataHolder, said: str
) -> None:
    world.wire.scripts["trainer"] = lambda request: (
        httpx.Response(200, text=said) if request.url.path.endswith("/draws") else None
    )
    await world.run(holder, seconds=300)
    [found] = (await holder.status()).crowds
    assert found.ended is None and not world.crowds.taken
    del world.wire.scripts["trainer"]
    await world.run(holder, seconds=700)
    assert world.crowds.taken


def steered(draw: Draw) -> Draw:
    """Serve instance 0 to everybody."""
    return changed(draw, instance=0, revision=0, weights=(0, 0))


def other_weights(draw: Draw) -> Draw:
    """Serve weights that the instance never had."""
    return changed(draw, weights=(17, 17)) if draw.revision else draw


def never_reached(draw: Draw) -> Draw:
    return changed(draw, revision=draw.revision + 10_000)


def moved(receipt: SubmissionReceipt) -> SubmissionReceipt:
    """Say that another instance was replaced than the seed says."""
    entry = changed(receipt.entry, instance=(receipt.entry.instance + 1) % 3)
    return changed(receipt, entry=entry)


def other_submission(receipt: SubmissionReceipt) -> SubmissionReceipt:
    return changed(receipt, entry=changed(receipt.entry, weights="f" * 64))


def another_seed(closing: CrowdClosing) -> CrowdClosing:
    return changed(closing, seed="ab" * 32)


def other_end(closing: CrowdClosing) -> CrowdClosing:
    heads = tuple(changed(head, weights=(9, 9)) for head in closing.heads)
    return changed(closing, heads=heads)


def without_end(closing: CrowdClosing) -> CrowdClosing:
    """Claim logs that are too long for data holders to follow."""
    heads = tuple(changed(head, revision=10**6, digest="d" * 64) for head in closing.heads)
    return changed(closing, heads=heads, contributions=10**6 * len(heads))


def rewritten(entries: list[LogEntry]) -> list[LogEntry]:
    return [changed(each, nonce="c" * 64) for each in entries]


CHEATS = {
    "everybody draws one instance": (Lies(draw=steered), "seed gives another instance"),
    "weights that never were": (Lies(draw=other_weights), "never had these weights"),
    "a revision that never was": (Lies(draw=never_reached), "never had revision"),
    "another instance replaced": (Lies(receipt=moved), "another instance was replaced"),
    "a receipt for something else": (Lies(receipt=other_submission), "receipt is not"),
    "acknowledged and dropped": (Lies(forgets=True), "is not in the end"),
    "another seed revealed": (Lies(closing=another_seed), "reveals another seed"),
    "another end": (Lies(closing=other_end), "did not end as the closing says"),
    "forgotten, with logs too long": (
        Lies(forgets=True, closing=without_end),
        "than the job takes",
    ),
    "another log": (Lies(log=rewritten), "instance"),
    "a shorter log": (Lies(log=lambda entries: entries[:-1]), "ends too early"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEATS)
async def test_cheating_shows_when_the_job_is_closed(
    world: CrowdWorld, holder: DataHolder, name: str
) -> None:
    world.crowds.lies, reason = CHEATS[name]
    await world.run(holder, seconds=1000)
    world.crowds.closed = True
    await world.run(holder, seconds=120)
    [found] = (await holder.status()).crowds
    assert reason in str(found.verdict)
    assert not re.search("[0-9a-f]{64}", str(found.verdict))  # nothing tells whose draws these were


EARLY: dict[str, tuple[Callable[[CrowdWorld], None], str]] = {
    "by itself": (lambda world: None, "its analyst did not ask"),
    "by itself, dated at the end": (
        lambda world: dated(world, world.crowds.closes_at),
        "dated later",
    ),
    "by a request of its own": (lambda world: forged(world), "the analyst did not close"),
}


def dated(world: CrowdWorld, moment: datetime) -> None:
    world.crowds.lies = Lies(closing=lambda closing: changed(closing, closed_at=moment))


def forged(world: CrowdWorld) -> None:
    world.crowds.close_early()
    assert world.crowds.asked is not None
    world.crowds.asked = dataclasses.replace(world.crowds.asked, signature="00" * 64)


@pytest.mark.parametrize("name", EARLY)
async def test_a_trainer_that_closes_a_job_before_its_time_has_cheated(
    world: CrowdWorld, holder: DataHolder, name: str
) -> None:
    await world.run(holder, seconds=500)
    cheat, reason = EARLY[name]
    cheat(world)
    world.crowds.closed = True
    await world.run(holder, seconds=120)
    [found] = (await holder.status()).crowds
    assert reason in str(found.verdict) and is_cheating(found.verdict)


async def test_a_lie_about_the_end_is_held_against_a_trainer_that_shows_it_only_once(
    world: CrowdWorld, holder: DataHolder
) -> None:
    """For a job that it says is closed, it shows an early closing; afterwards it is open again."""
    await world.run(holder, seconds=500)
    shown: list[bytes] = []

    def once(request: httpx.Request) -> httpx.Response | None:
        if request.url.path == "/v1/crowds/list" and not shown:
            return httpx.Response(200, json={"crowds": []})
        if request.url.path.endswith("closing") and not shown:
            shown.append(canonical_json(world.crowds.signed(world.crowds.closing())))
            return httpx.Response(200, content=shown[0])
        return None

    world.wire.scripts["trainer"] = once
    await world.run(holder, seconds=90)
    assert shown
    [found] = (await holder.status()).crowds
    assert found.ended == "crowd-closed" and is_cheating(found.verdict)
    await world.run(holder, seconds=500)
    world.crowds.closed = True
    await world.run(holder, seconds=120)
    [found] = (await holder.status()).crowds
    assert "its analyst did not ask" in str(found.verdict)
    state = state_of(holder)
    kept = memory.documents(state, world.job)
    assert kept is not None and kept[2] == shown[0]
    assert any(each.receipt for each in memory.evidence(state, world.job))


async def test_the_closing_that_is_shown_first_is_judged_though_its_logs_come_with_another(
    world: CrowdWorld, holder: DataHolder
) -> None:
    """Of the first, the logs would show that it is a lie: they are not to be had meanwhile."""
    await world.run(holder, seconds=1000)
    world.crowds.closed = True
    world.crowds.lies = Lies(closing=other_end)
    world.wire.scripts["trainer"] = lambda request: (
        httpx.Response(503) if "/log/" in request.url.path else None
    )
    await world.run(holder, seconds=120)
    [found] = (await holder.status()).crowds
    assert found.verdict is None
    del world.wire.scripts["trainer"]
    world.crowds.lies = Lies()
    await world.run(holder, seconds=200)
    [found] = (await holder.status()).crowds
    assert "did not end as the closing says" in str(found.verdict)


async def test_another_jobs_closing_ends_no_job_and_convicts_nobody(
    world: CrowdWorld, holder: DataHolder
) -> None:
    await world.run(holder, seconds=300)
    body = changed(world.crowds.closing(), job="a" * 64)
    foreign = canonical_json(world.crowds.signed(body))

    def of_another(request: httpx.Request) -> httpx.Response | None:
        if request.url.path == "/v1/crowds/list":
            return httpx.Response(200, json={"crowds": []})
        return (
            httpx.Response(200, content=foreign) if request.url.path.endswith("closing") else None
        )

    world.wire.scripts["trainer"] = of_another
    await world.run(holder, seconds=100)
    [found] = (await holder.status()).crowds
    assert (found.ended, found.verdict) == (None, None)
    await world.run(holder, seconds=1000)
    [found] = (await holder.status()).crowds
    assert (found.ended is not None, found.verdict) == (True, None)
    del world.wire.scripts["trainer"]
    world.crowds.closed = True
    await world.run(holder, seconds=200)
    [found] = (await holder.status()).crowds
    assert found.verdict == "borne out"


async def test_what_shows_the_cheating_is_kept(world: CrowdWorld, holder: DataHolder) -> None:
    world.crowds.lies = Lies(forgets=True)
    await world.run(holder, seconds=1000)
    world.crowds.closed = True
    await world.run(holder, seconds=120)
    kept = memory.evidence(state_of(holder), world.job)
    assert kept and all(each.receipt is not None for each in kept)


def test_a_page_of_a_log_is_bounded_before_it_is_parsed() -> None:
    page = b'{"entries":[' + b",".join([b"{}"] * 40_000) + b'],"next":null}'
    with pytest.raises(MalformedDocument, match="more than 65536 values"):
        LogPage.read(page)

"""No fault in a vault ends it, and an agent whose vault has ended says so in a plain line."""

import asyncio
import io
import json
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import structlog

from shoal_agent.__main__ import _work
from shoal_agent.vault_link import VaultGone
from shoal_holder import frames, rounds, serving
from shoal_holder.faults import FAULTS_FILE, LARGEST_FILE, Faults, VaultFailed
from shoal_holder.messages import question_about
from shoal_holder.rounds import FAILED
from shoal_holder.vault import Vault
from shoal_kit.web.logs import configure_logs
from tests.world.around_holder import World, vault_of
from tests.world.around_holder_crowds import CROWD_POLICY, CrowdWorld
from tests.world.clock import NOW

ASKED = {  # in a job with a round, and in a crowd
    *("Vault.opened", "Vault.settle_charges", "Vault.agenda", "Vault.pending", "Vault.settle"),
    *("Vault.signed", "Vault.acknowledged", "Vault.status", "CrowdVault.statuses"),
    *("ChargeComparison.query", "ChargeComparison.hear", "Jobs.offer", "Jobs.end_as_told"),
    *("Rounds.offer", "Rounds.prepare", "CrowdVault.agenda", "CrowdVault.offer"),
    *("CrowdVault.turn", "CrowdVault.contribute", "CrowdVault.pending", "CrowdVault.settle"),
    *("CrowdVault.end", "Closings.show", "Closings.judge", "Closings.show_log"),
}


async def played(directory: Path, kind: str | None) -> tuple[set[str], str, list[str]]:
    """Play a job and a crowd, failing at the first message of a kind.

    Return what was asked, the owner's list of faults, and what became of the job's round.
    """
    world, asked = CrowdWorld(directory, 12), set[str]()
    holder = world.holder(policy=CROWD_POLICY.model_copy(update={"maximum_epsilon": 20.0}))
    vault = vault_of(holder)
    for name, verb in list(vault._verbs.items()):

        @wraps(verb)
        def handle(*, name: str = name, verb: Any = verb, **arguments: Any) -> Any:
            first = name not in asked
            asked.add(name)
            if first and name == kind:
                raise RuntimeError("of a record: 41.5")
            return verb(**arguments)

        vault._verbs[name] = handle
    request = world.submit()
    for moment in range(28):
        await holder.step()
        if request.digest in world.trainer.joined and not world.trainer.specs:
            world.announce(request)
        if moment == 20:
            world.crowds.close_early()
            world.trainer.ended.add(request.digest)
        world.clock.move(50.0 if moment > 3 else 2.0)
    try:
        jobs = (await holder.status()).jobs
    except VaultFailed:
        jobs = (await holder.status()).jobs
    await holder.close()
    path = directory / "holder" / FAULTS_FILE
    ended = [each.ended for job in jobs for each in job.rounds]
    return asked, path.read_text() if path.exists() else "", ended


async def test_what_is_asked_in_a_job_and_a_crowd_is_made_to_fail_below(tmp_path: Path) -> None:
    asked, said, ended = await played(tmp_path, None)
    assert asked == ASKED
    assert (said, ended) == ("", ["delivered"])


@pytest.mark.parametrize("kind", sorted(ASKED))
async def test_a_message_that_fails_ends_nothing_and_only_its_owner_learns_why(
    tmp_path: Path, kind: str
) -> None:
    asked, said, ended = await played(tmp_path, kind)
    assert {"Vault.agenda", "CrowdVault.agenda", "ChargeComparison.query"} <= asked
    [line] = said.splitlines()
    assert f"no answer to {kind}: RuntimeError, " in line and "41.5" not in said
    if kind != "Jobs.offer":  # which is offered once
        assert ended == ["delivered"]


async def test_a_round_that_fails_once_records_were_read_is_not_answered_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(rounds, "seal_contribution", fails)
    holder = world.holder()
    request = world.submit()
    await holder.step()
    world.announce(request)
    await holder.step()
    world.clock.move(60.0)
    await holder.step()
    [job] = (await holder.status()).jobs
    assert [each.ended for each in job.rounds] == [FAILED]
    assert await holder.spent() == {} and not any(node.held for node in world.nodes)
    await holder.close()


Panic = type("Panik\nin Ü", (BaseException,), {})
"""What a library in another language may raise, and a model that names its error at will."""
RAISED = (LookupError, GeneratorExit, SystemExit, Panic)


@pytest.mark.parametrize("error", RAISED, ids=range(len(RAISED)))
async def test_records_at_which_anything_is_raised_count_for_none_and_the_round_is_answered(
    world: World, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def fails(*_: object) -> None:
        raise error("of a record: 41.5")

    monkeypatch.setattr(rounds, "encoded_together", fails)
    holder = world.holder()
    request = world.submit()
    await holder.step()
    world.announce(request)
    for _ in range(2):
        await holder.step()
        world.clock.move(60.0)
    [job] = (await holder.status()).jobs
    assert [each.ended for each in job.rounds] == ["delivered"]
    await holder.close()
    [path] = world.directory.rglob(FAULTS_FILE)
    lines = path.read_bytes().decode("ascii").splitlines()
    assert lines and all(each.startswith("2026-03-01T") and "41.5" not in each for each in lines)


@pytest.mark.parametrize("error", RAISED, ids=range(len(RAISED)))
def test_an_answer_says_of_a_fault_that_there_was_one_and_no_more(
    tmp_path: Path, error: type[BaseException]
) -> None:
    vault = vault_of(World(tmp_path).holder())

    def fails() -> None:
        raise error("of a record: 41.5")

    vault._verbs["Vault.opened"] = fails
    answer = vault.first_answer()
    assert b"vault-failed" in answer
    assert b"41.5" not in answer and b"LookupError" not in answer


def test_what_cannot_be_read_is_refused_by_either_side_and_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = vault_of(World(tmp_path).holder())
    asked = frames.encode(question_about(Vault.opened)())
    for no_frame in (b"", b"\0" * 40, asked[:-1]):
        assert b"malformed-document" in vault.answer(no_frame)
    with monkeypatch.context() as patched:
        patched.setattr(frames, "LARGEST_BYTES", 150)
        assert b"vault-failed" in vault.answer(asked)
    assert b"enrolled" in vault.answer(asked)


def test_the_list_of_faults_is_the_owners_and_does_not_grow_for_ever(tmp_path: Path) -> None:
    faults, path = Faults(tmp_path, lambda: NOW), tmp_path / FAULTS_FILE
    faults.write("a", ValueError("of a record: 41.5"))
    assert path.read_text() == "2026-03-01T12:00:00.000Z a: ValueError\n"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("x" * (LARGEST_FILE + 1))
    faults.write("b", ValueError())
    assert path.read_text().endswith("b: ValueError\n") and len(path.read_text()) < 100
    Faults(tmp_path / "none", lambda: NOW).write("a disk that is full", ValueError())


@pytest.mark.parametrize("together", [False, True])
async def test_an_agent_whose_vault_ended_logs_that_both_start_again_and_no_error(
    together: bool,
) -> None:
    class Gone:
        wake, closed = asyncio.Event(), False

        async def step(self) -> None:
            if not together:
                raise VaultGone
            async with asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(self._ask())

        async def _ask(self) -> None:
            raise VaultGone

        async def close(self) -> None:
            self.closed = True

    log, service = io.StringIO(), Gone()
    configure_logs(stream=log)
    try:
        await _work(service, 1.0)  # type: ignore[arg-type]
    finally:
        structlog.reset_defaults()
    assert service.closed
    [line] = map(json.loads, log.getvalue().splitlines())
    assert line["level"] == "warning" and "started again" in line["event"]
    assert "frames" not in line and "exception" not in line


def test_a_courier_that_ends_within_a_message_ends_the_vault_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    vault = vault_of(World(tmp_path).holder())
    serving._answer(vault, io.BytesIO(b"\xff\xff\xff\x00ab"), io.BytesIO())
    assert capfd.readouterr().err == ""

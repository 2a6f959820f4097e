"""No fault in a vault ends it, and an agent whose vault has ended says so in a plain line."""

import asyncio
import io
import json
import re
import sqlite3
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import structlog

from shoal_agent.__main__ import _work
from shoal_agent.vault_link import VaultGone
from shoal_holder import frames, journal, rounds, serving
from shoal_holder import vault as vault_module
from shoal_holder.approvals import Approvals
from shoal_holder.charge_comparison import ChargeComparison
from shoal_holder.crowds.closings import Closings
from shoal_holder.crowds.contributor import Contributor
from shoal_holder.crowds.jobs import CrowdJobs
from shoal_holder.faults import FAULTS_FILE, LARGEST_FILE, Faults, VaultFailed
from shoal_holder.jobs import Jobs
from shoal_holder.letters import Settled
from shoal_holder.mark import Mark
from shoal_holder.messages import question_about
from shoal_holder.rounds import FAILED, Rounds
from shoal_holder.state import State
from shoal_holder.vault import Vault
from shoal_kit.web.logs import configure_logs
from tests.world.around_holder import World, vault_of
from tests.world.around_holder_crowds import CROWD_POLICY, CrowdWorld
from tests.world.clock import NOW, HandMovedTimer
from tests.world.spending import costs_of

ASKED = {  # in a job with a round, and in a crowd
    *("Vault.opened", "Vault.due", "Vault.settle", "Vault.status"),
    *("Jobs.judged", "CrowdJobs.standing"),
}
WITHIN = {  # what these call, each on its own
    *("ChargeComparison.letters", "ChargeComparison.settle", "ChargeComparison.answered"),
    *("Approvals.letters", "Jobs.letters", "Jobs.list_jobs", "Jobs.offer"),
    *("Jobs.end_as_told", "Jobs.end_those_over", "Rounds.look", "Rounds.letters"),
    *("Rounds.offer", "Rounds.note", "Rounds.hear_stored", "Jobs.note"),
    *("CrowdJobs.letters", "CrowdJobs.turns", "CrowdJobs.take_turn"),
    *("CrowdJobs.list_jobs", "CrowdJobs.hear_request", "CrowdJobs.offer", "CrowdJobs.hear_draw"),
    *("CrowdJobs.note", "CrowdJobs.hear_closing", "Contributor.prepare", "Contributor.contribute"),
    *("Closings.letters", "Closings.hear", "Closings.hear_log"),
}
_PARTS = (Approvals, ChargeComparison, Jobs, Rounds, CrowdJobs, Contributor, Closings)
PARTS: dict[str, Any] = {each.__name__: each for each in _PARTS}
OF_ROUNDS = re.compile(r"/v1/(jobs/[0-9a-f]{64}/(memberships|request)|rounds/[0-9a-f]{64}/shares)")


@dataclass
class Played:
    """What was asked, the owner's list of faults, what became of a round, and what left."""

    asked: set[str] = field(default_factory=set)
    faults: str = ""
    ended: list[str | None] = field(default_factory=list)
    left: set[tuple[str, bytes]] = field(default_factory=set)
    """Address and bytes of each message about a job and its round, however often it was sent."""
    waited: float = 0.0
    """Seconds for which the vault kept its answers back."""


async def played(directory: Path, failing: str | None) -> Played:
    """Play a job and a crowd, and have one function of the vault fail when it is first called."""
    world, timer, found = CrowdWorld(directory, 12), HandMovedTimer(), Played()
    policy = CROWD_POLICY.model_copy(update={"maximum_epsilon": 20.0})

    def watched(name: str, function: Any) -> Any:
        @wraps(function)
        def handle(*given: Any, **arguments: Any) -> Any:
            first = name not in found.asked
            found.asked.add(name)
            if first and name == failing:
                raise RuntimeError("of a record: 41.5")
            return function(*given, **arguments)

        return handle

    with pytest.MonkeyPatch.context() as patched:
        for name in WITHIN:
            part, method = name.split(".")
            patched.setattr(PARTS[part], method, watched(name, getattr(PARTS[part], method)))
        holder = world.holder(policy=policy, timer=timer)
        vault = vault_of(holder)
        for name, verb in list(vault._verbs.items()):
            vault._verbs[name] = watched(name, verb)
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
    found.faults = path.read_text() if path.exists() else ""
    found.ended = [each.ended for job in jobs for each in job.rounds]
    found.left = {
        (str(each.request.url), each.body)
        for each in world.wire.log
        if OF_ROUNDS.fullmatch(each.path)
    }
    found.waited = timer.passed
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The play in which nothing fails."""
    return asyncio.run(played(tmp_path_factory.mktemp("whole") / "-", None))


def test_what_is_asked_in_a_job_and_a_crowd_is_made_to_fail_below(whole: Played) -> None:
    assert whole.asked == ASKED | WITHIN
    assert (whole.faults, whole.ended) == ("", ["delivered"])
    assert len(whole.left) == 1 + 1 + 3 and whole.waited > 0.0


@pytest.mark.parametrize("name", sorted(ASKED | WITHIN))
async def test_R12_a_fault_ends_nothing_changes_nothing_that_leaves_and_only_its_owner_learns_why(
    tmp_path: Path, whole: Played, name: str
) -> None:
    """The courier learns of a fault before records are read that there was one, and asks again."""
    found = await played(tmp_path / "-", name)
    [line] = found.faults.splitlines()
    assert ": RuntimeError, " in line and "41.5" not in line
    assert found.ended == whole.ended
    assert lengths(found) == lengths(whole)
    assert len(dict(found.left)) == len(found.left), "two messages in one's place"


def lengths(of: Played) -> list[int]:
    return sorted(len(each) for _, each in of.left)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (rounds, "chosen_together"),
        (rounds, "encoded_together"),
        (rounds, "draw_noise"),
        (rounds, "seal_contribution"),
        (State, "record_answer"),
        (Faults, "write"),
    ],
)
async def test_R12_when_a_round_is_answered_does_not_show_that_something_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    """From where records are read, the vault answers at the moment when it would have anyway."""

    async def answered(directory: Path) -> tuple[float, list[str]]:
        world, timer = World(directory), HandMovedTimer()
        holder = world.holder(timer=timer)
        request = world.submit()
        await holder.step()
        world.announce(request)
        await holder.step()
        await holder.close()
        return timer.passed, [each.path for each in world.wire.log]

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError

    whole, paths = await answered(tmp_path / "a")
    monkeypatch.setattr(owner, name, fails)
    waited, others = await answered(tmp_path / "b")
    assert waited == whole > 0.0
    is_answered = name in ("chosen_together", "encoded_together", "write")
    assert len([each for each in others if each.endswith("/shares")]) == 3 * is_answered
    assert others == [each for each in paths if is_answered or not each.endswith("/shares")]


STATUS = (200, 404, 410, 0)


@pytest.mark.parametrize("column", range(4))
def test_no_effect_of_an_answer_ends_the_vault_by_failing(tmp_path: Path, column: int) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("of a record: 41.5")

    vault = vault_of(CrowdWorld(tmp_path).holder())
    for kind, effects in vault._effects.items():
        vault._effects[kind] = tuple(fails if at == column else effects[at] for at in range(4))  # type: ignore[assignment]
        asked = answered(kind, 1, column, b"")
        answer = vault.answer(asked)
        assert b"vault-failed" in answer and b"41.5" not in answer
        assert b"enrolled" in vault.answer(frames.encode(question_about(Vault.opened)()))


def test_R4_nothing_leaves_as_long_as_what_was_committed_is_not_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a state that is older than what left would pass for the newest."""
    vault = vault_of(World(tmp_path).holder())
    due = frames.encode(question_about(Vault.due)())

    def fails(*_: object) -> None:
        raise OSError

    with monkeypatch.context() as patched:
        patched.setattr(Mark, "write", fails)
        with pytest.raises(sqlite3.OperationalError):
            with vault._state.file.transaction():
                journal.append(vault._state.file, "leave", "a" * 64, job="a" * 64)
        assert b"cannot be read or written" in vault.answer(due)
    assert b"cannot be read or written" not in vault.answer(due)


def answered(kind: str, number: int, column: int, body: bytes) -> bytes:
    letter = f"{kind}/{'a' * 64}/{number}"
    settle: Any = question_about(Vault.settle)
    return frames.encode(settle(letter=letter, status=STATUS[column], body=body))


@pytest.mark.parametrize("column", range(4))
def test_R12_an_answer_to_what_was_never_sent_changes_nothing(tmp_path: Path, column: int) -> None:
    vault = vault_of(CrowdWorld(tmp_path).holder())

    def kept() -> list[str]:
        return list(vault._state.file.database.iterdump())

    before = kept()
    for kind in vault._effects:
        for number in (0, 1, 999):
            for body in (b"", b"{}", b'{"stored":true}', b'{"type":"urn:shoal:problem:over"}'):
                answer = vault.answer(answered(kind, number, column, body))
                assert b"vault-failed" not in answer
    assert kept() == before


@pytest.mark.parametrize("code", ["pending", "acknowledged"])
def test_a_refusal_passes_for_no_other_outcome(code: str) -> None:
    body = f'{{"type":"urn:shoal:problem:{code}"}}'.encode()
    assert Settled.of(f"join/{'a' * 64}", 409, body).outcome == "http-409"


async def test_letters_for_which_one_frame_has_no_room_leave_one_after_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vault_module, "MOST_BYTES", 1)
    holder = world.holder()
    first = await holder.vault.ask(Vault.due)
    assert first is not None and len(first) == 1
    request = world.submit()
    await holder.step()
    world.announce(request)
    await holder.step()
    assert all(node.held for node in world.nodes)
    await holder.close()


async def test_R4_no_letter_leaves_before_its_mark_though_the_courier_goes_on(world: World) -> None:
    def fails(*_: object) -> None:
        raise OSError

    holder = world.holder()
    request = world.submit()
    await holder.step()
    world.announce(request)
    record = State.record_answer
    with pytest.MonkeyPatch.context() as patched:

        def unmarked(*given: Any, **arguments: Any) -> None:
            patched.setattr(Mark, "write", fails)
            record(*given, **arguments)

        patched.setattr(State, "record_answer", unmarked)
        with pytest.raises(VaultGone):
            await holder.step()
        with pytest.raises(VaultGone):
            await holder.vault.ask(Vault.due)
    due = await holder.vault.ask(Vault.due)
    assert len([each for each in due or () if each.id.startswith("envelope/")]) == 3
    await holder.close()


async def test_R12_a_round_that_fails_once_records_were_read_is_not_answered_and_says_so(
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
    assert await costs_of(holder) == {} and not any(node.held for node in world.nodes)
    await holder.close()


Panic = type("Panik\nin Ü", (BaseException,), {})
"""What a library in another language may raise, and a model that names its error at will."""
RAISED = (LookupError, GeneratorExit, SystemExit, Panic)


@pytest.mark.parametrize("error", RAISED, ids=range(len(RAISED)))
async def test_R12_records_at_which_anything_is_raised_count_for_none_and_the_round_is_answered(
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
    answer = vault.answer(frames.encode(question_about(Vault.opened)()))
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

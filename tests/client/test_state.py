"""The data holder's memory: one answer per round for ever, debited with the bytes, and durable."""

import math
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from pyroaring import BitMap

from shoal_holder import spending
from shoal_holder.state import State
from shoal_holder.status import read_jobs
from shoal_kit.outcome import ACKNOWLEDGED, PENDING
from shoal_protocol.privacy.accounting import NOTHING, Cost
from shoal_protocol.sharing.envelope import SIGNATURE_BYTES
from tests.world.around_holder import charged_on
from tests.world.clock import NOW

JOB, OTHER_JOB = "a" * 64, "b" * 64
ROUND, OTHER_ROUND = "c" * 64, "d" * 64
AUTHORITY = "e" * 64
SPENT = Cost.gaussian(0.3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holder.sqlite"


@pytest.fixture
def state(path: Path) -> Iterator[State]:
    opened = State(path, authority=AUTHORITY)
    yield opened
    opened.close()


def join(state: State, job: str, cost: Cost, slots: Iterable[int]) -> None:
    state.add_job(job, b"request", cost=cost, slots=BitMap(slots), join=b"join")


def with_round(state: State, slots: int = 4) -> None:
    join(state, JOB, Cost.gaussian(0.5), range(slots))
    state.add_round(ROUND, JOB, 0, b"spec", None)


def answer(
    state: State,
    used: Iterable[int],
    text: bytes = b"envelope",
    *,
    unused: Iterable[int] = (),
    cost: Cost = SPENT,
    round_id: str = ROUND,
) -> None:
    envelopes = {node: b"%s for %d" % (text, node) + bytes(SIGNATURE_BYTES) for node in range(3)}
    slots = {"used": BitMap(used), "unused": BitMap(unused)}
    state.record_answer(round_id, cost, NOW, **slots, envelopes=envelopes)


def committed(state: State) -> dict[int, Cost]:
    sums = state.committed()
    return sums.of(sums.charged)


def pending(state: State, node: int = 0, round_id: str = ROUND) -> bytes | None:
    found = state.envelope(round_id, node, PENDING)
    return found and found[1][:-SIGNATURE_BYTES]


def test_everything_is_there_again_after_reopening(path: Path) -> None:
    state = State(path, authority=AUTHORITY)
    with_round(state)
    answer(state, range(2))
    state.settle("join", JOB, ACKNOWLEDGED)
    state.settle("envelope", ROUND, ACKNOWLEDGED)
    before = (
        read_jobs(state.file),
        charged_on(state),
        committed(state),
        pending(state, 1),
    )
    state.close()
    state = State(path, authority=AUTHORITY)
    assert before == (
        read_jobs(state.file),
        charged_on(state),
        committed(state),
        pending(state, 1),
    )
    assert [job.next_number for job in state.open_jobs()] == [1]
    state.close()


@pytest.mark.parametrize("again", [range(1, 3), range(2, 4)], ids=["the same slots", "others"])
def test_a_round_is_answered_once_for_ever(state: State, again: range) -> None:
    with_round(state)
    assert not state.is_answered(ROUND)
    answer(state, range(2))
    with pytest.raises((ValueError, sqlite3.IntegrityError)):
        answer(state, again, b"other")
    assert state.is_answered(ROUND)
    assert [client for _, _, client in charged_on(state)] == [0, 1]
    assert pending(state) == b"envelope for 0"


def test_slots_that_an_answer_does_not_use_are_named_and_pay_nothing(state: State) -> None:
    with_round(state)
    answer(state, [0, 3], unused=[1])
    sums = spending.spent(state.file)
    assert sums.of(BitMap([0, 1, 3])) == {0: SPENT, 1: NOTHING, 3: SPENT}
    assert [set(each.clients) for each in spending.charges(state.file)] == [{0, 3}, {1}]
    assert read_jobs(state.file)[0].rounds[0].answers == 3


def test_the_rounds_of_a_job_are_added_up_as_they_come_each_charge_read_once(
    state: State, path: Path
) -> None:
    join(state, JOB, Cost.gaussian(2.0), range(4))
    join(state, OTHER_JOB, Cost.gaussian(2.0), range(4))
    read: list[str] = []
    state.file.database.set_trace_callback(
        lambda query: read.append(query) if "FROM journal" in query else None
    )
    for number, used in enumerate([[0, 1], [1, 2], [1, 3]]):
        for job in (JOB, OTHER_JOB):
            round_id = f"{number}{job[1:]}"
            state.add_round(round_id, job, number, b"spec", None)
            answer(state, used, round_id=round_id)
            read.clear()
            assert state.spent_in_job(job, BitMap([1])).mu == pytest.approx(
                0.3 * (number + 1) ** 0.5
            )
            [query] = read
            assert (" number > 0 " in query) is (number == 0)
    assert state.spent_in_job(JOB, BitMap([0, 3])) == SPENT
    state.close()
    reopened = State(path, authority=AUTHORITY)
    assert reopened.spent_in_job(JOB, BitMap([0, 3])) == SPENT
    reopened.close()


def test_a_job_has_one_round_of_each_number_for_ever(state: State) -> None:
    with_round(state)
    with pytest.raises(sqlite3.IntegrityError):
        state.add_round(OTHER_ROUND, JOB, 0, b"other spec", None)
    state.end_round(ROUND, "over")
    with pytest.raises(sqlite3.IntegrityError):
        state.add_round(OTHER_ROUND, JOB, 0, b"other spec", None)


def test_debit_and_envelopes_are_stored_together_or_not_at_all(state: State) -> None:
    with_round(state)

    class Interrupted(dict[int, bytes]):
        def items(self) -> Iterator[tuple[int, bytes]]:  # type: ignore[override]
            yield 0, b"first"
            raise OSError("interrupted between two envelopes")

    with pytest.raises(OSError):
        state.record_answer(
            ROUND, SPENT, NOW, used=BitMap([0]), unused=BitMap([1]), envelopes=Interrupted()
        )
    assert charged_on(state) == []
    assert pending(state) is None
    answer(state, range(4))
    assert len(charged_on(state)) == 4


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM journal",
        "UPDATE journal SET body = '{}'",
        "UPDATE OR REPLACE journal SET number = 1",
        "REPLACE INTO journal SELECT number, epoch, salt, kind, subject, '{}', hash FROM journal",
        "REPLACE INTO journal SELECT 9, epoch, salt, kind, subject, '{}', hash FROM journal",
    ],
)
def test_the_journal_only_grows(state: State, path: Path, statement: str) -> None:
    with_round(state)
    answer(state, range(2))
    state.close()
    database = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="only grows"):
        database.execute(statement)
    database.close()


def test_settled_envelopes_are_erased_and_their_digests_stay(state: State, path: Path) -> None:
    with_round(state)
    answer(state, range(2), b"SECRET")
    for node, outcome in enumerate((ACKNOWLEDGED, "too-late", ACKNOWLEDGED)):
        state.settle("envelope", ROUND, outcome, node)
    assert [pending(state, node) for node in range(3)] == [None] * 3
    state.end_round(ROUND, "delivered")
    contents = [file.read_bytes() for file in path.parent.iterdir()]
    assert not any(b"SECRET" in content for content in contents)
    assert read_jobs(state.file)[0].rounds[0].envelopes == {ACKNOWLEDGED: 2, "too-late": 1}
    state.close()
    database = sqlite3.connect(path)
    digests = database.execute(
        "SELECT digest FROM outbox WHERE kind = 'envelope' AND document IS NULL"
    ).fetchall()
    assert len(set(digests)) == 3
    database.close()


def test_open_jobs_count_in_full_and_ended_ones_as_spent(state: State) -> None:
    with_round(state, slots=3)
    answer(state, range(2))  # of mu 0.3; the job may cost 0.5
    assert squares(state) == pytest.approx({0: 0.25, 1: 0.25, 2: 0.25})
    join(state, OTHER_JOB, Cost.gaussian(1.0), [0, 2])
    assert squares(state) == pytest.approx({0: 1.25, 1: 0.25, 2: 1.25})
    state.settle("join", OTHER_JOB, "refused-job")
    assert squares(state) == pytest.approx({0: 0.25, 1: 0.25, 2: 0.25})
    state.end_job(JOB, "job-finished")
    assert squares(state) == pytest.approx({0: 0.09, 1: 0.09})
    sums = spending.spent(state.file)
    assert sums.of(sums.charged) == {0: SPENT, 1: SPENT}


def squares(state: State) -> dict[int, float]:
    return {client: cost.mu**2 for client, cost in committed(state).items()}


def test_pure_epsilon_is_added_up_beside_mu(state: State) -> None:
    join(state, JOB, Cost.pure(1.0), [0, 1])
    state.add_round(ROUND, JOB, 0, b"spec", None)
    answer(state, [0], cost=Cost.pure(0.25))
    assert committed(state)[0].epsilon == pytest.approx(1.0)  # the open job's other 0.75, too
    assert committed(state)[1].epsilon == pytest.approx(1.0)
    assert state.spent_in_job(JOB, BitMap(range(9))).epsilon == pytest.approx(0.25)
    state.end_job(JOB, "job-finished")
    assert {client: cost.epsilon for client, cost in committed(state).items()} == {0: 0.25}


def test_a_job_costs_what_the_dearest_of_these_clients_spent(state: State) -> None:
    with_round(state)
    assert state.spent_in_job(JOB, BitMap(range(9))) == NOTHING
    answer(state, range(1))
    state.add_round(OTHER_ROUND, JOB, 1, b"spec", None)
    answer(state, [0, 1], cost=Cost.gaussian(0.4), round_id=OTHER_ROUND)
    assert state.spent_in_job(JOB, BitMap(range(9))).mu == pytest.approx(0.5)
    assert state.spent_in_job(JOB, BitMap([1, 2])).mu == pytest.approx(0.4)
    assert state.spent_in_job(JOB, BitMap([2])) == NOTHING


def test_only_its_owner_can_read_the_file(state: State, path: Path) -> None:
    with_round(state)
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.slow
def test_a_second_process_is_refused_while_the_first_runs(state: State, path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from shoal_holder.state import State\n"
        f"State(Path(sys.argv[1]), authority={AUTHORITY!r}).close()"
    )
    command = [sys.executable, "-c", program, str(path)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "in use by another process" in refused.stderr
    with_round(state)  # the first goes on
    state.close()
    assert subprocess.run(command, check=False).returncode == 0


def test_one_gaussian_round_leaves_no_pure_epsilon(state: State) -> None:
    with_round(state, slots=2)
    assert {cost.epsilon for cost in committed(state).values()} == {math.inf}
    answer(state, range(1))
    state.end_job(JOB, "job-finished")
    assert committed(state)[0].epsilon == math.inf
    assert state.spent_in_job(JOB, BitMap(range(9))).epsilon == math.inf

"""The data holder's memory of crowds: each contribution charged with its bytes, under every cap."""

import errno
import itertools
import math
import re
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.signing import SigningKey
from pyroaring import BitMap

from shoal_agent.status import checked_journal
from shoal_holder import journal, spending
from shoal_holder.crowds import memory
from shoal_holder.crowds.allowance import Limits, contributions_left, used_by
from shoal_holder.crowds.contributor import nonce_of
from shoal_holder.mark import Mark
from shoal_holder.state import State
from shoal_protocol.journal import Head
from shoal_protocol.privacy.accounting import Cap, Cost
from shoal_protocol.wire.errors import MalformedDocument
from tests.world.around_holder import charged_on
from tests.world.clock import NOW

CROWD, OTHER_CROWD, JOB = "a" * 64, "b" * 64, "c" * 64
AUTHORITY = "e" * 64
LIMITS = Limits(
    cost=Cost.pure(1.0),
    per_client=300,
    cap=Cap(epsilon=50.0, delta=1e-6),
    crowds_cap=Cap(epsilon=50.0, delta=0.0),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holder.sqlite"


@pytest.fixture
def state(path: Path) -> Iterator[State]:
    opened = reopen(path)
    for job in (CROWD, OTHER_CROWD):
        memory.add(opened, job, b"request", b"opening")
    yield opened
    opened.close()


def reopen(path: Path) -> State:
    return State(path, authority=AUTHORITY)


def limits(**changes: object) -> Limits:
    return Limits(**(vars(LIMITS) | changes))  # type: ignore[arg-type]


_drawn = iter(range(2**62))


def prepared(client: int) -> Any:
    """Return what stands for a signed submission."""
    number = next(_drawn)
    draw = SimpleNamespace(encode=lambda: b"draw")
    return SimpleNamespace(
        body=SimpleNamespace(client=client, draw=draw),
        digest=f"{number:064x}",
        encode=lambda: b"SECRET %d" % number,
    )


def contribute(
    state: State, *clients: int, job: str = CROWD, limits: Limits = LIMITS
) -> list[bool]:
    """Charge contributions of clients."""
    ready = [prepared(client) for client in clients]
    return memory.charge(state, job, ready, limits=limits, now=NOW)


def allowed(state: State, client: int = 0, job: str = CROWD, limits: Limits = LIMITS) -> bool:
    committed = state.committed().largest(BitMap([client]))
    return limits.allow(used_by(state, job, [client])[client], committed=committed)


def epsilons(state: State) -> dict[int, float]:
    committed = state.committed()
    return {client: cost.epsilon for client, cost in committed.of(committed.charged).items()}


def test_a_contribution_is_charged_in_the_journal_with_what_is_sent(state: State) -> None:
    assert contribute(state, 0, 1, 0) == [True] * 3
    entries = journal.entries(state.file, after=0, count=9)
    assert checked_journal(entries).number == 3
    assert [(each.job, len(each.clients), each.cost) for each in spending.charges(state.file)] == [
        (CROWD, 1, LIMITS.cost)
    ] * 3
    charges = charged_on(state)
    assert [client for _, _, client in charges] == [0, 1, 0]
    assert [what for what, _, _ in charges] == [
        entry.statement.subject for entry in entries if entry.statement is not None
    ]
    assert len(memory.pending(state, CROWD)) == 3
    used = used_by(state, CROWD, range(3))
    assert [used[client].made for client in range(3)] == [2, 1, 0]


def test_what_crowds_cost_counts_beside_rounds_towards_the_owners_cap(state: State) -> None:
    """A round of Gaussian noise, an open job and contributions: one cap on all of it."""
    state.add_job(JOB, b"r", cost=Cost.gaussian(0.5), slots=BitMap([0]), join=b"j")
    tight = limits(cap=Cap(epsilon=20.0, delta=1e-6))
    assert allowed(state, limits=tight)
    times = 0
    while any(contribute(state, 0, limits=tight)):
        times += 1
    together = Cost(mu=math.hypot(0.5, math.sqrt(times) * LIMITS.cost.mu), epsilon=math.inf)
    assert state.committed().largest(BitMap([0])).mu == pytest.approx(together.mu)
    assert tight.cap.allows(together)
    one_more = Cost.gaussian(math.hypot(together.mu, LIMITS.cost.mu))
    assert not tight.cap.allows(one_more)
    assert contribute(state, 1, limits=tight) == [True]  # who did not join has more left


def test_crowds_have_a_cap_of_their_own_over_all_jobs(state: State) -> None:
    tight = limits(crowds_cap=Cap(epsilon=2.0, delta=0.0))
    assert contribute(state, 0, limits=tight) == [True]
    assert contribute(state, 0, 0, job=OTHER_CROWD, limits=tight) == [True, False]
    assert contribute(state, 0, limits=tight) == [False]
    assert not allowed(state, limits=tight) and not allowed(state, job=OTHER_CROWD, limits=tight)
    assert allowed(state, client=1, limits=tight)


@pytest.mark.parametrize(
    "bound",
    [
        {"per_client": 5},
        {"cap": Cap(epsilon=7.5, delta=0.0)},
        {"cap": Cap(epsilon=20.0, delta=1e-6)},
        {"crowds_cap": Cap(epsilon=6.0, delta=0.0)},
    ],
)
def test_as_many_contributions_are_left_as_are_charged(
    state: State, bound: dict[str, object]
) -> None:
    state.add_job(JOB, b"r", cost=Cost.gaussian(0.5), slots=BitMap([1]), join=b"j")
    tight = limits(**bound)
    contribute(state, 0, job=OTHER_CROWD, limits=tight)
    left = contributions_left(state, CROWD, range(3), tight)
    for client, times in left.items():
        taken = [contribute(state, client, limits=tight) for _ in range(times + 1)]
        assert taken == [[True]] * times + [[False]]
    assert left[2] > 1


def test_charge_and_bytes_are_stored_together_or_not_at_all(state: State) -> None:
    state.committed()
    same = prepared(0)
    with pytest.raises(sqlite3.IntegrityError):
        memory.charge(state, CROWD, [same, same], limits=LIMITS, now=NOW)
    assert journal.entries(state.file, after=0, count=9) == []
    assert memory.pending(state, CROWD) == {}
    assert not state.committed().charged


def test_what_was_charged_counts_though_its_mark_failed(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    tight = limits(cap=Cap(epsilon=1.5, delta=1e-6))
    state.committed()

    def fails(_: Mark, head: Head) -> None:
        raise OSError(errno.EIO, "the disk does not answer")

    with monkeypatch.context() as failing, pytest.raises(sqlite3.OperationalError):
        failing.setattr(Mark, "write", fails)
        contribute(state, 0, limits=tight)
    assert contribute(state, 0, limits=tight) == [False]
    assert epsilons(state) == {0: 1.0}


def test_settled_submissions_are_erased_and_what_was_signed_stays(state: State, path: Path) -> None:
    contribute(state, 0, 1, 2)
    first, second, _ = (what for what, *_ in charged_on(state))
    memory.settle(state, first, "acknowledged", b"receipt")
    memory.settle(state, second, "session-expired", None)
    assert len(memory.pending(state, CROWD)) == 1
    state.end_job(CROWD, "crowd-closed")
    assert memory.pending(state, CROWD) == {}
    assert not any(b"SECRET" in file.read_bytes() for file in path.parent.iterdir())
    kept = state.file.rows(
        "SELECT draw, receipt FROM crowd_evidence JOIN journal ON subject = contribution"
        " ORDER BY number"
    )
    assert [zlib.decompress(draw) for draw, _ in kept] == 3 * [b"draw"]
    assert [receipt and zlib.decompress(receipt) for _, receipt in kept] == [b"receipt", None, None]
    assert memory.open_jobs(state) == [OTHER_CROWD]


CHANGES = {
    "the client": "UPDATE journal SET body = replace(body, 'client\":1', 'client\":7')",
    "the submission": f"UPDATE journal SET subject = '{'f' * 64}' WHERE number = 1",
    "the job": f"UPDATE journal SET body = replace(body, '{CROWD}', '{OTHER_CROWD}')",
    "a charge is gone": "DELETE FROM journal WHERE number = 2",
    "one was added": f"INSERT INTO outbox VALUES ('contribution', '{'f' * 64}', 0, 0, 0, '')",
    "its price": "UPDATE journal SET body = replace(body, 'epsilon\":1', 'epsilon\":0')",
}


@pytest.mark.parametrize("name", CHANGES)
def test_whoever_changes_the_file_by_hand_is_found_at_the_start(
    state: State, path: Path, name: str
) -> None:
    contribute(state, 0, 1)
    state.close()
    database = sqlite3.connect(path)
    for trigger in ("journal_keeps", "journal_stays"):
        database.execute(f"DROP TRIGGER {trigger}")
    database.execute(CHANGES[name])
    database.commit()
    database.close()
    with pytest.raises(ValueError, match="journal"):
        reopen(path)


def test_evidence_that_was_damaged_on_file_is_refused(state: State) -> None:
    contribute(state, 0)
    state.file.write("UPDATE crowd_evidence SET draw = x'00'")
    with pytest.raises(MalformedDocument, match="changed on file"):
        memory.evidence(state, CROWD)


def test_a_nonce_is_of_one_contribution_and_whoever_has_no_key_cannot_tell_it() -> None:
    key = SigningKey(bytes(32))
    places = list(
        itertools.product([key, SigningKey(b"1" * 32)], [CROWD, OTHER_CROWD], (0, 1), (0, 1))
    )
    nonces = [nonce_of(*place) for place in places]
    assert len(set(nonces)) == len(places)
    assert [nonce_of(*place) for place in places] == nonces
    assert all(re.fullmatch("[0-9a-f]{64}", each) for each in nonces)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    tried=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), max_size=8),
    jobs=st.lists(st.sampled_from([CROWD, OTHER_CROWD]), min_size=8, max_size=8),
    per_client=st.integers(1, 6),
    client_cap=st.floats(0.5, 8.0),
    crowds_cap=st.floats(0.5, 4.0),
    rounds=st.booleans(),
)
def test_whatever_is_tried_no_limit_is_passed_and_the_journal_is_whole(
    tried: list[list[int]],
    jobs: list[str],
    per_client: int,
    client_cap: float,
    crowds_cap: float,
    rounds: bool,
) -> None:
    """With a job in rounds that sets half an epsilon of client 0 aside, or without."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "holder.sqlite"
        state = reopen(path)
        for job in (CROWD, OTHER_CROWD):
            memory.add(state, job, b"request", b"opening")
        if rounds:
            state.add_job(JOB, b"r", cost=Cost.pure(0.5), slots=BitMap([0]), join=b"j")
        cap, of_crowds = Cap(epsilon=client_cap, delta=0.0), Cap(epsilon=crowds_cap, delta=0.0)
        allowed_ = limits(per_client=per_client, cap=cap, crowds_cap=of_crowds)
        made: Counter[tuple[str, int]] = Counter()
        for job, batch in zip(jobs, tried, strict=False):
            taken = contribute(state, *batch, job=job, limits=allowed_)
            made.update((job, who) for who, is_taken in zip(batch, taken, strict=True) if is_taken)
        set_aside = {0: 0.5} if rounds else {}
        for client in (0, 1):
            own = [made[job, client] for job in (CROWD, OTHER_CROWD)]
            spent = sum(own)
            assert spent == 0 or spent + set_aside.get(client, 0.0) <= client_cap * (1 + 1e-9)
            assert max(own) <= per_client and spent <= crowds_cap * (1 + 1e-9)
        kept = epsilons(state)
        state.close()
        again = reopen(path)  # which checks the whole journal
        assert epsilons(again) == kept
        assert len(journal.entries(again.file, after=0, count=999)) == sum(made.values()) + rounds
        again.close()


def test_the_sum_that_is_kept_in_memory_is_the_one_on_file(state: State, path: Path) -> None:
    state.committed()
    contribute(state, 0, 0, 2)
    kept = epsilons(state)
    state.close()
    again = reopen(path)
    assert epsilons(again) == kept
    assert kept == {0: 2.0, 2: 1.0}
    again.close()

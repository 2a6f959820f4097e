"""Crowd jobs that several processes serve: whatever they do at once, it is one trainer."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdOpening,
    commitment,
    replaced_instance,
    weights_digest,
)
from shoal_protocol.wire.documents import Signed
from shoal_service.storage.database import open_engine
from shoal_service.storage.database_schema import check_schema
from shoal_service.storage.thread import StorageThread
from shoal_trainer import schema
from shoal_trainer.assembly import Replica, Service
from shoal_trainer.crowds import store
from shoal_trainer.crowds.store import close
from shoal_trainer.crowds.submitting import Replaced, Replacement, replace_all
from tests.world import examples
from tests.world.around_trainer_crowds import (
    CROWDS,
    Asker,
    answer_to,
    crowd,
    nonce,
    replica_of,
    signed,
    trainer_of,
    verified,
)
from tests.world.clock import HandMovedClock
from tests.world.parties import problem_code

REQUEST = crowd()
JOB = REQUEST.digest


class Trainer:
    """The process that conducts rounds, and two that serve crowd jobs only."""

    def __init__(self, directory: Path, url: str, clock: HandMovedClock) -> None:
        self.conducting = trainer_of(directory, url, clock)
        self.replicas = [replica_of(directory / f"replica-{n}", url, clock) for n in (1, 2)]
        self.processes: list[Service | Replica] = [self.conducting, *self.replicas]

    def asker(self) -> Asker:
        return Asker(*(process.app for process in self.processes))

    async def step(self) -> None:
        await asyncio.gather(*(process.step() for process in self.processes))

    async def close(self) -> None:
        for process in self.processes:
            await process.close()


@pytest.fixture
async def trainer(
    tmp_path: Path, postgresql_url: str, clock: HandMovedClock
) -> AsyncIterator[Trainer]:
    made = Trainer(tmp_path, postgresql_url, clock)
    yield made
    await made.close()


@pytest.fixture
async def asker(trainer: Trainer) -> Asker:
    asker = trainer.asker()
    assert (await asker.open(REQUEST, app=1)).status_code == 201
    return asker


async def test_a_job_that_one_process_opened_all_serve_until_it_is_closed_once(
    trainer: Trainer, asker: Asker, clock: HandMovedClock
) -> None:
    for number in range(18):  # drawn from one process, submitted to another
        drawn = await asker.draw(JOB, number, app=number)
        content = answer_to(drawn, number % 7)
        assert (await asker.submit(JOB, content, app=number + 1)).status_code == 201
    clock.now = REQUEST.closes_at
    await trainer.step()
    closings = {
        (await asker.ask("GET", f"{CROWDS}/{JOB}/closing", app=app)).content for app in range(3)
    }
    assert len(closings) == 1
    assert (await asker.check_all(REQUEST)).contributions == 18


async def test_a_job_is_closed_early_once_whichever_process_is_asked_while_others_take_submissions(
    trainer: Trainer, asker: Asker
) -> None:
    contents = [answer_to(await asker.draw(JOB, number), number % 7) for number in range(12)]
    first = [asker.submit(JOB, each, app=number) for number, each in enumerate(contents[:6])]
    closed = [asker.close(REQUEST, app=app) for app in range(3)]
    late = [asker.submit(JOB, each, app=number) for number, each in enumerate(contents[6:])]
    answers = await asyncio.gather(*first, *closed, *late)
    assert sorted(each.status_code for each in answers[6:9]) == [200, 200, 201]
    assert len({each.content for each in answers[6:9]}) == 1
    submitted = [*answers[:6], *answers[9:]]
    refused = [each for each in submitted if each.status_code != 201]
    assert {problem_code(each) for each in refused} <= {"crowd-closed"}
    closing = await asker.check_all(REQUEST)  # all that was acknowledged is in it
    assert closing.contributions == len(submitted) - len(refused)
    assert closing.closing_request is not None


async def test_submissions_that_come_at_once_are_all_in_the_chains_and_counted_exactly(
    trainer: Trainer, asker: Asker, clock: HandMovedClock
) -> None:
    drawn = [await asker.draw(JOB, number, app=number) for number in range(60)]
    answers = await asyncio.gather(
        *(
            asker.submit(JOB, answer_to(each, number % 5), app=number)
            for number, each in enumerate(drawn)
        )
    )
    assert {each.status_code for each in answers} == {201}
    state = await asker.state(JOB)
    assert (state["contributions"], state["contributors"]) == (60, 5)
    clock.now = REQUEST.closes_at
    await trainer.step()
    assert (await asker.check_all(REQUEST)).contributions == 60


async def test_one_submission_at_all_processes_at_once_counts_once(asker: Asker) -> None:
    content = answer_to(await asker.draw(JOB, "a"), 3)
    answers = await asyncio.gather(*(asker.submit(JOB, content, app=app) for app in range(9)))
    assert sorted(each.status_code for each in answers) == [200] * 8 + [201]
    assert len({each.content for each in answers}) == 1
    assert (await asker.state(JOB))["contributions"] == 1


class Lives:
    """A trainer that is assembled again and again over one database."""

    def __init__(self, directory: Path, url: str, clock: HandMovedClock) -> None:
        self._directory, self._url, self._clock = directory, url, clock
        self._all: list[Service] = []
        self.asker = Asker()

    def begin(self) -> Service:
        """Let the last process end without a word, and another start."""
        for old in self._all:
            for resources in (old.resources, old.crowds.resources):
                resources.storage._engine.dispose()  # a process's connections end with it
        self._all.append(trainer_of(self._directory, self._url, self._clock))
        self.asker.apps = (self._all[-1].app,)
        return self._all[-1]

    async def close(self) -> None:
        for each in self._all:
            await each.close()


@pytest.fixture
async def lives(database_url: str, tmp_path: Path, clock: HandMovedClock) -> AsyncIterator[Lives]:
    made = Lives(tmp_path, database_url, clock)
    made.begin()
    assert (await made.asker.open(REQUEST)).status_code == 201
    yield made
    await made.close()


STATEMENTS = ("INSERT INTO crowd_log", "UPDATE crowd_instances", "INSERT INTO crowd_contrib")
STATEMENTS += ("UPDATE crowd_jobs",)


async def test_a_log_entry_can_neither_be_changed_nor_removed(lives: Lives) -> None:
    await lives.asker.contribute(JOB, "a")
    engine = lives.begin().crowds.resources.storage._engine
    for statement in ("DELETE FROM crowd_log", "UPDATE crowd_log SET revision = 7"):
        with pytest.raises(Exception, match="only grows"), engine.begin() as db:
            db.execute(text(statement))


def test_replacements_at_many_processes_and_a_closing_are_never_in_each_others_way(
    postgresql_url: str,
) -> None:
    """Two jobs, three processes that submit the same in other orders, one that closes at last."""
    engine = open_engine(postgresql_url)
    check_schema(engine, schema.metadata, schema.VERSION)
    seed = examples.seed("crowd")
    requests = [crowd(nonce=each * 16, contributions_per_client=5)
                for each in ("c0", "d0")]  # fmt: skip
    with engine.begin() as db:
        for request in requests:
            opening = CrowdOpening(
                manifest=request.manifest,
                job=request.digest,
                commitment=commitment(seed),
                opened_at=examples.OPENED_AT,
            )
            store.add_crowd(db, signed(request, "analyst"), signed(opening, "trainer"), seed)
        records = [store.find_crowd(db, request.digest) for request in requests]

    def replacement(record: store.CrowdRecord, number: int) -> Replacement:
        label = nonce(f"{number} of {record.number}")
        return Replacement(
            crowd=record,
            client=number % 30,
            nonce=bytes.fromhex(label),
            instance=replaced_instance(seed, label, record.request.body.task.instances),
            weights=store.pack((number, 0)),
            weights_digest=bytes.fromhex(weights_digest((number, 0))),
            submission=bytes.fromhex(label),
            expires_at=examples.OPENED_AT + timedelta(seconds=60),
        )

    offered = [replacement(record, number) for number in range(180) for record in records]

    def submit(process: int) -> list[str]:
        storage, new = StorageThread(open_engine(postgresql_url)), []
        turned = offered[process * 90 :] + offered[: process * 90]
        for start in range(0, len(turned), 20):
            batch = turned[start : start + 20]
            outcomes = storage.run_here(replace_all, batch, now=examples.OPENED_AT)
            new += [each.entry.digest for each in outcomes
                    if isinstance(each, Replaced) and each.is_new]  # fmt: skip
        storage._engine.dispose()
        return new

    def close_one() -> bool:
        def sign(closing: CrowdClosing) -> Signed[CrowdClosing]:
            return signed(closing, "trainer")

        storage = StorageThread(open_engine(postgresql_url))
        closed = storage.run_here(close, records[1], sign, now=REQUEST.closes_at)
        storage._engine.dispose()
        return closed

    with ThreadPoolExecutor(5) as threads:
        submitting = [threads.submit(submit, process) for process in range(3)]
        closing = [threads.submit(close_one) for _ in range(2)]
        new = [digest for each in submitting for digest in each.result()]
        assert sorted(each.result() for each in closing) == [False, True]
    with engine.begin() as db:
        logged = {
            number: [
                entry
                for instance in range(REQUEST.task.instances)
                for entry in store.log_page(
                    db, record.request.digest, record.number, instance, after=0, count=1000
                )
            ]
            for number, record in enumerate(records)
        }
        state, _ = store.state(db, records[0].number)
        ending = store.find_document(db, records[1].number, schema.crowds.jobs.c.closing)
    engine.dispose()
    assert len(new) == len(set(new))
    assert set(new) == {entry.digest for entries in logged.values() for entry in entries}
    # the open job took what five times thirty clients may, the closed one what came before
    assert (state.contributions, state.contributors, len(logged[0])) == (150, 30, 150)
    assert ending is not None
    assert verified(ending, CrowdClosing).body.contributions == len(logged[1])

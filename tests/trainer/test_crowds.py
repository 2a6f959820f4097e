"""A crowd job from its opening to its closing, over HTTP."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdOpening,
    SubmissionReceipt,
    commitment,
    drawn_instance,
    weights_digest,
)
from shoal_protocol.crowds.submissions import largest_change
from shoal_protocol.trust.roster_changes import with_revoked
from shoal_protocol.wire.documents import Signed
from shoal_trainer import schema
from shoal_trainer.assembly import Service
from shoal_trainer.crowds import conducting
from tests.world import examples
from tests.world.around_trainer import successor
from tests.world.around_trainer_crowds import (
    CONSORTIUM,
    CROWDS,
    TASK,
    Asker,
    answer_to,
    closing_request,
    crowd,
    nonce,
    signed,
    trainer_of,
    verified,
)
from tests.world.clock import HandMovedClock
from tests.world.parties import problem_code

REQUEST = crowd()
JOB = REQUEST.digest
MOST = largest_change(TASK)


@pytest.fixture
async def trainer(tmp_path: Path, clock: HandMovedClock) -> AsyncIterator[Service]:
    service = trainer_of(tmp_path, None, clock)
    yield service
    await service.close()


@pytest.fixture
def asker(trainer: Service) -> Asker:
    return Asker(trainer.app)


@pytest.fixture
async def opened(asker: Asker) -> Asker:
    assert (await asker.open(REQUEST)).status_code == 201
    return asker


async def test_a_crowd_job_is_opened_drawn_from_answered_and_closed_as_everybody_can_check(
    opened: Asker, trainer: Service, clock: HandMovedClock
) -> None:
    for number in range(30):
        assert (await opened.contribute(JOB, number, client=number % 7)).status_code == 201
    assert (await opened.ask("GET", f"{CROWDS}/{JOB}/closing")).status_code == 202
    clock.now = REQUEST.closes_at
    await trainer.step()
    closing = await opened.check_all(REQUEST)
    assert (closing.contributions, closing.closed_at) == (30, REQUEST.closes_at)
    assert (await opened.state(JOB))["phase"] == "closed"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "for another manifest": ({"manifest": "0" * 64}, "wrong-manifest"),
    "when it is too late": ({"closes_at": examples.OPENED_AT}, "refused-job"),
    "for more local epsilon than the policy allows": (
        {"contributions_per_client": 21},
        "refused-job",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_a_crowd_job_is_refused(asker: Asker, why: str) -> None:
    changes, code = REFUSED[why]
    assert problem_code(await asker.open(crowd(**changes))) == code


async def test_a_crowd_job_that_the_trainer_signed_itself_is_refused(asker: Asker) -> None:
    answer = await asker.ask("POST", CROWDS, signed(REQUEST, "trainer").encode())
    assert problem_code(answer) == "wrong-signer"


async def test_a_draw_is_what_the_nonce_and_the_committed_seed_say_and_stores_nothing(
    opened: Asker, trainer: Service, clock: HandMovedClock
) -> None:
    before = await opened.state(JOB)
    drawn = [await opened.draw(JOB, number) for number in range(25)]
    again = [await opened.draw(JOB, number) for number in range(25)]
    assert drawn == again
    assert await opened.state(JOB) == before
    clock.now = REQUEST.closes_at
    await trainer.step()
    closing = (await opened.document(f"{CROWDS}/{JOB}/closing", CrowdClosing)).body
    opening = (await opened.document(f"{CROWDS}/{JOB}/opening", CrowdOpening)).body
    seed = bytes.fromhex(closing.seed)
    assert commitment(seed) == opening.commitment
    assert [each.body.instance for each in drawn] == [
        drawn_instance(seed, nonce(number), TASK.instances) for number in range(25)
    ]


async def test_a_submission_replaces_the_instance_that_its_receipt_names(opened: Asker) -> None:
    drawn = await opened.draw(JOB, "a")
    answer = await opened.submit(JOB, answer_to(drawn, 3, move=77))
    assert answer.status_code == 201
    entry = verified(answer.content, SubmissionReceipt).body.entry
    shown = (await opened.instances(JOB))["instances"]
    assert shown[entry.instance] == {"revision": 1, "weights": [77, 0]}
    assert entry.weights == weights_digest((77, 0))
    assert [each["revision"] for each in shown] == [
        int(instance == entry.instance) for instance in range(TASK.instances)
    ]


async def test_the_same_submission_again_gets_the_same_receipt(
    opened: Asker, trainer: Service, clock: HandMovedClock
) -> None:
    content = answer_to(await opened.draw(JOB, "a"), 3)
    first = await opened.submit(JOB, content)
    clock.move(REQUEST.session_seconds)
    later = await opened.submit(JOB, content)
    clock.now = REQUEST.closes_at
    await trainer.step()
    last = await opened.submit(JOB, content)
    assert [each.status_code for each in (first, later, last)] == [201, 200, 200]
    assert first.content == later.content == last.content
    assert (await opened.state(JOB))["contributions"] == 1


async def test_another_answer_to_the_same_draw_is_refused_whoever_sends_it(opened: Asker) -> None:
    drawn = await opened.draw(JOB, "a")
    assert (await opened.submit(JOB, answer_to(drawn, 3))).status_code == 201
    for client, move in ((3, 999), (4, 1000)):
        answer = await opened.submit(JOB, answer_to(drawn, client, move=move))
        assert problem_code(answer) == "conflicting-document"
    assert (await opened.state(JOB))["contributions"] == 1


async def test_a_draw_expires(opened: Asker, clock: HandMovedClock) -> None:
    content = answer_to(await opened.draw(JOB, "a"), 3)
    clock.move(REQUEST.session_seconds)
    assert problem_code(await opened.submit(JOB, content)) == "session-expired"
    assert (await opened.state(JOB))["contributions"] == 0


async def test_weights_that_no_honest_step_reaches_are_refused(opened: Asker) -> None:
    drawn = await opened.draw(JOB, "a")
    for move in (MOST + 1, -MOST - 1, 2**51):
        answer = await opened.submit(JOB, answer_to(drawn, 3, move=move))
        assert problem_code(answer) == "refused-submission"
        assert str(move) not in answer.text
    assert (await opened.submit(JOB, answer_to(drawn, 3, move=MOST))).status_code == 201


async def test_a_client_contributes_as_often_as_the_job_allows_and_not_more(asker: Asker) -> None:
    request = crowd(contributions_per_client=3)
    await asker.open(request)
    answers = [await asker.contribute(request.digest, number) for number in range(5)]
    assert [each.status_code for each in answers] == [201, 201, 201, 403, 403]
    assert problem_code(answers[-1]) == "contributions-used-up"
    assert (await asker.contribute(request.digest, "other", client=4)).status_code == 201


FOREIGN = {
    "of another job": (closing_request(REQUEST, job="ab" * 32), "analyst", "malformed-document"),
    "by the trainer": (closing_request(REQUEST), "trainer", "wrong-signer"),
    "for the trainer": (closing_request(REQUEST, analyst="trainer"), "analyst", "wrong-signer"),
}


@pytest.mark.parametrize("which", FOREIGN)
async def test_nobody_but_its_analyst_closes_a_job_early(opened: Asker, which: str) -> None:
    body, signer, code = FOREIGN[which]
    path = f"{CROWDS}/{JOB}/closing"
    answer = await opened.ask("POST", path, signed(body, signer).encode())
    assert problem_code(answer) == code
    assert (await opened.ask("GET", path)).status_code == 202
    assert (await opened.contribute(JOB, "a")).status_code == 201


async def test_a_submission_that_somebody_else_signed_is_refused(opened: Asker) -> None:
    drawn = await opened.draw(JOB, "a")
    content = answer_to(drawn, 3)
    forged = answer_to(drawn, 4).replace(b'"client":4', b'"client":3')
    assert problem_code(await opened.submit(JOB, forged)) == "bad-signature"
    assert (await opened.submit(JOB, content)).status_code == 201


async def test_a_draw_that_the_trainer_did_not_make_is_not_answered(opened: Asker) -> None:
    drawn = await opened.draw(JOB, "a")
    changed = drawn.body.model_copy(update={"weights": (5, 5)})
    for forged, code in (
        (signed(changed, "aggregator"), "wrong-signer"),
        (Signed(changed, "trainer", drawn.signature), "bad-signature"),
    ):
        assert problem_code(await opened.submit(JOB, answer_to(forged, 3))) == code


async def test_a_client_who_was_revoked_since_contributes_no_more(
    opened: Asker, trainer: Service
) -> None:
    drawn = await opened.draw(JOB, "a")
    later = successor(CONSORTIUM, with_revoked(CONSORTIUM.roster, [3]))
    trainer.resources.book.accept(later.signed_manifest.encode(), later.roster.encode())
    assert problem_code(await opened.submit(JOB, answer_to(drawn, 3))) == "revoked-holder"
    assert (await opened.submit(JOB, answer_to(drawn, 4))).status_code == 201


async def test_who_contributed_how_often_is_erased_when_a_job_is_closed(
    opened: Asker, trainer: Service, clock: HandMovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conducting, "ERASED_AT_ONCE", 3)
    other = crowd(nonce="d0" * 16, closes_at=REQUEST.closes_at + timedelta(hours=1))
    await opened.open(other)
    for client in range(7):
        await opened.contribute(JOB, client, client=client)
        await opened.contribute(other.digest, client, client=client)

    async def counted() -> int:
        every = select(func.count()).select_from(schema.crowds.contributors)
        return await trainer.resources.storage.run(lambda db: db.execute(every).scalar_one())

    left = [await counted()]
    clock.now = REQUEST.closes_at
    while trainer.wake.is_set() or len(left) == 1:
        trainer.wake.clear()
        await trainer.step()
        left.append(await counted())
    assert left == [14, 11, 8, 7, 7]  # the other job is open, and counts on
    assert (await opened.state(JOB))["contributors"] == 7

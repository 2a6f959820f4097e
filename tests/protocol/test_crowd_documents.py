"""The documents and draws of a crowd job: what is refused, and how cheating shows."""

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from shoal_protocol.crowds import draws
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    Draw,
    LogEntry,
    RefusedDraw,
    Submission,
    check_crowd_job,
    weights_digest,
)
from shoal_protocol.crowds.submissions import RefusedSubmission, check_submission, largest_change
from shoal_protocol.crowds.tasks import LARGEST_WEIGHT, CrowdTask
from shoal_protocol.jobs.membership import JobWithdrawal, check_ending
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.errors import MalformedDocument, RefusedJob, WrongSigner
from tests.world.crowd_examples import (
    CLOSED_EARLY,
    CLOSING,
    CLOSING_REQUEST,
    CROWD_CONSORTIUM,
    CROWD_DOCUMENTS,
    CROWD_JOB,
    CROWD_TASK,
    DRAW,
    ENTRY,
    NONCE,
    OPENING,
    RECEIPT,
    REPLACED,
    SEED,
    SUBMISSION,
    submission,
)
from tests.world.examples import CONSORTIUM, client_key, named, seed

OTHER = (REPLACED + 1) % CROWD_TASK.instances
ELSEWHERE = next(
    nonce
    for nonce in (seed(f"elsewhere {number}").hex() for number in range(64))
    if draws.replaced_instance(SEED, nonce, CROWD_TASK.instances) == OTHER
)
"""A nonce whose answer replaces another instance than the example's."""


def task(**changes: Any) -> CrowdTask:
    return CrowdTask.model_validate(CROWD_TASK.model_dump() | changes)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"start": (0.0,)}, "start must have 3 weights"),
        ({"start": (0.0, 0.0, 5000.0), "grid_bits": 40}, "too large for its lattice"),
        ({"clip": 1e-7}, "at least 16"),
        ({"clip": 1e6, "grid_bits": 40, "epsilon": 1.0}, "noise would be too large"),
        ({"learning_rate": 2.0, "l2": 0.6}, "may be at most 1"),
        ({"family": "poisson", "target": {"name": "n", "lower": 1.0, "upper": 9.0}}, "Poisson"),
        ({"target": {"name": "n", "lower": 0.0, "upper": 2.0}}, "logistic"),
        ({"target": {"name": "age", "lower": 0.0, "upper": 1.0}}, "the same name"),
        ({"instances": 0}, "greater than or equal to 1"),
        (
            {
                "instances": 10_000,
                "features": tuple(
                    {"name": f"x{index}", "lower": 0.0, "upper": 1.0} for index in range(7)
                ),
                "start": None,
            },
            "at most 65536",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_task_that_makes_no_sense_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        task(**changes)


def check_closing(closing: CrowdClosing, request: CrowdJobRequest = CROWD_JOB) -> None:
    """Check a closing that is shown when the job's time is over."""
    now = CROWD_JOB.closes_at
    draws.check_closing(closing, OPENING, request, CROWD_CONSORTIUM, now=now)


def test_a_consortium_allows_only_the_crowd_jobs_that_its_policy_prices() -> None:
    check_crowd_job(CROWD_JOB, CROWD_CONSORTIUM.manifest)
    with pytest.raises(RefusedJob, match="allows no crowd jobs"):
        check_crowd_job(CROWD_JOB, CONSORTIUM.manifest)
    dearer = CROWD_JOB.model_copy(update={"contributions_per_client": 3})
    with pytest.raises(RefusedJob, match="exceeds"):
        check_crowd_job(dearer, CROWD_CONSORTIUM.manifest)


def test_the_examples_are_a_job_in_which_nobody_cheats() -> None:
    draws.check_opening(OPENING, CROWD_JOB)
    draws.check_draw(DRAW, CROWD_JOB, nonce=NONCE)
    check_submission(CROWD_TASK, DRAW, SUBMISSION)
    check_closing(CLOSING)
    check_closing(CLOSED_EARLY)
    assert list(draws.broken_draws([named("trainer", DRAW)], CLOSING)) == []
    assert list(draws.broken_receipts([named("trainer", RECEIPT)], CLOSING)) == []
    chain = draws.InstanceChain(CLOSING, CROWD_TASK, REPLACED)
    chain.follow([ENTRY])
    chain.end()
    for instance in set(range(4)) - {REPLACED}:
        draws.InstanceChain(CLOSING, CROWD_TASK, instance).end()


@pytest.mark.parametrize(
    "changes",
    [
        {"job": "00" * 32},
        {"nonce": "00" * 32},
        {"instance": 4},
        {"weights": (1, 2)},
        {"weights": (1, 2, 3)},  # of revision 0, which the task gives
    ],
    ids=str,
)
def test_a_draw_that_cannot_be_one_is_refused_at_once(changes: dict[str, Any]) -> None:
    with pytest.raises(RefusedDraw):
        draws.check_draw(DRAW.model_copy(update=changes), CROWD_JOB, nonce=NONCE)


def kept_draw(**changes: Any) -> Signed[Draw]:
    return named("trainer", DRAW.model_copy(update=changes))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"instance": (DRAW.instance + 1) % 4}, "another instance"),
        ({"revision": CLOSING.heads[DRAW.instance].revision + 1}, "never had revision"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_steered_draw_shows_when_the_seed_is_revealed(changes: Any, what: str) -> None:
    (found,) = draws.broken_draws([kept_draw(**changes)], CLOSING)
    assert what in found


def test_two_clients_who_were_served_different_weights_of_one_revision_can_tell() -> None:
    other = next(
        nonce
        for nonce in (seed(f"another nonce {number}").hex() for number in range(64))
        if draws.drawn_instance(SEED, nonce, 4) == DRAW.instance
    )
    pair = [kept_draw(), kept_draw(nonce=other, weights=(9, 9, 9))]
    (found,) = draws.broken_draws(pair, CLOSING)
    assert "other weights" in found


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"instance": OTHER}, "another instance was replaced"),
        ({"revision": 2, "previous": "11" * 32}, "not in the end"),
        ({"weights": "00" * 32}, "took its place"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_receipt_shows_at_the_closing(changes: dict[str, Any], what: str) -> None:
    receipt = RECEIPT.model_copy(update={"entry": ENTRY.model_copy(update=changes)})
    (found,) = draws.broken_receipts([named("trainer", receipt)], CLOSING)
    assert what in found


@pytest.mark.parametrize(
    "changes",
    [
        {"job": "00" * 32},
        {"seed": "00" * 32},
        {"heads": CLOSING.heads[:-1]},
        {"heads": (*CLOSING.heads[:-1], CLOSING.heads[-1].model_copy(update={"weights": (1,)}))},
    ],
    ids=["job", "seed", "fewer", "shape"],
)
def test_a_closing_that_does_not_follow_from_the_opening_is_refused(
    changes: dict[str, Any],
) -> None:
    with pytest.raises(MalformedDocument):
        check_closing(CLOSING.model_copy(update=changes))


def test_a_closing_of_more_contributions_than_the_job_takes_is_refused() -> None:
    fewer = CROWD_JOB.model_copy(update={"contributions": CLOSING.contributions - 1})
    with pytest.raises(MalformedDocument, match="more contributions"):
        check_closing(CLOSING, fewer)


def test_a_trainer_that_closes_a_job_early_by_itself_has_lied() -> None:
    alone = CLOSED_EARLY.model_copy(update={"closing_request": None})
    with pytest.raises(MalformedDocument, match="its analyst did not ask"):
        check_closing(alone)
    full = CROWD_JOB.model_copy(update={"contributions": CLOSING.contributions})
    check_closing(alone, full)


@pytest.mark.parametrize(
    "request_to_close",
    [
        named("trainer", CLOSING_REQUEST),
        named("analyst", CLOSING_REQUEST.model_copy(update={"job": "00" * 32})),
        named("analyst", CLOSING_REQUEST.model_copy(update={"analyst": "trainer"})),
        dataclasses.replace(named("analyst", CLOSING_REQUEST), signature="00" * 64),
    ],
    ids=["by the trainer", "of another job", "for another party", "unsigned"],
)
def test_a_closing_is_early_only_by_the_analysts_own_signature(
    request_to_close: Signed[JobWithdrawal],
) -> None:
    forged = CLOSED_EARLY.model_copy(update={"closing_request": request_to_close})
    with pytest.raises(MalformedDocument, match="the analyst did not close"):
        check_closing(forged)


def test_one_analyst_cannot_close_another_ones_job() -> None:
    others = CROWD_JOB.model_copy(update={"analyst": "other"})
    asked = CLOSING_REQUEST.model_copy(update={"job": others.digest})
    with pytest.raises(WrongSigner, match="asked for a job"):
        check_ending(named("analyst", asked), others, CROWD_CONSORTIUM)


def test_a_job_that_ended_in_due_course_was_not_closed_early_though_its_analyst_asked() -> None:
    due = CLOSED_EARLY.model_copy(update={"closed_at": CROWD_JOB.closes_at})
    with pytest.raises(MalformedDocument, match="in due course"):
        check_closing(due)
    full = CROWD_JOB.model_copy(update={"contributions": CLOSED_EARLY.contributions})
    with pytest.raises(MalformedDocument, match="in due course"):
        check_closing(CLOSED_EARLY, full)


@pytest.mark.parametrize("full", [True, False])
def test_a_closing_that_is_dated_before_its_opening_is_refused(full: bool) -> None:
    """Be the job full, or closed as its analyst asked."""
    job = CROWD_JOB.model_copy(update={"contributions": 1}) if full else CROWD_JOB
    closing = CLOSED_EARLY.model_copy(update={"closing_request": None}) if full else CLOSED_EARLY
    check_closing(closing.model_copy(update={"closed_at": OPENING.opened_at}), job)
    before = OPENING.opened_at - timedelta(milliseconds=1)
    with pytest.raises(MalformedDocument, match="before the opening"):
        check_closing(closing.model_copy(update={"closed_at": before}), job)


def test_a_closing_that_is_dated_later_than_it_is_shown_is_refused() -> None:
    """So a trainer cannot close a job early and write the time of its end."""
    shown = CROWD_JOB.closes_at - draws.CLOCKS_APART
    draws.check_closing(CLOSING, OPENING, CROWD_JOB, CROWD_CONSORTIUM, now=shown)
    earlier = shown - timedelta(milliseconds=1)
    with pytest.raises(MalformedDocument, match="dated later"):
        draws.check_closing(CLOSING, OPENING, CROWD_JOB, CROWD_CONSORTIUM, now=earlier)


@pytest.mark.parametrize(
    "changes",
    [
        {"revision": 2, "previous": "11" * 32},
        {"instance": OTHER},
        {"job": "00" * 32},
        {"nonce": ELSEWHERE},
    ],
    ids=str,
)
def test_a_log_entry_that_does_not_belong_there_is_refused(changes: dict[str, Any]) -> None:
    entry = ENTRY.model_copy(update=changes)
    with pytest.raises(MalformedDocument):
        draws.InstanceChain(CLOSING, CROWD_TASK, REPLACED).follow([entry])


def test_a_log_that_ends_early_or_otherwise_is_refused() -> None:
    with pytest.raises(MalformedDocument):
        draws.InstanceChain(CLOSING, CROWD_TASK, REPLACED).end()
    changed = draws.InstanceChain(CLOSING, CROWD_TASK, REPLACED)
    changed.follow([LogEntry(**ENTRY.model_dump() | {"weights": weights_digest((4, 5, 6))})])
    with pytest.raises(MalformedDocument):
        changed.end()
    assert not changed.has(DRAW.model_copy(update={"instance": REPLACED, "revision": 1}))


def sent(weights: tuple[int, ...]) -> Submission:
    return SUBMISSION.model_copy(update={"weights": weights})


def test_a_step_further_than_honest_noise_reaches_is_refused() -> None:
    first, *rest = DRAW.weights
    bound = largest_change(CROWD_TASK)
    check_submission(CROWD_TASK, DRAW, sent((first + bound, *rest)))
    check_submission(CROWD_TASK, DRAW, sent((first - bound, *rest)))
    with pytest.raises(RefusedSubmission, match="further"):
        check_submission(CROWD_TASK, DRAW, sent((first + bound + 1, *rest)))
    with pytest.raises(RefusedSubmission, match="3 weights"):
        check_submission(CROWD_TASK, DRAW, sent((first,)))


def test_one_contribution_of_the_variant_one_changes_one_weight() -> None:
    moved = tuple(weight + 1 for weight in DRAW.weights)
    with pytest.raises(RefusedSubmission, match="one weight"):
        check_submission(CROWD_TASK, DRAW, sent(moved))
    check_submission(task(variant="all"), DRAW, sent(moved))


@pytest.mark.parametrize("end", [-LARGEST_WEIGHT, LARGEST_WEIGHT])
def test_nobody_leaps_to_the_end_of_the_weights(end: int) -> None:
    with pytest.raises(RefusedSubmission, match="further"):
        check_submission(CROWD_TASK, DRAW, sent((end, *DRAW.weights[1:])))


@pytest.mark.parametrize("below", [0, 1, largest_change(CROWD_TASK)])
def test_a_step_that_was_cut_at_the_end_of_the_weights_is_taken(below: int) -> None:
    near = DRAW.model_copy(update={"weights": (LARGEST_WEIGHT - below, 0, 0)})
    check_submission(CROWD_TASK, near, sent((LARGEST_WEIGHT, 0, 0)))


def test_a_decay_is_taken_off_before_a_step_is_measured() -> None:
    decaying = task(l2=8.0)  # halves the weight
    drawn = DRAW.model_copy(update={"weights": (2**40, 0, 0)})
    check_submission(decaying, drawn, sent((2**39, 0, 0)))
    with pytest.raises(RefusedSubmission):
        check_submission(decaying, drawn, sent((2**40 - 1, 0, 0)))


def test_a_submission_is_signed_by_the_client_whom_it_names() -> None:
    forged = submission(client=4)
    with pytest.raises(Exception, match="signature"):
        CROWD_CONSORTIUM.verify(Signed(forged, "client", CROWD_DOCUMENTS["submission"].signature))
    assert client_key(3) != client_key(4)

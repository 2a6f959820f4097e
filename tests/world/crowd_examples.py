"""A made-up crowd job with one of every document of it; all is fixed, as in `examples`."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from shoal_protocol.crowds import draws
from shoal_protocol.crowds.draws import (
    CrowdClosing,
    CrowdJobRequest,
    CrowdOpening,
    Draw,
    InstanceHead,
    LogEntry,
    Submission,
    SubmissionReceipt,
    weights_digest,
)
from shoal_protocol.crowds.tasks import CrowdTask, contribute, design_rows, first_weights, steps
from shoal_protocol.jobs.membership import JobWithdrawal
from shoal_protocol.journal import GENESIS
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.wire.documents import Role, Signed
from tests.world.examples import OPENED_AT, POLICY, client_key, consortium, named, seed

CONTRIBUTOR = 3
CROWD_CONSORTIUM = consortium(policy=POLICY.model_copy(update={"maximum_local_epsilon": 4.0}))
CROWD_TASK = CrowdTask(
    family="logistic",
    features=(
        ColumnBounds(name="age", lower=0.0, upper=100.0),
        ColumnBounds(name="pressure", lower=60.0, upper=220.0),
    ),
    target=ColumnBounds(name="smoker", lower=0.0, upper=1.0),
    clip=0.0625,
    epsilon=2.0,
    learning_rate=0.0625,
    instances=4,
    start=(0.125, 1e-5, -0.25),
)
RECORD = np.array([[57.0, 131.0, 1.0]])
CROWD_JOB = CrowdJobRequest(
    manifest=CROWD_CONSORTIUM.digest,
    nonce=seed("nonce of the crowd job")[:16].hex(),
    analyst="analyst",
    task=CROWD_TASK,
    contributions=1000,
    contributions_per_client=2,
    session_seconds=600,
    closes_at=OPENED_AT + timedelta(days=7),
)
SEED = seed("seed of the crowd job")
_BOUND: dict[str, Any] = {"manifest": CROWD_JOB.manifest, "job": CROWD_JOB.digest}
OPENING = CrowdOpening(
    commitment=draws.commitment(SEED),
    opened_at=OPENED_AT,
    **_BOUND,
)
BEGINNING = tuple(first_weights(CROWD_TASK).tolist())
NONCE = seed("nonce of the draw").hex()
DRAWN = draws.drawn_instance(SEED, NONCE, 4)
REPLACED = draws.replaced_instance(SEED, NONCE, 4)
DRAW = Draw(
    nonce=NONCE,
    instance=DRAWN,
    revision=0,
    weights=BEGINNING,
    expires_at=OPENED_AT + timedelta(minutes=10),
    **_BOUND,
)


def submission(draw: Signed[Draw] | None = None, *, client: int = CONTRIBUTOR) -> Submission:
    """Return what the client makes of a draw, with noise that is always the same."""
    drawn = draw or named("trainer", DRAW)
    rows, targets = design_rows(CROWD_TASK, RECORD)
    weights = np.array(drawn.body.weights, np.int64)
    sent = contribute(
        CROWD_TASK,
        weights,
        steps(CROWD_TASK, weights, rows, targets),
        coordinate=1,
        noise=np.array([-12_345], np.int64),
    )
    return Submission(
        manifest=CROWD_JOB.manifest, client=client, draw=drawn, weights=tuple(sent.tolist())
    )


SUBMISSION = submission()
ENTRY = LogEntry(
    job=CROWD_JOB.digest,
    instance=REPLACED,
    revision=1,
    previous=GENESIS,
    nonce=NONCE,
    weights=weights_digest(SUBMISSION.weights),
)
RECEIPT = SubmissionReceipt(manifest=CROWD_JOB.manifest, entry=ENTRY)
CLOSING = CrowdClosing(
    seed=SEED.hex(),
    heads=tuple(
        InstanceHead(revision=1, digest=ENTRY.digest, weights=SUBMISSION.weights)
        if instance == REPLACED
        else InstanceHead(revision=0, digest=GENESIS, weights=weights)
        for instance, weights in enumerate([BEGINNING] * CROWD_TASK.instances)
    ),
    contributions=1,
    closed_at=CROWD_JOB.closes_at,
    closing_request=None,
    **_BOUND,
)
CLOSING_REQUEST = JobWithdrawal(analyst="analyst", **_BOUND)
CLOSED_EARLY = CLOSING.model_copy(
    update={
        "closed_at": OPENED_AT + timedelta(days=1),
        "closing_request": named("analyst", CLOSING_REQUEST),
    }
)
CROWD_DOCUMENTS: Mapping[str, Signed[Any]] = {
    signed.body.kind: signed
    for signed in (
        named("analyst", CROWD_JOB),
        named("trainer", OPENING),
        named("trainer", DRAW),
        named(Role.CLIENT, SUBMISSION),
        named("trainer", RECEIPT),
        named("trainer", CLOSED_EARLY),
    )
}
KEY = client_key(CONTRIBUTOR)

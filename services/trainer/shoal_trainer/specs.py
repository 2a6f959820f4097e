"""Makes the spec of a job's next round from its learner's request; pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyroaring import BitMap

from shoal_learning.contract import RequestedRound
from shoal_protocol.certificates.study_request import StudyRequest, check_round_of_study
from shoal_protocol.privacy.accounting import Cost, compose
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.rounds.spec_making import make_spec
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.errors import RefusedSpec


def next_spec(
    request: StudyRequest,
    consortium: Consortium,
    clients: BitMap,
    *,
    number: int,
    wanted: RequestedRound,
    spent: Cost,
    earlier: Sequence[ReleasedSum],
    now: datetime,
) -> RoundSpec:
    """Return the job's next round, which asks `clients`; those before cost one of them `spent`.

    Shares of the job's mu^2, or of its pure epsilon, make the rounds compose to the job's price and
    not more. `earlier` are the sums of the rounds before it: by these the round is held to the
    job's task, whatever its learner wanted.

    Raises:
        ValueError: the round cannot be made, is not one of the task, or would exceed the job's
            price or its time.
    """
    if wanted.batch != request.task.batch:
        raise ValueError("the method asks for another batch than its task has")
    deadline = now + timedelta(seconds=request.round_seconds)
    spec = make_spec(
        manifest=consortium,
        job=request.digest,
        number=number,
        query=wanted.query,
        mechanism=request.privacy.mechanism,
        cost=request.privacy.cap.part(wanted.share),
        population=clients,
        dropouts=request.privacy.dropouts,
        colluders=request.privacy.colluders,
        opened_at=now,
        deadline=deadline,
        give_up_at=deadline + timedelta(seconds=request.grace_seconds),
        sharing=request.sharing,
    )
    if spec.give_up_at > request.ends_by:
        raise ValueError("the job's time does not suffice for another round")
    if not request.privacy.cap.allows(compose([spent, spec.cost])):
        raise ValueError("the rounds would cost more than the job's epsilon and delta")
    try:
        check_round_of_study(spec, request, spent=spent, earlier=earlier)
    except RefusedSpec as error:
        raise ValueError(str(error)) from error
    return spec

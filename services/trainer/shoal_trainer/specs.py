"""Makes the spec of a job's next round from what its learner wants: pure; no peer, no storage."""

from datetime import datetime, timedelta

from pyroaring import BitMap

from shoal_learning.contract import RequestedRound
from shoal_protocol.accounting import Cost, compose
from shoal_protocol.amplification import hidden_round_mu
from shoal_protocol.jobs import JobRequest
from shoal_protocol.manifest import Consortium
from shoal_protocol.rounds import RoundSpec, make_spec


def next_spec(
    request: JobRequest,
    consortium: Consortium,
    clients: BitMap,
    *,
    number: int,
    wanted: RequestedRound,
    spent: Cost,
    now: datetime,
    first: RoundSpec | None = None,
) -> RoundSpec:
    """Return the job's next round, which asks `clients`; those before cost one of them `spent`.

    Shares of the job's mu^2, or of its pure epsilon, make the rounds compose to the job's price and
    not more. With hidden participation the `first` round, None for that itself, pays for all.

    Raises:
        ValueError: the round cannot be made, or would exceed the job's price or its time.
    """
    if wanted.batch != request.task.batch:
        raise ValueError("the method asks for another batch than its task has")
    deadline = now + timedelta(seconds=request.round_seconds)
    cost, hidden = request.privacy.cap.part(wanted.share), wanted.hidden
    if hidden is not None and first is not None:
        cost, hidden = first.known_cost, hidden.paid_by(first.digest)
    elif hidden is not None:
        of_one = hidden_round_mu(rate=hidden.rate, total=cost.mu, rounds=hidden.rounds)
        cost = Cost.gaussian(of_one)
    spec = make_spec(
        manifest=consortium,
        job=request.digest,
        number=number,
        query=wanted.query,
        mechanism=request.privacy.mechanism,
        cost=cost,
        population=clients,
        dropouts=request.privacy.dropouts,
        colluders=request.privacy.colluders,
        opened_at=now,
        deadline=deadline,
        give_up_at=deadline + timedelta(seconds=request.grace_seconds),
        sharing=request.sharing,
        hidden=hidden,
    )
    if spec.give_up_at > request.ends_by:
        raise ValueError("the job's time does not suffice for another round")
    if not request.privacy.cap.allows(compose([spent, spec.cost])):
        raise ValueError("the rounds would cost more than the job's epsilon and delta")
    return spec

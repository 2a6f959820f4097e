"""Rounds of one job with hidden participation, and the lies that a trainer may tell of them."""

from typing import Any

from pyroaring import BitMap

from shoal_protocol.accounting import Cost
from shoal_protocol.amplification import hidden_round_mu
from shoal_protocol.hidden_participation import HiddenParticipation
from shoal_protocol.jobs import JobRequest
from shoal_protocol.manifest import Consortium
from shoal_protocol.questions.variational import gradient_query
from shoal_protocol.rounds import RoundSpec
from shoal_protocol.tasks import ColumnBounds, LogisticRegressionTask
from tests.protocol import examples

RATE, ROUNDS, TOTAL = 0.25, 5, examples.JOB.privacy.cost.mu
POLICY = examples.POLICY.model_copy(update={"queries": ("second_moments", "gradient_sum")})
CONSORTIUM = examples.consortium(policy=POLICY)
TASK = LogisticRegressionTask(
    features=(ColumnBounds(name="age", lower=0.0, upper=120.0),),
    target=ColumnBounds(name="pressure", lower=60.0, upper=200.0),
    rounds=ROUNDS,
    batch=None,
    participation=RATE,
)
QUERY = gradient_query(TASK, (0.0,) * TASK.model.dimension(2))
OF_ONE = Cost.gaussian(hidden_round_mu(rate=RATE, total=TOTAL, rounds=ROUNDS))
FIRST_HIDDEN = HiddenParticipation(rate=RATE, rounds=ROUNDS, prepaid_by=None)


def job(consortium: Consortium = CONSORTIUM, **changes: Any) -> JobRequest:
    """Return the request of the job."""
    fields = {"manifest": consortium.digest, "task": TASK}
    return examples.JOB.model_copy(update=fields | changes)


def first(**changes: Any) -> RoundSpec:
    """Return the round that pays for all."""
    arguments = {"manifest": CONSORTIUM, "job": job().digest, "query": QUERY, "cost": OF_ONE}
    return examples.spec(**(arguments | {"hidden": FIRST_HIDDEN} | changes))


def later(paying: RoundSpec, number: int = 1, **changes: Any) -> RoundSpec:
    """Return a later round, which `paying` has paid for."""
    arguments = {
        "number": number,
        "cost": paying.known_cost,
        "hidden": FIRST_HIDDEN.paid_by(paying.digest),
    }
    return first(**(arguments | changes))


FIRST = first()
SMALLER = BitMap(list(examples.POPULATION)[:-1])
DEARER = Cost.gaussian(OF_ONE.mu * 1.001)
"""Less noise by a thousandth."""

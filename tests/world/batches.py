"""Jobs of many rounds, each of which asks a batch, in simulated federations."""

from typing import Any, Final

from shoal_protocol.queries.columns import ColumnBounds
from shoal_studies.catalogue.variational import LogisticRegressionTask
from tests.world.trust import CONSORTIUM_POLICY, HOLDER_POLICY, SITES

ROUNDS: Final = 10
BATCH: Final = 7
CLIENTS: Final = sum(SITES.values())
MOST: Final = 5  # ceil(10 * 7 / 14)
TASK: Final = LogisticRegressionTask(
    features=(ColumnBounds(name="age", lower=0.0, upper=120.0),),
    target=ColumnBounds(name="pressure", lower=60.0, upper=200.0),
    rounds=ROUNDS,
    batch=BATCH,
)
POLICY: Final = HOLDER_POLICY.model_copy(
    update={
        "queries": ("gradient_sum",),
        "minimum_population": BATCH,
    }
)
HOLDERS: Final[dict[str, dict[str, Any]]] = {site: {"policy": POLICY} for site in SITES}
CONSORTIUM: Final[dict[str, Any]] = {
    "queries": (*CONSORTIUM_POLICY.queries, "gradient_sum"),
    "minimum_cohort": 5,
}

"""Jobs of many rounds, in simulated federations: of batches, and with hidden participation."""

from typing import Any, Final

from shoal_protocol.tasks import ColumnBounds, LogisticRegressionTask
from tests.simulated.trust import CONSORTIUM_POLICY, HOLDER_POLICY, SITES

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
HIDDEN_ROUNDS: Final = 8
HIDDEN_TASK: Final = TASK.model_copy(
    update={"rounds": HIDDEN_ROUNDS, "batch": None, "participation": 0.25}
)
POLICY: Final = HOLDER_POLICY.model_copy(
    update={
        "tasks": ("logistic_regression",),
        "queries": ("gradient_sum",),
        "minimum_population": BATCH,
    }
)
HOLDERS: Final[dict[str, dict[str, Any]]] = {site: {"policy": POLICY} for site in SITES}
CONSORTIUM: Final[dict[str, Any]] = {
    "queries": (*CONSORTIUM_POLICY.queries, "gradient_sum"),
    "minimum_cohort": 5,
}

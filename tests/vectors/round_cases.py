"""Vectors of a job's many rounds, of batches by the public rule."""

from collections.abc import Iterator
from typing import Any, Final

from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import sign
from shoal_studies.catalogue.variational import LogisticRegressionTask
from tests.vectors.round_operations import choose_batch
from tests.world import examples

Case = tuple[str, str, dict[str, Any]]  # name, operation, inputs

NOW: Final = "2026-03-01T12:00:00.000Z"
JOB: Final = "5e" * 32
CONSORTIUM: Final = examples.consortium(
    policy=examples.POLICY.model_copy(update={"queries": ("second_moments", "gradient_sum")})
)
TASK: Final = LogisticRegressionTask(
    features=(ColumnBounds(name="age", lower=0.0, upper=120.0),),
    target=ColumnBounds(name="pressure", lower=60.0, upper=200.0),
    rounds=5,
    batch=None,
)
GRADIENTS: Final = examples.spec(
    manifest=CONSORTIUM,
    job=examples.asking(manifest=CONSORTIUM.digest, task=TASK).digest,
    query=TASK.gradient_query((0.0,) * TASK.model.dimension(2)),
    cost=Cost.gaussian(0.5),
)


def announced(spec: RoundSpec) -> dict[str, Any]:
    """Return the inputs of a node that is told of a spec."""
    signed = sign(spec, "trainer", examples.signing_key("trainer"))
    return {
        "document": signed.encode().hex(),
        "now": NOW,
        "manifest": CONSORTIUM.signed_manifest.encode().hex(),
        "roster": CONSORTIUM.roster.encode().hex(),
    }


def round_cases() -> Iterator[Case]:
    """Return all of them."""
    yield from batch_cases()
    yield "a round of gradients is accepted", "accept_spec", announced(GRADIENTS)


def batch_cases() -> Iterator[Case]:
    """Follow a job's rounds: 5 of 12 clients in each, in 3 of 7 rounds at most."""
    everybody = [3, 5, 8, 9, 12, 20, 21, 22, 70_000, 70_001, 70_002, 2**31]
    base = {"job": JOB, "population": everybody, "enrolled": everybody, "batch": 5, "most": 3}
    base["owners"] = [0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3]  # of each of the population
    rounds: list[list[int]] = []
    for number in range(7):
        inputs = base | {"rounds": list(rounds)}
        yield f"the batch of round {number}", "choose_batch", inputs
        rounds.append(choose_batch(inputs)["clients"])
    yield "no batch more: all had their share", "choose_batch", base | {"rounds": rounds}
    left = [client for client in everybody if client != rounds[1][0]]
    yield (
        "who has left is passed over",
        "choose_batch",
        base
        | {
            "rounds": rounds[:1],
            "enrolled": left,
        },
    )
    yield "too few are left", "choose_batch", base | {"rounds": [], "enrolled": everybody[:4]}
    yield "another job, another order", "choose_batch", base | {"job": "5f" * 32, "rounds": []}

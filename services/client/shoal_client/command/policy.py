"""The options that state a consortium's policy; they have no defaults here."""

from typing import Annotated, get_args

import pydantic
import typer

from shoal_protocol.documents import describe
from shoal_protocol.manifest import Policy
from shoal_protocol.queries import QueryName
from shoal_protocol.reach import LONGEST_SECONDS

MinimumCohort = Annotated[int, typer.Option(min=2, help="Smallest cohort that may be summed.")]
MinimumColluders = Annotated[
    int,
    typer.Option(
        min=0,
        help="How many clients of a cohort must at least be able to collude, without the price "
        "rising, in every job.",
    ),
]
MaximumEpsilon = Annotated[
    float,
    typer.Option(help="Largest epsilon of one client over all jobs together: above 0, up to 100."),
]
Delta = Annotated[
    float, typer.Option(help="The delta that belongs to it; 0 allows pure epsilon only.")
]
Mechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        help="Noise that jobs may use: discrete_gaussian, or discrete_laplace for pure epsilon; "
        "repeatable. Without it the one that fits delta.",
    ),
]
MaximumRoundSeconds = Annotated[
    int, typer.Option(min=1, max=30 * 86_400, help="Longest that a round may last.")
]
MinimumThreshold = Annotated[
    int | None,
    typer.Option(
        min=2,
        max=255,
        help="Allow jobs in which so many Compute nodes or more, and more than half, open a sum "
        "without the others. Without it all are needed.",
    ),
]
MaximumLocalEpsilon = Annotated[
    float | None,
    typer.Option(
        help="Allow crowd jobs (Draw and Discard): the pure epsilon that one of them may cost one "
        "client, under local privacy: above 0, up to 1000. Without it there are none."
    ),
]
MaximumJoinSeconds = Annotated[
    int,
    typer.Option(
        min=1,
        max=LONGEST_SECONDS,
        help="Longest that clients may have to join a job, from when they hear of it: what it may "
        "cost is set aside so long.",
    ),
]
MaximumJobSeconds = Annotated[
    int,
    typer.Option(
        min=1, max=LONGEST_SECONDS, help="Longest that a job, or a crowd job, may take in all."
    ),
]


def policy(
    *,
    minimum_cohort: int,
    minimum_colluders: int,
    maximum_epsilon: float,
    delta: float,
    mechanisms: list[str] | None,
    maximum_round_seconds: int,
    minimum_threshold: int | None,
    maximum_local_epsilon: float | None,
    maximum_join_seconds: int,
    maximum_job_seconds: int,
) -> Policy:
    """Return the policy, with every query of this version allowed.

    Raises:
        ValueError: a value is out of range.
    """
    fitting = ["discrete_gaussian" if delta else "discrete_laplace"]
    try:
        return Policy.model_validate(
            {
                "minimum_cohort": minimum_cohort,
                "minimum_colluders": minimum_colluders,
                "maximum_epsilon": maximum_epsilon,
                "delta": delta,
                "mechanisms": mechanisms or fitting,
                "queries": get_args(QueryName),
                "maximum_round_seconds": maximum_round_seconds,
                "minimum_threshold": minimum_threshold,
                "maximum_local_epsilon": maximum_local_epsilon,
                "maximum_join_seconds": maximum_join_seconds,
                "maximum_job_seconds": maximum_job_seconds,
            }
        )
    except pydantic.ValidationError as error:
        raise ValueError(describe(error)) from error

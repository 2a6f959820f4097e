"""Requests for jobs whose terms a given round fits: services take no round of any other job."""

from datetime import datetime
from typing import Final

from shoal_protocol.jobs.job_request import (
    AS_STATED,
    JobRequest,
    PrivacyDemand,
    Range,
    RoundTerms,
    Terms,
)
from shoal_protocol.queries import Mechanism, Query
from shoal_protocol.queries.columns import ColumnBounds
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.trust.policy import LARGEST_POPULATION

ROUNDS: Final = 64


def request_for(
    consortium: Consortium,
    query: Query,
    *,
    analyst: str,
    nonce: str,
    mechanism: Mechanism,
    dropouts: int,
    colluders: int,
    sharing: Sharing,
    opened_at: datetime,
) -> JobRequest:
    """Return a request for rounds of `query`, at any price and population that the policy allows.

    Its task is none that a trainer would take: nodes read the terms alone.
    """
    policy = consortium.manifest.policy
    radius: float | None = getattr(query, "radius", None)
    terms = Terms(
        bounds=tuple(
            ColumnBounds(
                name=each.name, lower=each.centre - each.scale, upper=each.centre + each.scale
            )
            for each in query.columns
        ),
        batch=None,
        kinds=(
            RoundTerms(
                rounds=ROUNDS,
                query=query,
                recentred=False,
                stretch=AS_STATED,
                radius=None if radius is None else Range(least=radius, most=radius),
            ),
        ),
    )
    seconds = policy.maximum_round_seconds
    return JobRequest(
        manifest=consortium.digest,
        nonce=nonce,
        analyst=analyst,
        task={"name": "none"},
        terms=terms,
        privacy=PrivacyDemand(
            epsilon=policy.maximum_epsilon,
            delta=0.0 if mechanism == "discrete_laplace" else policy.delta,
            dropouts=dropouts,
            colluders=colluders,
        ),
        sharing=sharing,
        minimum_population=max(policy.minimum_cohort + dropouts, dropouts + colluders + 2),
        maximum_population=LARGEST_POPULATION,
        join_deadline=opened_at,
        round_seconds=seconds - seconds // 2,
        grace_seconds=seconds // 2,
    )

"""Breaks a job's price down by query, and says in words what each query measured."""

import math
from collections.abc import Iterable
from typing import Annotated, Final

from pydantic import Field

from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.queries import QueryName
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Place

MEASURED: Final[dict[QueryName, str]] = {
    "counts": "counts of values",
    "bin_counts": "counts over bins",
    "tables": "counts in tables",
    "first_moments": "means of the columns",
    "second_moments": "spreads of the columns",
    "norm_counts": "norms of the rows",
    "second_moment_matrix": "moments of the columns",
    "weighted_row_matrix": "moments of the rows, weighted",
    "column_moments": "means and spreads of the columns",
    "score_sum": "scores",
    "hazard_score_sum": "events, hazards and scores",
    "prediction_scores": "scores of predictions",
    "class_score_sum": "scores of each class",
    "gradient_sum": "gradients",
    "vector_sum": "sums of a vector",
}
"""What a round of that query measures."""


class BreakdownEntry(Model):
    """The cost of all rounds of one query together, a part `share` of the whole job's cost.

    Parts are of the sum of mu^2, or, with pure epsilon, of the sum of epsilon.
    """

    query: QueryName
    rounds: Place
    share: Annotated[float, Field(ge=0.0, le=1.0 + 1e-9)]

    @property
    def measured(self) -> str:
        """Say what was measured."""
        times = "" if self.rounds == 1 else f" ({self.rounds:,} rounds)"
        return f"{MEASURED[self.query]}{times}"

    def __str__(self) -> str:
        return f"{100.0 * self.share:.3g} % for {self.measured}"


def privacy_breakdown(specs: Iterable[RoundSpec]) -> tuple[BreakdownEntry, ...]:
    """Return the cost by query, each query once, in the order of its first round.

    Rounds that were lost are paid for, too.
    """
    spent: dict[QueryName, list[float]] = {}
    for spec in specs:
        spent.setdefault(spec.query.name, []).append(_amount(spec.cost))
    total = math.fsum(amount for amounts in spent.values() for amount in amounts)
    return tuple(
        BreakdownEntry(query=query, rounds=len(amounts), share=math.fsum(amounts) / total)
        for query, amounts in spent.items()
    )


def _amount(cost: Cost) -> float:
    """Return the additive amount of a cost: mu^2, or pure epsilon."""
    return cost.epsilon if math.isfinite(cost.epsilon) and cost.epsilon > 0.0 else cost.mu**2

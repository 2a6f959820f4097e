"""Shared base of the studies by variational inference: rounds of mini-batches for gradients.

The approximation is a normal distribution with independent coordinates, in the model's
unconstrained space. Each round asks `batch` clients for the sum of their clipped gradients.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from shoal_protocol.jobs.terms import AS_STATED, RoundTerms
from shoal_protocol.queries import GradientSum, Query, QueryName
from shoal_protocol.queries.models import GradientModel
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.study import Study
from shoal_protocol.trust.limits import LARGEST_POPULATION
from shoal_protocol.wire.errors import RefusedSpec

Rounds = Annotated[int, Field(ge=1, le=100_000, strict=True)]
Batch = Annotated[int, Field(ge=2, le=LARGEST_POPULATION, strict=True)]
Positive = Annotated[float, Field(ge=1e-6, le=1e6, allow_inf_nan=False)]
LearningRate = Annotated[float, Field(ge=1e-6, le=10.0, allow_inf_nan=False)]


class VariationalStudy(Study):
    """How many rounds a study has, of how many clients, and how gradients are bounded.

    `batch` is how many clients a round asks, None all that joined. `clip` bounds the l2 norm of one
    record's gradient: noise grows with it, and what is beyond it is shrunk. `learning_rate` is
    about how far a coordinate moves in a round.
    """

    rounds: Rounds
    batch: Batch | None
    clip: Positive
    learning_rate: LearningRate = 0.1
    grid_bits: Annotated[int, Field(ge=10, le=30, strict=True)] = 20

    @model_validator(mode="after")
    def _fits_the_grid(self) -> "VariationalStudy":
        if not 1.0 <= self.clip * 2.0**self.grid_bits <= 2.0**30:
            raise ValueError("clip times 2^grid_bits must lie between 1 and 2^30: change grid_bits")
        return self

    def participations(self, population: int) -> int:
        """Return how many rounds one client of so many is asked in at most: ceil(T B / N)."""
        batch = population if self.batch is None else min(self.batch, population)
        return -(-self.rounds * batch // population)

    @property
    @abstractmethod
    def model(self) -> GradientModel:
        """The model whose gradients are asked for."""

    def gradient_query(self, point: Sequence[float]) -> GradientSum:
        """Return the query of a round that takes gradients at `point`.

        The point is the trainer's to choose: whatever it is, each gradient is clipped, so a client
        loses no more than the round costs, and a bad point only makes a bad posterior.

        Raises:
            ValueError: the point does not have one coordinate for each latent, or is too far out.
        """
        return GradientSum(
            model=self.model,
            columns=tuple(bounds.column() for bounds in self.columns),
            point=tuple(point),
            clip=self.clip,
            grid_bits=self.grid_bits,
            records_per_client=self.records_per_client,
        )

    def query_name(self, number: int) -> QueryName:
        return "gradient_sum"

    def query_names(self) -> tuple[QueryName, ...]:
        """Return the name of the query that all rounds ask."""
        return ("gradient_sum",)

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        """Return the terms of all rounds, which differ in the point alone."""
        dimension = self.model.dimension(len(self.columns))
        return (
            RoundTerms(
                rounds=self.rounds,
                query=self.gradient_query([0.0] * dimension),
                recentred=False,
                stretch=AS_STATED,
                radius=None,
            ),
        )

    def check_query(
        self, query: Query, *, number: int, population: int, earlier: Sequence[ReleasedSum]
    ) -> None:
        if not isinstance(query, GradientSum) or query.model != self.model:
            raise RefusedSpec("the query's model is not that of the job")
        if query.columns != tuple(bounds.column() for bounds in self.columns):
            raise RefusedSpec("the query's columns are not those of the job, with its bounds")
        if (query.clip, query.grid_bits) != (self.clip, self.grid_bits):
            raise RefusedSpec("the query's clip or grid is not the job's")

"""The second moments of many columns: one matrix that answers many questions afterwards."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shoal_protocol.jobs.terms import RoundTerms
from shoal_protocol.posteriors.base import BasePosterior
from shoal_protocol.queries import Query, QueryName
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.moments import round_rules
from shoal_protocol.studies.moments.posterior import MeasuredColumn, MomentsPosterior
from shoal_protocol.studies.study import Study

__all__ = ["MeasuredColumn", "MomentsPosterior", "MomentsTask"]


class MomentsTask(Study):
    """The second moments of `columns`, bought once: `shoal.moments` answers from them alone.

    Linear regressions of any column on any others, correlations, partial ones and principal
    components, each with intervals that know of the noise, and at no further price.

    A first round measures centres and spreads of all columns, a second one counts rows by their
    norm in these units, and a third releases the matrix of rows that are shrunk into a ball. More
    columns mean longer rows and so more noise in each product: about in proportion to their number.
    """

    posteriors: ClassVar[tuple[type[BasePosterior], ...]] = (MomentsPosterior,)
    example: ClassVar[str] = """\
[task]
name = "moments"

[columns]                      # public bounds, from general knowledge, never from the data
age = [18, 100]
body_mass_index = [10, 60]
systolic_pressure = [60, 220]

"""

    name: Literal["moments"] = "moments"
    columns: Annotated[tuple[ColumnBounds, ...], Field(min_length=2, max_length=250)]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [bounds.name for bounds in self.columns]
        if len(set(names)) != len(names):
            raise ValueError("two columns have the same name")
        if "intercept" in names:
            raise ValueError("no column may be called 'intercept': a model's constant term is")
        return self

    @property
    def rounds(self) -> int:
        """How many rounds the job has."""
        return len(round_rules.ROUNDS)

    @property
    def batch(self) -> int | None:
        """How many clients a round asks; None for all that joined."""
        return None

    def participations(self, population: int) -> int:
        return self.rounds

    def query_name(self, number: int) -> QueryName:
        return round_rules.ROUNDS[number]

    def query_names(self) -> tuple[QueryName, ...]:
        return round_rules.ROUNDS

    def kinds_of_rounds(self, *, least: int, most: int) -> tuple[RoundTerms, ...]:
        return round_rules.kinds_of_rounds(self)

    def check_query(
        self, query: Query, *, number: int, population: int, earlier: Sequence[ReleasedSum]
    ) -> None:
        self.terms(least=2, most=2).check(query, number=number)

"""What a data holder declares before any job: the variables it has and the rules it goes by.

The rules are those of the owner's policy: who reads them judges a job as the vault does.
"""

from collections.abc import Collection, Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.queries import Mechanism, QueryName
from shoal_protocol.queries.columns import ColumnBounds, ColumnName, Level, variables_of
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.sharing.shares import LARGEST_COMMITTEE
from shoal_protocol.trust.policy import TimeLimits
from shoal_protocol.wire.documents import (
    HolderDocument,
)
from shoal_protocol.wire.encoding import Clients, Delta, Name, Timestamp


class HolderRules(TimeLimits):
    """The rules by which a data holder takes part in jobs in rounds; its policy explains them.

    A job's bounds of a column that is among `ranges` are within that range. Without
    `maximum_epsilon` the owner does not show what all jobs together may cost one client.
    """

    analysts: tuple[Name, ...]
    queries: tuple[QueryName, ...]
    columns: tuple[ColumnName, ...]
    ranges: tuple[ColumnBounds, ...] = ()
    maximum_epsilon: float | None = Field(default=None, gt=0, le=100)
    delta: Delta
    minimum_population: Annotated[Clients, Field(ge=2)]
    minimum_colluders: Clients
    minimum_threshold: int | None = Field(default=None, ge=2, le=255)
    minimum_committee: int | None = Field(
        default=None, ge=2, le=LARGEST_COMMITTEE, exclude_if=lambda value: value is None
    )
    mechanisms: tuple[Mechanism, ...] = ()
    models: tuple[Annotated[str, Field(pattern=r"^[^@]+@[0-9a-f]{64}$")], ...] = ()
    smallest_cell: int = Field(default=0, ge=0, le=1_000_000)

    @model_validator(mode="after")
    def _ranges_of_columns(self) -> Self:
        names = [each.name for each in self.ranges]
        if len(set(names)) < len(names) or not set(names) <= set(self.columns):
            raise ValueError("a range is of one of the columns, and each has one at most")
        return self

    def refusal(self, request: JobRequest) -> str | None:
        """Return why no client of this data holder takes part in a job, or None if they may."""
        if request.analyst not in self.analysts:
            return "the analyst is not among those that this data holder allows"
        for model, _ in request.terms.installed_models():
            if model.reference not in self.models:
                return "this data holder does not allow the model: see `models` in its policy"
        for query in request.terms.query_names:
            if query not in self.queries:
                return f"this data holder does not allow the query {query}"
        if reason := self.columns_refusal(request.terms.read):
            return reason
        if (
            "tables" in request.terms.query_names
            and request.terms.smallest_cell < self.smallest_cell
        ):
            return f"smallest_cell is below this data holder's {self.smallest_cell}"
        if request.smallest_round < self.minimum_population:
            what = "minimum_population" if request.terms.batch is None else "the job's batch"
            return (
                f"{what} is below this data holder's minimum_population {self.minimum_population}"
            )
        if request.privacy.colluders < self.minimum_colluders:
            return f"colluders is below this data holder's {self.minimum_colluders}"
        default = Cap(epsilon=1.0, delta=self.delta).mechanism
        if request.privacy.mechanism not in (self.mechanisms or (default,)):
            noise = request.privacy.mechanism.replace("_", " ")
            return f"this data holder does not allow {noise} noise: see `mechanisms` in its policy"
        if reason := self._sharing_refusal(request.sharing):
            return reason
        if self.maximum_epsilon is not None:
            allowed = Cap(epsilon=self.maximum_epsilon, delta=self.delta)
            if not allowed.allows(request.privacy.cost):
                asked = request.privacy.cap
                return f"{asked} exceeds what this data holder allows one client: {allowed}"
        return None

    def columns_refusal(self, bounds: Collection[ColumnBounds]) -> str | None:
        """Return why a job may not read columns between these bounds, or None if it may.

        What a term makes of variables is judged by the bounds to which it cuts each of them.
        """
        if forbidden := sorted(set(variables_of(bounds)) - set(self.columns)):
            return f"this data holder does not allow the column {forbidden[0]!r}"
        ranges = {each.name: each for each in self.ranges}
        for name, lower, upper in read_ranges(bounds):
            allowed = ranges.get(name)
            if allowed is not None and (lower < allowed.lower or allowed.upper < upper):
                return (
                    f"this data holder allows the column {name!r} between "
                    f"{allowed.lower:g} and {allowed.upper:g} alone"
                )
        return None

    def _sharing_refusal(self, sharing: Sharing) -> str | None:
        if sharing.committee is not None and sharing.committee < (self.minimum_committee or 255):
            return "this data holder allows no committee so small: see `minimum_committee`"
        if sharing.scheme == "additive":
            return None
        if self.minimum_threshold is None:
            return "this data holder allows additive sharing only"
        if sharing.threshold < self.minimum_threshold:
            return f"the sharing threshold is below this data holder's {self.minimum_threshold}"
        return None


def read_ranges(bounds: Collection[ColumnBounds]) -> Iterator[tuple[str, float, float]]:
    """Yield each variable that columns read, and between what; of a level, its place."""
    for column in bounds:
        if column.term is None:
            yield column.name, column.lower, column.upper
            continue
        for factor in column.term.factors:
            if isinstance(factor, Level):
                yield factor.variable, factor.value, factor.value
            else:
                yield factor.variable, factor.lower, factor.upper


class HolderDeclaration(HolderDocument):
    """Holder -> all analysts: its variables and rules; of two the one declared later holds.

    Nothing in it depends on the records: `variables` are the names of the columns they have among
    those that the owner allows. `without_owners` says that owners must approve each job, and that
    too few are listed who could.
    """

    kind: Literal["holder_declaration"] = "holder_declaration"
    declared_at: Timestamp
    variables: tuple[str, ...]
    rules: HolderRules
    without_owners: bool = Field(default=False, exclude_if=lambda value: not value)

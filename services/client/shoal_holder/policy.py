"""The owner's policy: the rules by which a data holder takes part in jobs.

It is applied before anything is signed or sent, and again before every answer.
"""

from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from shoal_holder.toml_files import read_toml
from shoal_protocol.jobs.declarations import HolderRules
from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.queries import Query
from shoal_protocol.queries.models import Family
from shoal_protocol.wire.encoding import Name, VerifyKeyHex


class Policy(HolderRules):
    """The data holder's rules. Nothing is allowed by default: what has no default must be set.

    `maximum_epsilon` and `delta` cap what all jobs together may cost one client, ever, by
    replacement of that client's whole contribution. `minimum_colluders` is how many clients must
    be able to collude, at least, without the price rising: a job may tolerate more, never fewer.
    `minimum_threshold` is how many Compute nodes must at least be needed to open a sum; without
    it all of them must be, so that only jobs with additive sharing are allowed. `mechanisms` are
    the kinds of noise; without it the one that fits `delta`: Laplace if it is 0, else Gaussian.
    Where `columns` maps each column to its range, [lower, upper], or to "any", the bounds that a
    job assumes of a column are within its range.
    `models` are the NumPyro models whose gradients may be computed here, each as "name@digest":
    their code was read by whoever lists it. `maximum_local_epsilon` caps what all crowd jobs
    together may cost one client, in pure epsilon under local privacy, and `crowd_families` are the
    models that crowds may learn; without either no crowd job is contributed to. What a client
    contributes to crowds counts towards `maximum_epsilon`, too. `maximum_join_seconds` and
    `maximum_job_seconds` say how far ahead, from now, the time to join and a job's end may be: what
    a job may cost is set aside so long. Without them it is 14 and 90 days.
    Jobs that ask `tables` do not show cells that may hold fewer than `smallest_cell` records.
    With `declare` analysts are told these rules and the names of the columns that the records have,
    and with `declare_cap` `maximum_epsilon` too, but nothing about crowds; and whether `owners` are
    too few for `approval`.
    With `approval` "one" or "two", so many of the `owners`, whose verify keys are listed by names,
    approve each job that these rules allow before it is taken part in; "automatic" asks nobody.
    """

    maximum_epsilon: float = Field(gt=0, le=100)
    maximum_local_epsilon: float | None = Field(default=None, gt=0, le=1000)
    crowd_families: tuple[Family, ...] = ()
    require_isolation: bool = False
    declare: bool = True
    declare_cap: bool = False
    approval: Literal["automatic", "one", "two"] = "one"
    owners: dict[Name, VerifyKeyHex] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _columns_with_ranges(cls, content: Any) -> Any:
        """Read `columns` as a table, too."""
        columns = content.get("columns") if isinstance(content, dict) else None
        if not isinstance(columns, dict):
            return content
        limited = {name: each for name, each in columns.items() if each != "any"}
        if not all(isinstance(each, list) and len(each) == 2 for each in limited.values()):
            raise ValueError('columns: a range is [lower, upper] or "any"')
        ranges = [
            {"name": name, "lower": lower, "upper": upper}
            for name, (lower, upper) in limited.items()
        ]
        return content | {"columns": list(columns), "ranges": ranges}

    @model_validator(mode="after")
    def _owners_are_people(self) -> Self:
        if len(set(self.owners.values())) < len(self.owners):
            raise ValueError("owners: each has a key of his own")
        return self

    @classmethod
    def from_toml(cls, path: str | PathLike[str]) -> "Policy":
        """Read the rules from a TOML file with this class's fields as keys.

        Raises:
            ValueError: the file is not TOML, or a field is missing, unknown or wrong.
            OSError: the file cannot be read.
        """
        return read_toml(Path(path), cls.model_validate)

    @property
    def cap(self) -> Cap:
        """Return what all jobs together may cost one client."""
        return Cap(epsilon=self.maximum_epsilon, delta=self.delta)

    @property
    def declared(self) -> HolderRules | None:
        """Return the rules as the owner lets others see them, None if nobody may."""
        if not self.declare:
            return None
        hidden = set() if self.declare_cap else {"maximum_epsilon"}
        return HolderRules.model_validate(
            self.model_dump(include=set(HolderRules.model_fields) - hidden)
        )

    def query_refusal(self, query: Query) -> str | None:
        """Return why a round's query is not answered, or None if it is."""
        if query.name not in self.queries:
            return f"this data holder does not allow the query {query.name}"
        if forbidden := sorted(set(query.column_names) - set(self.columns)):
            return f"this data holder does not allow the column {forbidden[0]!r}"
        return None

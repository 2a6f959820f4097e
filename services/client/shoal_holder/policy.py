"""The owner's policy: the rules by which a data holder takes part in jobs.

It is applied before anything is signed or sent, and again before every answer.
"""

from os import PathLike
from pathlib import Path
from typing import Annotated

from pydantic import Field

from shoal_holder.toml_files import read_toml
from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.privacy.accounting import Cap
from shoal_protocol.queries import Mechanism, Query, QueryName
from shoal_protocol.queries.models.regressions import Family
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.trust import limits
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.encoding import Name


class Policy(Model):
    """The data holder's rules. Nothing is allowed by default: all but the last eight must be set.

    `maximum_epsilon` and `delta` cap what all jobs together may cost one client, ever, by
    replacement of that client's whole contribution. `minimum_colluders` is how many clients must
    be able to collude, at least, without the price rising: a job may tolerate more, never fewer.
    `minimum_threshold` is how many Compute nodes must at least be needed to open a sum; without
    it all of them must be, so that only jobs with additive sharing are allowed. `mechanisms` are
    the kinds of noise; without it the one that fits `delta`: Laplace if it is 0, else Gaussian.
    `models` are the NumPyro models whose gradients may be computed here, each as "name@digest":
    their code was read by whoever lists it. `maximum_local_epsilon` caps what all crowd jobs
    together may cost one record, in pure epsilon under local privacy, and `crowd_families` are the
    models that crowds may learn; without either no crowd job is contributed to. What a client
    contributes to crowds counts towards `maximum_epsilon`, too. `maximum_join_seconds` and
    `maximum_job_seconds` say how far ahead, from now, the time to join and a job's end may be: what
    a job may cost is set aside so long. Without them it is 14 and 90 days.
    """

    analysts: tuple[Name, ...]
    queries: tuple[QueryName, ...]
    columns: tuple[str, ...]
    maximum_epsilon: float = Field(gt=0, le=100)
    delta: float = Field(ge=0, lt=1)
    minimum_population: int = Field(ge=2)
    minimum_colluders: int = Field(ge=0)
    minimum_threshold: int | None = Field(default=None, ge=2, le=255)
    mechanisms: tuple[Mechanism, ...] = ()
    models: tuple[Annotated[str, Field(pattern=r"^[^@]+@[0-9a-f]{64}$")], ...] = ()
    maximum_local_epsilon: float | None = Field(default=None, gt=0, le=1000)
    crowd_families: tuple[Family, ...] = ()
    require_isolation: bool = False
    maximum_join_seconds: int = Field(default=limits.JOIN_SECONDS, ge=1, le=limits.LONGEST_SECONDS)
    maximum_job_seconds: int = Field(default=limits.JOB_SECONDS, ge=1, le=limits.LONGEST_SECONDS)

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
        if forbidden := sorted(set(request.terms.column_names) - set(self.columns)):
            return f"this data holder does not allow the column {forbidden[0]!r}"
        if request.smallest_round < self.minimum_population:
            what = "minimum_population" if request.terms.batch is None else "the job's batch"
            return (
                f"{what} is below this data holder's minimum_population {self.minimum_population}"
            )
        if request.privacy.colluders < self.minimum_colluders:
            return f"colluders is below this data holder's {self.minimum_colluders}"
        if request.privacy.mechanism not in (self.mechanisms or (self.cap.mechanism,)):
            noise = request.privacy.mechanism.replace("_", " ")
            return f"this data holder does not allow {noise} noise: see `mechanisms` in its policy"
        if reason := self._sharing_refusal(request.sharing):
            return reason
        if not self.cap.allows(request.privacy.cost):
            asked, allowed = request.privacy.cap, self.cap
            return f"{asked} exceeds what this data holder allows one client: {allowed}"
        return None

    def _sharing_refusal(self, sharing: Sharing) -> str | None:
        if sharing.scheme == "additive":
            return None
        if self.minimum_threshold is None:
            return "this data holder allows additive sharing only"
        if sharing.threshold < self.minimum_threshold:
            return f"the sharing threshold is below this data holder's {self.minimum_threshold}"
        return None

    def query_refusal(self, query: Query) -> str | None:
        """Return why a round's query is not answered, or None if it is."""
        if query.name not in self.queries:
            return f"this data holder does not allow the query {query.name}"
        if forbidden := sorted(set(query.column_names) - set(self.columns)):
            return f"this data holder does not allow the column {forbidden[0]!r}"
        return None

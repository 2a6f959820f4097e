"""What a data holder allows, in its own words; knows no consortium, no ledger and no peer.

It is judged before anything is signed or sent, and again before every answer.
"""

from os import PathLike
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from shoal_client.toml_files import read_toml
from shoal_protocol import reach
from shoal_protocol.accounting import Cap, Cost
from shoal_protocol.documents import Model
from shoal_protocol.draw_and_discard.documents import CrowdJobRequest
from shoal_protocol.draw_and_discard.tasks import Family
from shoal_protocol.encoding import Name
from shoal_protocol.jobs import JobRequest
from shoal_protocol.queries import Mechanism, Query, QueryName
from shoal_protocol.schemes import Sharing
from shoal_protocol.tasks import NumpyroTask, TaskName, participation_of

NO_CROWDS: Final = (
    "this data holder contributes to no crowd jobs: see `maximum_local_epsilon` in its policy"
)


class Policy(Model):
    """The data holder's rules. Nothing is allowed by default: all but the last seven must be set.

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
    tasks: tuple[TaskName, ...]
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
    maximum_join_seconds: int = Field(default=reach.JOIN_SECONDS, ge=1, le=reach.LONGEST_SECONDS)
    maximum_job_seconds: int = Field(default=reach.JOB_SECONDS, ge=1, le=reach.LONGEST_SECONDS)

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
        columns = {bounds.name for bounds in request.task.columns}
        if request.analyst not in self.analysts:
            return "the analyst is not among those that this data holder allows"
        if request.task.name not in self.tasks:
            return "this data holder does not allow the task"
        if isinstance(request.task, NumpyroTask) and (
            request.task.model.reference not in self.models
        ):
            return "this data holder does not allow the model: see `models` in its policy"
        for query in request.task.query_names():
            if query not in self.queries:
                return f"this data holder does not allow the query {query}"
        if forbidden := sorted(columns - set(self.columns)):
            return f"this data holder does not allow the column {forbidden[0]!r}"
        if request.smallest_round < self.minimum_population:
            what = "minimum_population" if request.task.batch is None else "the task's batch"
            return (
                f"{what} is below this data holder's minimum_population {self.minimum_population}"
            )
        if request.privacy.colluders < self.minimum_colluders:
            return f"colluders is below this data holder's {self.minimum_colluders}"
        if request.privacy.mechanism not in (self.mechanisms or (self.cap.mechanism,)):
            noise = request.privacy.mechanism.replace("_", " ")
            return f"this data holder does not allow {noise} noise: see `mechanisms` in its policy"
        if participation_of(request.task) is not None and not self.cap.forgives_slack:
            return "this data holder's delta is too small for hidden participation"
        if reason := self._sharing_refusal(request.sharing):
            return reason
        if not self.cap.allows(request.privacy.cost):
            asked, allowed = request.privacy.cap, self.cap
            return f"{asked} exceeds what this data holder allows one client: {allowed}"
        return None

    def crowd_refusal(self, request: CrowdJobRequest) -> str | None:
        """Return why no record here is contributed to a crowd job, or None if some may be."""
        task = request.task
        if self.maximum_local_epsilon is None:
            return NO_CROWDS
        if request.analyst not in self.analysts:
            return "the analyst is not among those that this data holder allows"
        if task.family not in self.crowd_families:
            return "this data holder does not allow the model: see `crowd_families` in its policy"
        if forbidden := sorted(set(task.column_names) - set(self.columns)):
            return f"this data holder does not allow the column {forbidden[0]!r}"
        one = Cost.pure(task.contribution_epsilon)
        if not self.record_cap.allows(one):
            return (
                f"epsilon {task.contribution_epsilon:g} of one contribution exceeds what this data "
                f"holder allows one record: {self.maximum_local_epsilon:g}"
            )
        if not self.cap.allows(one):
            return (
                f"epsilon {task.contribution_epsilon:g} of one contribution exceeds what this data "
                f"holder allows one client: {self.cap}"
            )
        return None

    @property
    def record_cap(self) -> Cap:
        """Return what all crowd jobs together may cost one record.

        Raises:
            ValueError: no crowd job is allowed.
        """
        if self.maximum_local_epsilon is None:
            raise ValueError("the policy allows no crowd jobs: it has no maximum_local_epsilon")
        return Cap(epsilon=self.maximum_local_epsilon, delta=0.0)

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

"""An analyst's settings of a job besides its task: price, tolerances, numbers and times."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final

import pydantic
from pydantic import Field, Strict, StrictFloat, StrictInt

from shoal_protocol.crowds.draws import CrowdJobRequest
from shoal_protocol.crowds.tasks import CrowdTask
from shoal_protocol.jobs.job_request import PrivacyDemand, Purpose
from shoal_protocol.sharing.schemes import ADDITIVE, Sharing
from shoal_protocol.wire.documents import describe
from shoal_protocol.wire.encoding import Place, Real
from shoal_studies.registry import Task
from shoal_studies.study_request import StudyRequest

LARGEST_START: Final = 100.0  # of what begins further off, a crowd would hardly come back

Bounds = tuple[Annotated[Real, Strict()], Annotated[Real, Strict()]]
"""A column's lower and upper bound, as a file has them."""

Seconds = Annotated[StrictInt, Field(ge=1, le=366 * 86_400)]


@contextmanager
def _in_words() -> Iterator[None]:
    """Say of a job's number that is out of range what it should be."""
    try:
        yield
    except pydantic.ValidationError as error:
        raise ValueError(f"no job can be like this: {describe(error)}") from None


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """What a job in rounds asks of clients, and may cost each of them.

    (`epsilon`, `delta`) is what the whole job may cost one client, by replacement of all its
    records. The noise suffices even if `dropouts` clients go missing and `colluders` of the
    others reveal theirs. Clients have `join_seconds` to join and `round_seconds` to answer
    each round; services have `grace_seconds` more before they give a round up. By default
    every Compute node is needed; `sharing=ThresholdSharing(threshold=t)` needs any t of them. With
    `AdditiveSharing(committee=m)`, or `ThresholdSharing(threshold=t, committee=m)`, each data
    holder shares with m of them, of which the threshold counts.
    `purpose` is one line for data holders and for the certificate: what the job is for.
    """

    epsilon: StrictFloat
    delta: StrictFloat
    dropouts: StrictInt
    colluders: StrictInt
    minimum_population: StrictInt
    maximum_population: StrictInt
    join_seconds: Seconds
    round_seconds: Seconds
    grace_seconds: Seconds
    sharing: Sharing = ADDITIVE
    purpose: Purpose = ""

    def request(
        self, task: Task, *, manifest: str, nonce: str, analyst: str, now: datetime
    ) -> StudyRequest:
        """Return the request of a job that clients may join from now on, unsigned.

        Raises:
            ValueError: a setting is out of range.
        """
        with _in_words():
            return StudyRequest(
                manifest=manifest,
                nonce=nonce,
                analyst=analyst,
                task=task,
                terms=task.terms(least=self.minimum_population, most=self.maximum_population),
                privacy=PrivacyDemand(
                    epsilon=self.epsilon,
                    delta=self.delta,
                    dropouts=self.dropouts,
                    colluders=self.colluders,
                ),
                minimum_population=self.minimum_population,
                maximum_population=self.maximum_population,
                join_deadline=now + timedelta(seconds=self.join_seconds),
                round_seconds=self.round_seconds,
                grace_seconds=self.grace_seconds,
                sharing=self.sharing,
                purpose=self.purpose,
            )


@dataclass(frozen=True, kw_only=True)
class CrowdSettings:
    """What a crowd job (Draw and Discard) asks of clients; its task says what a step costs.

    A client makes at most `contributions_per_client`; the job is closed after `contributions` of
    them, or `open_seconds` from its opening. A model that was drawn must come back within
    `session_seconds`.
    """

    contributions: Annotated[Place, Strict()]
    contributions_per_client: Annotated[Place, Strict()]
    session_seconds: Seconds
    open_seconds: Seconds

    def request(
        self, task: CrowdTask, *, manifest: str, nonce: str, analyst: str, now: datetime
    ) -> CrowdJobRequest:
        """Return the request of a job that is open from now on, unsigned.

        Raises:
            ValueError: a setting is out of range, or the task's start too far off.
        """
        if task.start is not None and max(map(abs, task.start)) > LARGEST_START:
            raise ValueError(
                f"no weight of start may be above {LARGEST_START:g} in magnitude: they are of "
                "normalised columns; `shoal crowd model JOB` prints a model's"
            )
        with _in_words():
            return CrowdJobRequest(
                manifest=manifest,
                nonce=nonce,
                analyst=analyst,
                task=task,
                contributions=self.contributions,
                contributions_per_client=self.contributions_per_client,
                session_seconds=self.session_seconds,
                closes_at=now + timedelta(seconds=self.open_seconds),
            )

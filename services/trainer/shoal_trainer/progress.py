"""A running job in memory: read from the store once, then updated with each change.

So a round does not cost more the more rounds came before it. A caller that fails to store a change
drops the object and reads the job anew.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from pyroaring import BitMap

from shoal_hosting.installed_models import model_for
from shoal_learning.contract import Learner
from shoal_learning.learners import learner_for
from shoal_protocol.certificates.study_request import StudyRequest
from shoal_protocol.privacy.job_costs import Participation
from shoal_protocol.rounds.attestations import PartialSum, Result
from shoal_protocol.rounds.batches import choose_batch
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.roster import Roster
from shoal_protocol.wire.documents import Signed, decode
from shoal_protocol.wire.encoding import decode_clients
from shoal_protocol.wire.phases import Phase
from shoal_trainer.store import FiledRound, JobRecord


@dataclass
class CurrentRound:
    """A job's newest round."""

    spec: Signed[RoundSpec]
    phase: Phase

    @property
    def id(self) -> str:
        """Return the round's id."""
        return self.spec.digest


@dataclass
class RunningJob:
    """A job whose population is fixed: its sums so far, who was asked for them, its last round."""

    encoded: bytes  # its signed request
    request: StudyRequest
    population: BitMap
    learner: Learner
    participation: Participation
    sums: list[ReleasedSum] = field(default_factory=list)
    lost: int = 0  # rounds that released nothing
    current: CurrentRound | None = None
    opened_at: datetime | None = None  # of the newest round
    first_population_size: int | None = None
    unfiled: tuple[Signed[Result], Sequence[Signed[PartialSum]]] | None = None
    """The newest round's verified result, until it is on file with whatever follows from it."""

    @property
    def id(self) -> str:
        """Return the job's id."""
        return self.request.digest

    @property
    def next_number(self) -> int:
        """Return the number that the next round gets."""
        return 0 if self.current is None else self.current.spec.body.number + 1

    @property
    def is_over(self) -> bool:
        """Tell whether the job has had all its rounds, the lost ones too."""
        return self.next_number >= self.request.task.rounds

    def next_to_ask(self, present: BitMap, roster: Roster) -> BitMap | None:
        """Return whom the next round asks, of the clients who are still `present`.

        None if there is no batch: too many have left, and the others had their rounds.
        """
        task = self.request.task
        if task.batch is None:
            return present
        return choose_batch(
            self.participation,
            present,
            roster.owners_of(np.asarray(self.population.to_array())),
            job=self.id,
            size=task.batch,
            most=task.participations(len(self.population)),
        )

    @property
    def size(self) -> int | None:
        """Return N as the learner is told it: None before a round that asks all who joined."""
        return (
            self.first_population_size if self.request.task.batch is None else len(self.population)
        )

    def begin(self, spec: Signed[RoundSpec], phase: Phase = Phase.ANNOUNCED) -> None:
        """Add a round that is on file."""
        body = spec.body
        self.participation.add(body.clients(), body.cost)
        self.current, self.opened_at = CurrentRound(spec, phase), body.opened_at
        self.first_population_size = self.first_population_size or body.population_size

    def open(self) -> None:
        """Note that clients may answer the newest round."""
        self._round.phase = Phase.COLLECTING

    def lose(self) -> None:
        """Note that the newest round released nothing and never will."""
        self._round.phase = Phase.ABANDONED
        self.lost += 1

    def publish(self, result: Result) -> None:
        """Add the newest round's verified result."""
        self._round.phase = Phase.PUBLISHED
        self.sums.append(ReleasedSum.of(self._round.spec.body, result))

    @property
    def _round(self) -> CurrentRound:
        if self.current is None:
            raise ValueError("the job has no round yet")
        return self.current


def read_job(record: JobRecord, rounds: Iterable[FiledRound]) -> RunningJob:
    """Return a running job from all that is on file of it."""
    request = decode(record.request, StudyRequest).body
    population = decode_clients(record.population or "")
    job = RunningJob(
        record.request,
        request,
        population,
        learner_for(request.task, find_model=model_for),
        Participation(population),
    )
    for each in rounds:
        job.begin(decode(each.spec, RoundSpec), each.phase)
        if each.phase is Phase.ABANDONED:
            job.lose()
        elif each.phase is Phase.PUBLISHED and each.outcome is not None:
            job.publish(decode(each.outcome, Result).body)
    return job

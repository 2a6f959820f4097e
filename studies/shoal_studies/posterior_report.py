"""The trainer's report of a finished job: the posterior, its rounds and their cost."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

import pydantic
from pydantic import Field
from pyroaring import BitMap

from shoal_protocol.jobs.job_request import JobRequest
from shoal_protocol.privacy.job_costs import Participation, PrivacySpent, epsilon_at
from shoal_protocol.rounds.attestations import Result
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing.schemes import Sharing
from shoal_protocol.wire.documents import Model, TrainerDocument
from shoal_protocol.wire.encoding import MOST_VALUES, Clients, Count, Digest
from shoal_studies.catalogue import Posterior
from shoal_studies.posteriors.base import LEVEL
from shoal_studies.posteriors.summaries import Summary


class Participations(Model):
    """In how many of a job's rounds the clients of its population were asked."""

    least: Count
    most: Count


class PosteriorReport(TrainerDocument):
    """Trainer -> analyst: the posterior, the rounds it came from and what they cost.

    A client pays for the rounds that asked it, lost ones included: its answer may have been sent.
    `privacy` is the cost of the client that pays most.
    """

    most_values: ClassVar[int] = MOST_VALUES

    kind: Literal["posterior_report"] = "posterior_report"
    job: Digest
    rounds: tuple[Digest, ...]
    results: tuple[Digest, ...]
    lost_rounds: tuple[Digest, ...]  # by the word of the trainer
    population_size: Annotated[Clients, Field(ge=2)]
    participations: Participations
    cohort_sizes: tuple[Annotated[Clients, Field(ge=1)], ...]
    sharing: Sharing
    compute_nodes: tuple[Annotated[int, Field(ge=2, le=255)], ...]  # of each round, and
    partial_sums: tuple[
        Annotated[int, Field(ge=2, le=255)], ...
    ]  # how many of them its result rests on
    privacy: PrivacySpent
    posterior: Posterior

    @pydantic.model_validator(mode="after")
    def _rounds_agree(self) -> Self:
        counts = (self.cohort_sizes, self.compute_nodes, self.partial_sums)
        if {len(each) for each in (self.results, *counts)} != {len(self.rounds)}:
            raise ValueError(
                "rounds, results, cohort_sizes, compute_nodes and partial_sums must have one entry "
                "per round"
            )
        return self

    @classmethod
    def of(
        cls,
        request: JobRequest,
        released: Sequence[tuple[RoundSpec, Result]],
        *,
        lost: Sequence[RoundSpec],
        population: BitMap,
        posterior: Posterior,
    ) -> Self:
        """Return the report of a job that is done, with what its rounds really cost.

        Raises:
            ValueError: a round asks clients who are not of `population`, those who joined.
        """
        participation, delta = Participation(population), request.privacy.delta
        specs = [*(spec for spec, _ in released), *lost]
        for spec in specs:
            participation.add(spec.clients(), spec.cost)
        spent = participation.largest()
        return cls(
            manifest=request.manifest,
            job=request.digest,
            rounds=tuple(spec.digest for spec, _ in released),
            results=tuple(result.digest for _, result in released),
            lost_rounds=tuple(spec.digest for spec in lost),
            population_size=len(population),
            participations=Participations(
                least=int(participation.rounds.min()), most=int(participation.rounds.max())
            ),
            cohort_sizes=tuple(result.cohort_size for _, result in released),
            sharing=request.sharing,
            compute_nodes=tuple(len(spec.compute_nodes) for spec, _ in released),
            partial_sums=tuple(len(result.partial_sums) for _, result in released),
            privacy=PrivacySpent(epsilon=epsilon_at(delta, spent), delta=delta, mu=spent.mu),
            posterior=posterior,
        )

    def summary(self, level: float = LEVEL) -> Summary:
        """Return the posterior's summary, with cohorts and price.

        Raises:
            ValueError: `level` is not strictly between 0 and 1.
        """
        sizes = sorted({min(self.cohort_sizes, default=0), max(self.cohort_sizes, default=0)})
        cohorts = " to ".join(f"{size:,}" for size in sizes)
        return self.posterior.summary(level).with_facts(
            ("Cohorts", f"{cohorts} of {self.population_size:,} clients"),
            ("Privacy spent", f"{self.privacy}, by replacement of one client"),
        )

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

"""The trainer's report of a finished job, with its posterior decoded."""

from shoal_protocol.certificates.release_certificate import JobReport
from shoal_studies.posteriors.base import LEVEL
from shoal_studies.posteriors.summaries import Summary
from shoal_studies.registry import Posterior


class PosteriorReport(JobReport):
    """The document of a job's report with its posterior decoded."""

    posterior: Posterior

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

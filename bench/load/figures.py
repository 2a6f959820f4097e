"""What a load of rounds measured, and how a Compute node's own metrics are read."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bench.load.metering import RequestFigures

SHARES_STORED = "shoal_compute_shares_stored_total"
BATCHES = "shoal_compute_commit_batch_shares_count"
BATCHED = "shoal_compute_commit_batch_shares_sum"


@dataclass(frozen=True)
class NodeFigures:
    """What one Compute node said of itself, in /metrics, over the whole run."""

    stored_shares: int
    mean_batch: float


@dataclass(frozen=True, kw_only=True)
class JobFigures:
    """One job, its first round. Seconds begin at what their names say first.

    `complete` clients are those of an answer whose shares every node acknowledged: they, and nobody
    else, must be the cohort.
    """

    job: str
    clients: int
    joined: int
    complete: int
    refused_envelopes: int
    reuploaded_envelopes: int
    cohort_size: int
    submitted_to_round_seconds: float
    first_upload_to_posterior_seconds: float
    submitted_to_posterior_seconds: float

    @property
    def clients_per_second(self) -> float:
        """Return how many clients went the whole way in a second, from submission to posterior."""
        return self.cohort_size / self.submitted_to_posterior_seconds


@dataclass(frozen=True)
class LoadFigures:
    """All jobs, the requests that they took, by kind, and what failed on the way."""

    jobs: tuple[JobFigures, ...]
    requests: Mapping[str, RequestFigures]
    failures: Mapping[str, int]
    nodes: Mapping[str, NodeFigures]

    @property
    def bytes_per_client(self) -> float:
        """Return the bytes, without TLS, that one client sent in one job, all nodes together."""
        sent = sum(requests.sent_bytes for requests in self.requests.values())
        return sent / sum(job.clients for job in self.jobs)

    def as_value(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        value = asdict(self)
        for job, listed in zip(self.jobs, value["jobs"], strict=True):
            listed["clients_per_second"] = job.clients_per_second
        return value | {"bytes_per_client": self.bytes_per_client}


def read_metrics(text: str) -> dict[str, float]:
    """Return the samples without labels of a Prometheus exposition."""
    samples = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if not line.startswith("#") and value and "{" not in name:
            samples[name] = float(value)
    return samples


def node_figures(before: Mapping[str, float], after: Mapping[str, float]) -> NodeFigures:
    """Return what a node did between two readings of its metrics."""

    def grown(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    batches = grown(BATCHES)
    return NodeFigures(
        stored_shares=round(grown(SHARES_STORED)),
        mean_batch=grown(BATCHED) / batches if batches else 0.0,
    )

"""The node's metrics for its operator; no label tells one client or round from another."""

from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BATCH_SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
GossipOutcome = Literal[
    "exchanged", "unreachable", "document_new", "document_evidence", "document_refused"
]


class Metrics:
    """The metrics of one node."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.shares_stored = Counter(
            "shoal_compute_shares_stored", "Shares stored durably", registry=registry
        )
        self.batch_size = Histogram(
            "shoal_compute_commit_batch_shares",
            "Shares in one transaction",
            buckets=_BATCH_SIZES,
            registry=registry,
        )
        self.clock_offset = Gauge(
            "shoal_compute_peer_clock_offset_seconds",
            "How far a peer's clock is ahead of this node's, by its last answer",
            ("peer",),
            registry=registry,
        )
        self._gossip = Counter(
            "shoal_compute_gossip", "Gossip by outcome", ("outcome",), registry=registry
        )

    def gossiped(self, outcome: GossipOutcome, times: int = 1) -> None:
        """Count an outcome of gossip."""
        self._gossip.labels(outcome).inc(times)

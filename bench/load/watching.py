"""What simulated clients did and when, from their data holder's own reports."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from bench.load.metering import Monotonic

_FAILURES = {
    "no list of jobs",
    "joins not sent",
    "no round",
    "round not believed",
    "envelopes not sent",
    "held not known",
}


@dataclass
class Span:
    """When something began and last went on, in seconds, and how much of it was done."""

    begun: float
    last: float
    done: int = 0

    @property
    def rate(self) -> float:
        """Return how much was done in a second; 0 if it took no time."""
        seconds = self.last - self.begun
        return self.done / seconds if seconds > 0 else 0.0


@dataclass
class Watch:
    """Takes a data holder's events. `joins` is by job, `uploads` by round and node."""

    monotonic: Monotonic
    joined_at: dict[str, float] = field(default_factory=dict)
    joins: dict[str, Span] = field(default_factory=dict)
    rounds: dict[str, float] = field(default_factory=dict)
    uploads: dict[str, dict[int, Span]] = field(default_factory=lambda: defaultdict(dict))
    refusals: dict[str, str] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)

    def __call__(self, event: str, /, **facts: object) -> None:
        """Note an event."""
        now = self.monotonic()
        match event, facts:
            case "job joined", {"job": str(job)}:
                self.joined_at[job] = now
            case "joins settled", {"job": str(job), "taken": int(done)}:
                span = self.joins.setdefault(job, Span(self.joined_at.get(job, now), now))
                span.last, span.done = now, span.done + done
            case "round taken", {"round": str(round_id)}:
                self.rounds[round_id] = now
            case "envelopes settled", {
                "round": str(round_id),
                "node": int(node),
                "acknowledged": int(acknowledged),
            }:
                nodes = self.uploads[round_id]
                span = nodes.setdefault(node, Span(self.rounds.get(round_id, now), now))
                span.last, span.done = now, span.done + acknowledged
            case "job refused", {"job": str(job), "reason": str(reason)}:
                self.refusals[job] = reason
            case _ if event in _FAILURES:
                self.failures[event] += 1

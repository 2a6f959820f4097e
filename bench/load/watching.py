"""What simulated clients did and when, from their data holder's own reports."""

from collections import Counter
from dataclasses import dataclass, field

from bench.load.metering import Monotonic

_FAILURES = {
    "no list of jobs",
    "join not sent",
    "no round",
    "round not believed",
    "envelope not sent",
    "held not known",
}


@dataclass
class Watch:
    """Takes a data holder's events. `rounds` says when each was taken."""

    monotonic: Monotonic
    rounds: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)

    def __call__(self, event: str, /, **facts: object) -> None:
        """Note an event."""
        now = self.monotonic()
        match event, facts:
            case "round taken", {"round": str(round_id)}:
                self.rounds[round_id] = now
            case "job refused", {"job": str(job), "reason": str(reason)}:
                self.refusals[job] = reason
            case _ if event in _FAILURES:
                self.failures[event] += 1

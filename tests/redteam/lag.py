"""Time that a planted weakness takes, by the timer of a simulated stage."""

from dataclasses import dataclass


@dataclass
class Lag:
    seconds: float = 0.0


LAG = Lag()

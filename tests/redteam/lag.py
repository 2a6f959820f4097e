"""Time that a planted weakness takes, by the timer of a simulated target."""

from dataclasses import dataclass


@dataclass
class Lag:
    seconds: float = 0.0


LAG = Lag()

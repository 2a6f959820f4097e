"""The rounds that are explored, and what is expected of each."""

from dataclasses import dataclass
from typing import Final

from tests.scenarios.model.faults import (
    FollowsBlindly,
    FreezesTwice,
    GivesUpLate,
    IgnoresAnswers,
    IgnoresEquivocation,
    IgnoresTheMinimum,
    NamesClientsOnly,
    SetBack,
    SumsEarly,
)
from tests.scenarios.model.machine import FAITHFUL, Faithful
from tests.scenarios.model.world import Answers, World

TWO_COHORTS: Final = "two cohorts are released"
LITTLE_NOISE: Final = "a cohort with too little noise is released"
SIGNED_TWICE: Final = "an honest node signs two documents of a kind"
TWO_ANSWERS: Final = "a client is summed with shares of two answers, or without a share"
UNACCOUNTED: Final = "a share is left out without a signed account"
SUMMED_AND_ABANDONED: Final = "a node abandons what it has summed"
RELEASED_AND_ABANDONED: Final = "a node abandons what is released"


@dataclass(frozen=True)
class Configuration:
    """A round to explore, with the invariants that it must break: none, for the product."""

    world: World
    fault: Faithful = FAITHFUL
    breaks: frozenset[str] = frozenset()

    def __str__(self) -> str:
        world = self.world
        who = "a liar" if world.liar else "no liar"
        if world.liar:
            who += f", {world.aggregator} aggregator"
        fault = "" if self.fault is FAITHFUL else f"; {self.fault.name}"
        answers = "".join(map(str, world.answers))
        return (
            f"M={world.nodes} t={world.threshold} N={world.clients} (answers {answers}, "
            f"minimum {world.minimum_cohort}), {who}{fault}"
        )


def _collusion(nodes: int, *, needed: int | None = None, answers: Answers = (1, 1, 1)) -> World:
    dropouts = len(answers) - 2
    return World(nodes, answers, dropouts, needed, liar=True, aggregator="colluding")


SMALL: Final = [
    Configuration(World(2, (1, 1), 0)),
    Configuration(World(2, (2, 1, 1), 1)),
    Configuration(World(3, (1, 1, 1), 1)),
    Configuration(World(3, (2, 1), 0)),
    Configuration(World(3, (1, 1), 0, 2)),
    Configuration(World(2, (1, 1, 1), 1, liar=True)),
    Configuration(World(3, (1, 1, 1), 1, liar=True)),
    Configuration(World(3, (1, 1), 0, 2, liar=True)),
    Configuration(World(3, (2, 1), 0, 2, liar=True)),
    Configuration(_collusion(2)),
    Configuration(_collusion(3)),
    Configuration(_collusion(3, answers=(2, 1, 1))),
    Configuration(_collusion(4, needed=3, answers=(1, 1))),
]

LARGE: Final = [
    Configuration(World(3, (2, 1, 1), 1)),
    Configuration(World(3, (1, 1, 1, 1), 2)),
    Configuration(World(4, (1, 1, 1), 1)),
    Configuration(World(3, (1, 1, 1, 1), 2, liar=True)),
    Configuration(World(4, (1, 1, 1), 1, liar=True)),
    Configuration(_collusion(3, answers=(1, 1, 1, 1))),
    Configuration(_collusion(4)),
    Configuration(World(3, (1, 1, 1), 1, 2)),
    Configuration(World(3, (2, 1), 0, 2)),
    Configuration(World(3, (1, 1, 1), 1, 2, liar=True)),
    Configuration(_collusion(4, needed=3, answers=(2, 1))),
    Configuration(_collusion(4, needed=3)),
    Configuration(World(4, (1, 1), 0, 3, liar=True)),
]

# Where 2 t = M + 1 one lying node and the aggregator are too many, as docs/model.md says.
LIMITS: Final = [Configuration(_collusion(3, needed=2), breaks=frozenset({TWO_COHORTS}))]

PLANTED: Final = [
    Configuration(
        _collusion(2),
        SetBack(),
        frozenset({TWO_COHORTS, SIGNED_TWICE, SUMMED_AND_ABANDONED, RELEASED_AND_ABANDONED}),
    ),
    Configuration(World(2, (1, 1, 1), 1), FreezesTwice(), frozenset({SIGNED_TWICE})),
    Configuration(
        World(2, (1, 1), 0),
        GivesUpLate(),
        frozenset({SUMMED_AND_ABANDONED, RELEASED_AND_ABANDONED}),
    ),
    Configuration(World(2, (2, 1), 0), IgnoresAnswers(), frozenset({TWO_ANSWERS, UNACCOUNTED})),
    Configuration(World(2, (1, 1, 1, 1), 1), IgnoresTheMinimum(), frozenset({LITTLE_NOISE})),
    Configuration(World(3, (1, 1), 0, 2), FollowsBlindly(), frozenset({TWO_ANSWERS})),
    Configuration(World(3, (2, 1), 0, 2, liar=True), NamesClientsOnly(), frozenset({TWO_ANSWERS})),
    # A node sums what it voted for, once, and t sums are needed: this takes nothing from safety,
    Configuration(_collusion(3), SumsEarly()),
    Configuration(_collusion(4, needed=3, answers=(1, 1)), SumsEarly()),
    # and neither does this: whoever lies can show each node one of two documents.
    Configuration(World(3, (1, 1, 1), 1, liar=True), IgnoresEquivocation()),
    Configuration(_collusion(4, needed=3, answers=(1, 1)), IgnoresEquivocation()),
]

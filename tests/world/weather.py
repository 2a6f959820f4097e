"""Random faults of all kinds for one job, from a seed; it knows when they strike, not what follows.

Seconds count from the job's submission.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.world.durable import Death, DurableSteps, When
from tests.world.federation import Federation
from tests.world.trust import SITES
from tests.world.wire import Fault, Rule

LONGEST_SECONDS = 4000.0  # two rounds are over by then
TICK_SECONDS, FIRST_TICKS = 20.0, 30  # the first of one second each
FEW = "clinic-c"  # a site of as many clients as may go missing
DEATHS = {
    Fault.RECEIVER_DIES_BEFORE,
    Fault.RECEIVER_DIES_AFTER,
    Fault.SENDER_DIES_BEFORE,
    Fault.SENDER_DIES_AFTER,
}
KINDS = {
    Fault.LOST: "messages lost",
    Fault.ANSWER_LOST: "answers lost",
    Fault.DUPLICATED: "messages repeated",
    Fault.LATE: "messages late, after others",
    Fault.HANGS: "messages taken up minutes later or never",
    Fault.SLOW: "answers minutes late",
    Fault.DRIPS: "answers byte by byte",
    **dict.fromkeys(DEATHS, "parties killed"),
}
_PATHS = ("/v1/rounds$", "/memberships", "/rounds/", "/shares", "/v1/gossip", "/ends")


@dataclass(frozen=True)
class Spell:
    """A fault that begins and ends: a rule of the wire's, or a party that is away."""

    begin: float
    seconds: float
    rule: Rule | None = None
    away: str | None = None

    def lasts(self, now: float) -> bool:
        return self.begin <= now < self.begin + self.seconds


@dataclass(frozen=True)
class Weather:
    """What befalls one job."""

    spells: tuple[Spell, ...]
    skews: dict[str, float]
    deaths: tuple[Death, ...]


def forecast(seed: str, services: Sequence[str], *, spare: int) -> Weather:
    """Draw a job's faults; up to `spare` Compute nodes go away for good."""
    random = Random(seed)
    parties = [*SITES, *services]
    nodes = [name for name in services if name.startswith("compute")]
    spells = [_storm(random, parties, services) for _ in range(random.randint(3, 9))]
    for _ in range(random.randint(0, 2)):  # partitions, of which some are both ways
        one, other = random.choice(parties), random.choice(services)
        begin, seconds = _begin(random), random.uniform(10, 400)
        both = [(one, other), (other, one)] if one in services and random.random() < 0.5 else []
        for sender, receiver in both or [(one, other)]:
            spells.append(Spell(begin, seconds, Rule(Fault.LOST, sender, receiver)))
    for _ in range(random.randint(0, 2)):
        begin, seconds = _begin(random), random.choice([30.0, 200.0, 600.0])
        spells.append(Spell(begin, seconds, away=random.choice(parties)))
    for name in random.sample(nodes, random.randint(0, spare)):
        spells.append(Spell(_begin(random), float("inf"), away=name))
    if random.random() < 0.5:  # rounds then last until their deadline
        spells.append(Spell(random.uniform(3, 30), float("inf"), away=FEW))
    deaths = [
        Death(random.choice(list(When)), random.choice(parties), None, random.randint(0, 8))
        for _ in range(random.randint(0, 3))
    ]
    skewed = random.sample(parties, random.randint(0, 4))
    skews = {name: random.uniform(-60.0, 60.0) for name in skewed}
    return Weather(tuple(spells), skews, tuple(deaths))


def _storm(random: Random, parties: Sequence[str], services: Sequence[str]) -> Spell:
    fault = random.choice([each for each in Fault if each in KINDS])  # nobody lies in a storm
    rule = Rule(
        fault,
        random.choice(parties) if random.random() < 0.3 else None,
        random.choice(services) if random.random() < 0.4 else None,
        random.choice(_PATHS) if random.random() < 0.3 else "",
        nth=tuple(random.sample(range(8), 2)) if fault in DEATHS else (),
        after=random.randint(0, 8),
        seconds=random.choice([30.0, 180.0, 1e9]) if fault is not Fault.DRIPS else 2.0,
        chance=random.uniform(0.1, 0.6),
        seed=random.randrange(2**32),
    )
    return Spell(_begin(random), random.uniform(30, 600), rule)


def _begin(random: Random) -> float:
    """Return when a fault begins: mostly in the first seconds, in which most happens."""
    return random.choice(
        [0.0, random.uniform(0, 10), random.uniform(0, 30), random.uniform(0, 900)]
    )


async def live_through(
    federation: Federation, weather: Weather, steps: DurableSteps, **changes: Any
) -> str:
    """Run a job in this weather until it is over, or long after; return the job."""
    job = await federation.submit(join_seconds=300, round_seconds=400, grace_seconds=600, **changes)
    began = federation.clock.now
    federation.clock.skew_seconds = dict(weather.skews)
    steps.plan += weather.deaths
    while (now := (federation.clock.now - began).total_seconds()) < LONGEST_SECONDS:
        lasting = [spell for spell in weather.spells if spell.lasts(now)]
        federation.wire.rules[:] = [spell.rule for spell in lasting if spell.rule is not None]
        federation.absent = {spell.away for spell in lasting if spell.away is not None}
        for name in federation.absent:
            if federation.is_up(name):
                await federation.crash(name)
        if "trainer" not in federation.absent and await federation.is_over(job):
            break
        await federation.step()
        federation.clock.move(1.0 if now < FIRST_TICKS else TICK_SECONDS)
    steps.plan.clear()
    federation.absent &= _gone(weather)
    return job


def _gone(weather: Weather) -> set[str]:
    return {spell.away for spell in weather.spells if spell.away and spell.seconds == float("inf")}


def faults_seen(federation: Federation, weather: Weather, steps: DurableSteps) -> Counter[str]:
    """Count the faults that came about, by kind; of a partition each message that it stopped."""
    kinds = Counter(
        KINDS[message.fault] for message in federation.wire.log if message.fault is not None
    )
    kinds["parties killed"] += steps.deaths + sum(
        spell.away is not None and spell.away not in _gone(weather) for spell in weather.spells
    )
    kinds["nodes lost for good"] += len(_gone(weather) - {FEW})
    kinds["sites that drop out"] += FEW in _gone(weather)
    kinds["clocks wrong by up to a minute"] += len(weather.skews)
    return kinds

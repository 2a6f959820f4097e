"""Rounds beyond the budget: together too many, given back though collected, never charged."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from shoal_protocol.privacy.accounting import Cost, compose
from shoal_protocol.wire.errors import BudgetExceeded, WrongCharge
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.forging import call_off, claimed_sum
from shoal_redteam.play import Play, begin, honest_spec
from shoal_redteam.stage import Stage

_LARGEST: Final = 0.6  # of a budget: two of them are too many
_SMALLEST: Final = 1e-6
_COLLECTED: Final = 1 / 400
_SECONDS: Final = 120.0  # nothing may end by itself before all is asked


@dataclass
class Filling:
    """Rounds that nobody answers, and that leave of every client's budget next to nothing."""

    stage: Stage
    played: list[Play] = field(default_factory=list)
    taken: dict[str, list[Cost]] = field(default_factory=dict)  # by node
    refusals: dict[str, str] = field(default_factory=dict)  # codes, by node

    async def until(self, smallest: float) -> None:
        """Announce rounds of half the price each time, until less than `smallest` can be left.

        Raises:
            CannotAttack: a service refuses one for another reason than the budget.
        """
        price, others = _LARGEST, set[str]()
        self.taken = {name: [] for name in self.stage.nodes}
        while price >= smallest / 2:
            spec = honest_spec(self.stage, price=price, seconds=_SECONDS)
            play = Play(self.stage, self.stage.sign(spec, self.stage.trainer))
            self.played.append(play)
            for name, answer in (await play.announce()).items():
                if answer.is_refusal:
                    self.refusals[name] = answer.code
                    others |= {answer.code} - {BudgetExceeded.code}
                elif name in self.taken:
                    self.taken[name].append(spec.cost)
            price /= 2
        if others:
            await self.end()
            raise CannotAttack(f"refused for another reason: {', '.join(sorted(others))}")

    async def end(self) -> None:
        """Call all of them off: nobody answered, so they cost nobody anything."""
        for play in self.played:
            if await play.phase(self.stage.aggregator) == "announced":
                await call_off(play)
        for play in self.played:
            await play.until_over()


class BeyondTheCap(Attack):
    """The trainer hides rounds from its own ledger, and asks the same clients again and again."""

    name = "budget"
    liar = "the trainer, with a ledger that it forgot"
    tries = "rounds over the same clients that together cost more than the cap, by ever less"
    stopped_by = "budget-exceeded at every Compute node, by its own ledger"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Announce rounds of 60 % of a budget, and of half of that, down to a millionth."""
        cap, filling = stage.consortium.manifest.policy.cap, Filling(stage)
        await filling.until(_SMALLEST)
        await filling.end()
        taken = filling.taken
        yield seen(
            f"rounds that cost from {_LARGEST:.0%} of every client's budget down to a millionth",
            stopped=taken.keys() == filling.refusals.keys()
            and all(cap.allows(compose(costs)) for costs in taken.values()),
            answered=f"nodes took {', '.join(str(len(each)) for each in taken.values())} of "
            f"{len(filling.played)}; {len(filling.refusals)} refused: {BudgetExceeded.code}",
            check="each node's own ledger of what every client was charged",
        )


class AbandonedCollection(Attack):
    """The nodes collect shares, somebody ends the round, and its charge comes back."""

    name = "collect-then-abandon"
    liar = "the trainer, in league with a Compute node that ends rounds"
    tries = "a round that was abandoned once shares were taken, and one beyond the cap after it"
    stopped_by = "budget-exceeded: what was collected stays charged, whatever became of it"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Fill the budget beside a round in progress, end that one, and ask for half its price."""
        play = await begin(stage, price=_COLLECTED, seconds=_SECONDS)
        await play.answer(play.clients[:1])
        filling = Filling(stage)
        await filling.until(_COLLECTED / 8)
        if set(filling.refusals) != set(stage.nodes):
            await filling.end()
            raise CannotAttack("the budget cannot be filled")
        await call_off(play)
        await play.until_over()
        spec = honest_spec(stage, price=_COLLECTED / 2, seconds=_SECONDS)
        again = Play(stage, stage.sign(spec, stage.trainer))
        filling.played.append(again)
        answers = await again.announce(stage.nodes)
        await again.announce([stage.aggregator])  # who ends it, if a node took it
        await filling.end()
        yield refused(
            "a round of half the price of one that was abandoned after an answer, in a full budget",
            answers,
            by={BudgetExceeded.code},
            check="a charge comes back only if no share was taken",
        )


class Uncharged(Attack):
    """A node releases sums that it never charged to anybody, or charged to less."""

    name = "uncharged"
    liar = "a Compute node that forgets its ledger"
    tries = "a partial sum without the round's charge: of another round, cheaper, of another ledger"
    stopped_by = "wrong-charge: every partial sum carries its node's own entry for the round"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Offer the aggregator partial sums with other charges than the round's."""
        play, other = await begin(stage), await begin(stage)
        liar, another = stage.nodes[-1], stage.nodes[0]
        values = np.frombuffer(stage.random_bytes(8 * play.spec.dimension), np.uint64)
        honest = claimed_sum(play, liar, play.clients, values)
        entry = honest.charge
        lies: dict[str, dict[str, Any]] = {
            "the charge of another round": {"round": other.signed.digest},
            "a charge of half the price": {"mu": entry.mu / 2},
            "a charge to a client less": {"clients": entry.clients - 1},
            "a charge that it gave back": {"kind": "return"},
            "another node's charge": {"ledger": another},
        }
        for tried, lie in lies.items():
            body = honest.model_copy(update={"charge": entry.model_copy(update=lie)})
            content = stage.sign(body, liar).encode()
            answer = await stage.send(stage.aggregator, f"{play.path}/partial-sums", content)
            yield refused(
                tried,
                {stage.aggregator: answer},
                by={WrongCharge.code},
                check="the entry must be what the spec costs its population",
            )
        await call_off(other)
        await play.answer(play.clients)
        yield seen(
            "the total of that round",
            stopped=await play.released_exactly(play.clients)
            and [each.body.node for each in await play.partial_sums()] == list(stage.nodes),
            answered=f"{stage.aggregator}: the sum of the answers, from the nodes' own sums",
            check="none of these sums was kept",
        )


ATTACKS = (BeyondTheCap, AbandonedCollection, Uncharged)

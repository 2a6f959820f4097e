"""Rounds beyond the budget: together too many, given back though collected, never charged."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from shoal_kit.outcome import ACCEPTED
from shoal_protocol.privacy.accounting import Cost, compose
from shoal_protocol.wire.service_errors import BudgetExceeded, WrongCharge
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.forging import call_off, claimed_sum
from shoal_redteam.played_round import PlayedRound, begin, honest_spec
from shoal_redteam.target import Target

_LARGEST: Final = 0.6  # of a budget: two of them are too many
_SMALLEST: Final = 1e-6
_COLLECTED: Final = 1 / 400
_SECONDS: Final = 120.0  # nothing may end by itself before all is asked


@dataclass
class Filling:
    """Rounds that nobody answers, and that leave of every client's budget next to nothing."""

    target: Target
    played: list[PlayedRound] = field(default_factory=list)
    taken: dict[str, list[Cost]] = field(default_factory=dict)  # by node
    refusals: dict[str, str] = field(default_factory=dict)  # codes, by node

    async def until(self, smallest: float) -> None:
        """Announce rounds of half the price each time, until less than `smallest` can be left.

        Raises:
            CannotAttack: a service refuses one for another reason than the budget.
        """
        price, others = _LARGEST, set[str]()
        self.taken = {name: [] for name in self.target.nodes}
        while price >= smallest / 2:
            spec = honest_spec(self.target, price=price, seconds=_SECONDS)
            played = PlayedRound(self.target, self.target.sign(spec, self.target.trainer))
            self.played.append(played)
            for name, answer in (await played.announce()).items():
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
        for played in self.played:
            shown = await self.target.ask(self.target.aggregator, f"{played.path}/outcome")
            if shown.status == ACCEPTED:
                await call_off(played)
        for played in self.played:
            await played.until_over()


class BeyondTheCap(Attack):
    """The trainer hides rounds from its own ledger, and asks the same clients again and again."""

    name = "budget"
    liar = "the trainer, with a ledger that it forgot"
    tries = "rounds over the same clients that together cost more than the cap, by ever less"
    stopped_by = "budget-exceeded at every Compute node, by its own ledger"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Announce rounds of 60 % of a budget, and of half of that, down to a millionth."""
        cap, filling = target.consortium.manifest.policy.cap, Filling(target)
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

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Fill the budget beside a round in progress, end that one, and ask for half its price."""
        played = await begin(target, price=_COLLECTED, seconds=_SECONDS)
        await played.answer(played.clients[:1])
        filling = Filling(target)
        await filling.until(_COLLECTED / 8)
        if set(filling.refusals) != set(target.nodes):
            await filling.end()
            raise CannotAttack("the budget cannot be filled")
        await call_off(played)
        await played.until_over()
        spec = honest_spec(target, price=_COLLECTED / 2, seconds=_SECONDS)
        again = PlayedRound(target, target.sign(spec, target.trainer))
        filling.played.append(again)
        answers = await again.announce(target.nodes)
        await again.announce([target.aggregator])  # who ends it, if a node took it
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
    liar = "a Compute node that forgets its charges"
    tries = "a partial sum of a round that was charged later, or after more rounds than there were"
    stopped_by = "wrong-charge: every partial sum names the place of the round's charge before it"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Offer the aggregator partial sums with charges that cannot be the round's."""
        played, liar = await begin(target), target.nodes[-1]
        values = np.frombuffer(target.random_bytes(8 * played.spec.dimension), np.uint64)
        honest = claimed_sum(played, liar, played.clients, values)
        entry = honest.charge
        lies: dict[str, dict[str, Any]] = {
            "a charge behind the sum": {"entry": honest.entry},
            "a charge of a later round of the job": {"job_rounds": entry.job_rounds + 1},
        }
        for tried, lie in lies.items():
            body = honest.model_copy(update={"charge": entry.model_copy(update=lie)})
            content = target.sign(body, liar).encode()
            answer = await target.send(target.aggregator, f"{played.path}/ends", content)
            yield refused(
                tried,
                {target.aggregator: answer},
                by={WrongCharge.code},
                check="the charge comes first, and counts the job's rounds",
            )
        await played.answer(played.clients)
        yield seen(
            "the total of that round",
            stopped=await played.released_exactly(played.clients)
            and [each.body.node for each in await played.partial_sums()] == list(target.nodes),
            answered=f"{target.aggregator}: the sum of the answers, from the nodes' own sums",
            check="none of these sums was kept",
        )

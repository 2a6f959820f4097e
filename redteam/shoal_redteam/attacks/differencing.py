"""Two sums whose difference tells of one client: from two rounds, or two cohorts of one round."""

from collections.abc import AsyncIterator

import numpy as np

from shoal_protocol.privacy.accounting import compose
from shoal_protocol.privacy.ledger import LedgerEntry
from shoal_protocol.privacy.ledger_checks import contradictions
from shoal_protocol.sharing.received import parse
from shoal_protocol.wire.encoding import Uint64Vector
from shoal_protocol.wire.errors import ConflictingDocument
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.forging import claimed_sum
from shoal_redteam.play import SHORT_SECONDS, Play, begin, honest_spec
from shoal_redteam.stage import Stage


class TwoRounds(Attack):
    """Two rounds over populations that differ by one client."""

    name = "differencing-two-rounds"
    liar = "the trainer"
    tries = "the same question of one job twice, the second time without one client"
    stopped_by = "not forbidden but priced: both rounds are charged, to whoever is in both, twice"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Release both rounds, and look for their charges in every node's ledger."""
        first = honest_spec(stage, clients=[*stage.crew, stage.outsiders[0]])
        plays = [await begin(stage, first)]
        plays.append(await begin(stage, job=first.job, number=1))
        entries: list[LedgerEntry] = []
        for play in plays:
            await play.answer(play.clients)
            if not await play.released_exactly(play.clients):
                raise CannotAttack("an honest round was not released")
            entries += [each.body.charge for each in await play.partial_sums()]
        costs = [play.spec.cost for play in plays]
        charged = {
            name: [(each.round, each.mu) for each in entries if each.ledger == name]
            for name in stage.nodes
        }
        due = [(play.signed.digest, play.spec.mu) for play in plays]
        together = compose(costs).mu
        yield seen(
            "two rounds over populations that differ by one client",
            stopped=all(found == due for found in charged.values())
            and not list(contradictions(entries)),
            answered=f"{len(charged)} nodes: two charges each, mu {costs[0].mu:.3g} and "
            f"{costs[1].mu:.3g}; together {together:.3g}",
            check="two rounds compose: both are charged against the cap, with fresh noise in each",
        )


class TwoCohorts(Attack):
    """Two sums of one round, over cohorts that differ by one client."""

    name = "differencing-two-cohorts"
    liar = "a Compute node, in league with a client"
    tries = "a sum without one client beside the round's own, and a client that answers some nodes"
    stopped_by = "conflicting-document; a cohort is what all nodes hold, and a node sums up once"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Sum up a second time what a node really holds, without one client."""
        play, node = await begin(stage), stage.nodes[-1]
        await play.answer(play.clients)
        before = await play.outcome()
        fewer = play.clients[:-1]
        # a true sum of true shares: nothing but its being the second one is wrong with it
        sums = {name: node_sum(play, index, fewer) for index, name in enumerate(stage.nodes)}
        for name in stage.nodes:
            body = claimed_sum(play, name, fewer, sums[name])
            content = stage.sign(body, name).encode()
            answer = await stage.send(stage.aggregator, f"{play.path}/partial-sums", content)
            yield refused(
                f"{name}'s true sum over a cohort without one client",
                {stage.aggregator: answer},
                by={ConflictingDocument.code},
                check="a node's first sum of a round is its only one",
            )
        yield seen(
            "the result after that",
            stopped=(await play.outcome()).encode() == before.encode(),
            answered=f"{stage.aggregator}: the same to the byte",
            check="a round has one result",
        )
        yield await self._partly_answered(stage, node)

    async def _partly_answered(self, stage: Stage, node: str) -> Finding:
        play = await begin(stage, seconds=SHORT_SECONDS)
        *others, partly = play.clients
        await play.answer(others)
        lie = play.contribution(partly)
        for index in range(len(stage.nodes) - 1):
            await play.upload(index, lie.envelopes[index])
        return seen(
            "a client that answers all nodes but one",
            stopped=await play.released_exactly(others),
            answered=f"{stage.aggregator}: one total, over those who answered all",
            check="the cohort is the clients whom all nodes hold, by one vote of each node",
        )


def node_sum(play: Play, index: int, clients: list[int]) -> Uint64Vector:
    """Return what a node's shares of these clients add up to, shape (d,)."""
    party = play.stage.keys.parties[play.stage.nodes[index]]
    if party.box_private_key is None:
        raise CannotAttack(f"{party.name} has no box key")
    private, public = bytes(party.box_private_key), bytes(party.box_private_key.public_key)
    shares = [parse(play.sent[each].envelopes[index]).open(private, public) for each in clients]
    return np.asarray(play.spec.sharing.add(shares, play.spec.dimension))


ATTACKS = (TwoRounds, TwoCohorts)

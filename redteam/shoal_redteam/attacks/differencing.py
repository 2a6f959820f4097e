"""Two sums whose difference tells of one client: from two rounds, or two cohorts of one round."""

from collections.abc import AsyncIterator
from functools import partial, reduce

from shoal_protocol.privacy.accounting import compose
from shoal_protocol.rounds.attestations import PartialSum
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.received import parse
from shoal_protocol.wire.encoding import Uint64Vector
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_redteam.attack import Attack
from shoal_redteam.findings import CannotAttack, Finding, refused, seen
from shoal_redteam.forging import claimed_sum
from shoal_redteam.played_round import SHORT_SECONDS, PlayedRound, begin, honest_spec
from shoal_redteam.target import Target


class TwoRounds(Attack):
    """Two rounds over populations that differ by one client."""

    name = "differencing-two-rounds"
    liar = "the trainer"
    tries = "the same question of one job twice, the second time without one client"
    stopped_by = "not forbidden but priced: both rounds are charged, to whoever is in both, twice"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Release both rounds, and look for their charges in every node's journal."""
        first = honest_spec(target, clients=[*target.crew, target.outsiders[0]])
        plays = [await begin(target, first)]
        plays.append(await begin(target, job=first.job, number=1))
        sums: list[PartialSum] = []
        for played in plays:
            await played.answer(played.clients)
            if not await played.released_exactly(played.clients):
                raise CannotAttack("an honest round was not released")
            sums += [each.body for each in await played.partial_sums()]
        costs = [played.spec.cost for played in plays]
        charged = {
            name: [(each.round, each.charge.job_rounds) for each in sums if each.node == name]
            for name in target.nodes
        }
        due = [(played.signed.digest, count) for count, played in enumerate(plays, 1)]
        places = {each.charge.entry.order for each in sums if each.node == target.nodes[0]}
        together = compose(costs).mu
        yield seen(
            "two rounds over populations that differ by one client",
            stopped=all(found == due for found in charged.values()) and len(places) == len(plays),
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

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Sum up a second time what a node really holds, without one client."""
        played, node = await begin(target), target.nodes[-1]
        await played.answer(played.clients)
        before = await played.outcome()
        fewer = played.clients[:-1]
        # a true sum of true shares: nothing but its being the second one is wrong with it
        sums = {name: node_sum(played, index, fewer) for index, name in enumerate(target.nodes)}
        for name in target.nodes:
            body = claimed_sum(played, name, fewer, sums[name])
            content = target.sign(body, name).encode()
            answer = await target.send(target.aggregator, f"{played.path}/ends", content)
            yield refused(
                f"{name}'s true sum over a cohort without one client",
                {target.aggregator: answer},
                by={ConflictingDocument.code},
                check="a node's first sum of a round is its only one",
            )
        yield seen(
            "the result after that",
            stopped=(await played.outcome()).encode() == before.encode(),
            answered=f"{target.aggregator}: the same to the byte",
            check="a round has one result",
        )
        yield await self._partly_answered(target, node)

    async def _partly_answered(self, target: Target, node: str) -> Finding:
        played = await begin(target, seconds=SHORT_SECONDS)
        *others, partly = played.clients
        await played.answer(others)
        lie = played.contribution(partly)
        for index in range(len(target.nodes) - 1):
            await played.upload(index, lie.envelopes[index])
        return seen(
            "a client that answers all nodes but one",
            stopped=await played.released_exactly(others),
            answered=f"{target.aggregator}: one total, over those who answered all",
            check="the cohort is the clients whom all nodes hold, by one vote of each node",
        )


def node_sum(played: PlayedRound, index: int, clients: list[int]) -> Uint64Vector:
    """Return what a node's shares of these clients add up to, shape (d,)."""
    party = played.target.keys.parties[played.target.nodes[index]]
    if party.box_private_key is None:
        raise CannotAttack(f"{party.name} has no box key")
    private, public = bytes(party.box_private_key), bytes(party.box_private_key.public_key)
    shares = [parse(played.sent[each].envelopes[index]).open(private, public) for each in clients]
    sharing, dimension = played.spec.sharing, played.spec.dimension
    vectors = (summation.add_packed(sharing, each.kind, each.payload, dimension) for each in shares)
    return reduce(partial(summation.plus, sharing), vectors)

"""Compute nodes that say two things: two holdings, two votes, sums over another cohort.

Each node's own process is up and honest; the attacker has its key and speaks beside it.
"""

from collections.abc import AsyncIterator, Sequence

import numpy as np
from pyroaring import BitMap

from shoal_protocol.rounds.attestations import TAG_BYTES, Abandonment, Held, Holdings, Vote
from shoal_protocol.wire.errors import ConflictingDocument
from shoal_redteam.attack import Attack
from shoal_redteam.findings import Finding, refused, seen
from shoal_redteam.forging import claimed_sum, tell_node
from shoal_redteam.play import Play, begin
from shoal_redteam.stage import Stage

_GRACE_SECONDS = 5.0  # nobody comes to an agreement, so each round lasts until it is given up


class Equivocation(Attack):
    """A node wants a second cohort of one round, for the difference of two sums."""

    name = "equivocating-node"
    liar = "a Compute node"
    tries = "two holdings, two votes, a sum over another cohort, a second sum, another's name"
    stopped_by = "one document of a kind for each node; misconduct ends the round"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Play each lie in a round of its own."""
        liar = stage.nodes[-1]
        for witness in stage.nodes[:-1]:
            play = await begin(stage, grace=_GRACE_SECONDS)
            holdings = [made_up_holdings(play, liar) for _ in range(2)]
            yield await self._says(play, witness, "two holdings", holdings)
            play = await begin(stage, grace=_GRACE_SECONDS)
            votes = [vote_for(play, liar, play.clients[:-out]) for out in (1, 2)]
            yield await self._says(play, witness, "two votes, for two cohorts", votes)
        yield await self._sums_over_another_cohort(stage, liar)
        yield await self._sums_twice(stage, liar)
        yield await self._speaks_for_another(stage, liar)

    async def _says(
        self, play: Play, witness: str, tried: str, bodies: Sequence[Holdings | Vote]
    ) -> Finding:
        """Tell one node both at once, before the liar's own process could say anything."""
        stage = play.stage
        lies = [stage.sign(body, body.node) for body in bodies]
        await tell_node(stage, witness, *lies)
        outcome = await play.outcome()
        await play.until_over()
        reason, shown = await play.reason(witness), await play.documents(witness)
        kept = all(lie.to_json() in shown for lie in lies)
        return seen(
            f"{tried}, told to {witness}",
            stopped=reason == "misconduct" and kept and isinstance(outcome.body, Abandonment),
            answered=f"{witness}: {reason}; both documents are {'' if kept else 'not '}shown",
            check="whoever sees both abandons the round, and shows both",
        )

    async def _sums_over_another_cohort(self, stage: Stage, liar: str) -> Finding:
        play = await begin(stage, grace=_GRACE_SECONDS)
        values = np.frombuffer(stage.random_bytes(8 * play.spec.dimension), np.uint64)
        lie = claimed_sum(play, liar, play.clients[:-1], values)
        path = f"{play.path}/partial-sums"
        await stage.send(stage.aggregator, path, stage.sign(lie, liar).encode())
        await play.answer(play.clients)
        outcome = await play.outcome()
        honest = isinstance(outcome.body, Abandonment) or play.is_exactly(outcome, play.clients)
        return seen(
            "a partial sum over another cohort than it voted for",
            stopped=honest,
            answered=f"{stage.aggregator}: {outcome.body.kind} of the round",
            check="sums over different cohorts are never added; both are kept as evidence",
        )

    async def _sums_twice(self, stage: Stage, liar: str) -> Finding:
        play = await begin(stage)
        await play.answer(play.clients)
        before = await play.outcome()
        values = np.frombuffer(stage.random_bytes(8 * play.spec.dimension), np.uint64)
        lie = stage.sign(claimed_sum(play, liar, play.clients, values), liar)
        answer = await stage.send(stage.aggregator, f"{play.path}/partial-sums", lie.encode())
        return refused(
            "a second, different partial sum after the result",
            {stage.aggregator: answer},
            by={ConflictingDocument.code},
            check="one partial sum of a node for each round",
        ).provided(
            (await play.outcome()).encode() == before.encode(), "the result is another one now"
        )

    async def _speaks_for_another(self, stage: Stage, liar: str) -> Finding:
        play, (victim, witness) = await begin(stage), stage.nodes[:2]
        lie = stage.sign(vote_for(play, victim, play.clients[:-1]), liar)
        await tell_node(stage, witness, lie)
        await play.answer(play.clients)
        exact = await play.released_exactly(play.clients)
        kept = lie.to_json() in await play.documents(witness)
        return seen(
            "a vote in another node's name",
            stopped=exact and not kept,
            answered=f"{witness}: left it out; the total is over those who answered",
            check="a document speaks for its signer only",
        )


def made_up_holdings(play: Play, node: str) -> Holdings:
    """Return holdings of all clients, with answers that nobody gave."""
    population = BitMap(play.clients)
    held = Held(population, play.stage.random_bytes(TAG_BYTES * len(population)))
    digest = play.signed.digest
    manifest = play.spec.manifest
    return Holdings.attest(held, population, manifest=manifest, round_id=digest, node=node)


def vote_for(play: Play, node: str, cohort: Sequence[int]) -> Vote:
    """Return a vote for any cohort."""
    return Vote(
        manifest=play.spec.manifest,
        round=play.signed.digest,
        node=node,
        holders=play.spec.compute_nodes,
        cohort=play.cohort_digest(cohort),
        cohort_size=len(cohort),
    )


ATTACKS = (Equivocation,)

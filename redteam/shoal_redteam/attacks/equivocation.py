"""Compute nodes that say two things: two holdings, two votes, sums over another cohort.

Each node's own process is up and honest; the attacker has its key and speaks beside it.
"""

from collections.abc import AsyncIterator, Sequence

import numpy as np
from pyroaring import BitMap

from shoal_protocol.rounds.attestations import TAG_BYTES, Abandonment, Holdings, StoredAnswers, Vote
from shoal_protocol.wire.service_errors import ConflictingDocument
from shoal_redteam.attack import Attack
from shoal_redteam.findings import Finding, refused, seen
from shoal_redteam.forging import PLACE, claimed_sum, tell_node
from shoal_redteam.played_round import PlayedRound, begin
from shoal_redteam.target import Target

_GRACE_SECONDS = 5.0  # nobody comes to an agreement, so each round lasts until it is given up


class Equivocation(Attack):
    """A node wants a second cohort of one round, for the difference of two sums."""

    name = "equivocating-node"
    liar = "a Compute node"
    tries = "two holdings, two votes, a sum over another cohort, a second sum, another's name"
    stopped_by = "one document of a kind for each node; misconduct ends the round"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Play each lie in a round of its own."""
        liar = target.nodes[-1]
        for witness in target.nodes[:-1]:
            played = await begin(target, grace=_GRACE_SECONDS)
            holdings = [made_up_holdings(played, liar) for _ in range(2)]
            yield await self._says(played, witness, "two holdings", holdings)
            played = await begin(target, grace=_GRACE_SECONDS)
            votes = [vote_for(played, liar, played.clients[:-out]) for out in (1, 2)]
            yield await self._says(played, witness, "two votes, for two cohorts", votes)
        yield await self._sums_over_another_cohort(target, liar)
        yield await self._sums_twice(target, liar)
        yield await self._speaks_for_another(target, liar)

    async def _says(
        self, played: PlayedRound, witness: str, tried: str, bodies: Sequence[Holdings | Vote]
    ) -> Finding:
        """Tell one node both at once, before the liar's own process could say anything."""
        target = played.target
        lies = [target.sign(body, body.node) for body in bodies]
        await tell_node(target, witness, *lies)
        outcome = await played.outcome()
        await played.until_over()
        reason, shown = await played.reason(witness), await played.documents(witness)
        kept = all(lie.to_json() in shown for lie in lies)
        return seen(
            f"{tried}, told to {witness}",
            stopped=reason == "misconduct" and kept and isinstance(outcome.body, Abandonment),
            answered=f"{witness}: {reason}; both documents are {'' if kept else 'not '}shown",
            check="whoever sees both abandons the round, and shows both",
        )

    async def _sums_over_another_cohort(self, target: Target, liar: str) -> Finding:
        played = await begin(target, grace=_GRACE_SECONDS)
        values = np.frombuffer(target.random_bytes(8 * played.spec.dimension), np.uint64)
        lie = claimed_sum(played, liar, played.clients[:-1], values)
        path = f"{played.path}/ends"
        await target.send(target.aggregator, path, target.sign(lie, liar).encode())
        await played.answer(played.clients)
        outcome = await played.outcome()
        honest = isinstance(outcome.body, Abandonment) or played.is_exactly(outcome, played.clients)
        return seen(
            "a partial sum over another cohort than it voted for",
            stopped=honest,
            answered=f"{target.aggregator}: {outcome.body.kind} of the round",
            check="sums over different cohorts are never added; both are kept as evidence",
        )

    async def _sums_twice(self, target: Target, liar: str) -> Finding:
        played = await begin(target)
        await played.answer(played.clients)
        before = await played.outcome()
        values = np.frombuffer(target.random_bytes(8 * played.spec.dimension), np.uint64)
        lie = target.sign(claimed_sum(played, liar, played.clients, values), liar)
        answer = await target.send(target.aggregator, f"{played.path}/ends", lie.encode())
        return refused(
            "a second, different partial sum after the result",
            {target.aggregator: answer},
            by={ConflictingDocument.code},
            check="one partial sum of a node for each round",
        ).provided(
            (await played.outcome()).encode() == before.encode(), "the result is another one now"
        )

    async def _speaks_for_another(self, target: Target, liar: str) -> Finding:
        played, (victim, witness) = await begin(target), target.nodes[:2]
        lie = target.sign(vote_for(played, victim, played.clients[:-1]), liar)
        await tell_node(target, witness, lie)
        await played.answer(played.clients)
        exact = await played.released_exactly(played.clients)
        kept = lie.to_json() in await played.documents(witness)
        return seen(
            "a vote in another node's name",
            stopped=exact and not kept,
            answered=f"{witness}: left it out; the total is over those who answered",
            check="a document speaks for its signer only",
        )


def made_up_holdings(played: PlayedRound, node: str) -> Holdings:
    """Return holdings of all data holders, with answers that nobody gave."""
    asked = BitMap(map(played.target.holder, played.clients))
    held = StoredAnswers(asked, played.target.random_bytes(TAG_BYTES * len(asked)))
    digest = played.signed.digest
    manifest = played.spec.manifest
    return Holdings.attest(held, asked, manifest=manifest, round_id=digest, node=node, entry=PLACE)


def vote_for(played: PlayedRound, node: str, cohort: Sequence[int]) -> Vote:
    """Return a vote for any cohort."""
    return Vote(
        manifest=played.spec.manifest,
        round=played.signed.digest,
        node=node,
        nodes=played.spec.compute_nodes,
        cohort=played.cohort_digest(cohort),
        cohort_size=len(cohort),
        entry=PLACE,
    )

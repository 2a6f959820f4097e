"""Whose records counted in hidden rounds, by what Compute nodes see; and whether coins are fair."""

from collections.abc import AsyncIterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal_client.contribution import encoded
from shoal_protocol.encoding import Int64Vector, Uint64Vector
from shoal_protocol.envelope import parse
from shoal_protocol.mechanisms import NoisePart
from shoal_protocol.rounds import RoundSpec
from shoal_redteam.attack import Attack
from shoal_redteam.chance import FALSE_ALARM, larger_of, p_value
from shoal_redteam.findings import (
    THREAT_MODEL,
    CannotAttack,
    Finding,
    documented,
    not_carried_out,
    seen,
)
from shoal_redteam.many_rounds import Hidden, are_allowed, job_of, not_joined, task_of
from shoal_redteam.stage import Stage
from shoal_redteam.trap import victim

_ROUNDS: Final = 12
_RATE: Final = 0.5  # so that a coin is one of those that `chance` knows
_RECORD: Final = 1.0
_SECONDS: Final = 300.0


class WhoTookPart(Attack):
    """A Compute node, or all but one, name the clients whose records counted."""

    name = "who-took-part"
    liar = "a Compute node, up to all but one in league; a data holder's own program"
    tries = "to tell from shares and sizes whose records counted; coins that are no coins"
    stopped_by = "fewer shares than all say nothing, and coins are fresh and fair: tests at 10⁻⁶"

    async def run(self, stage: Stage) -> AsyncIterator[Finding]:
        """Have a data holder answer hidden rounds without noise, so that all coins are known."""
        job = job_of(stage, task_of(rounds=_ROUNDS, rate=_RATE), population=len(stage.crew))
        if not are_allowed(stage):
            yield await not_joined(stage, job)
            return
        whole = job.body.privacy.cost
        rounds = Hidden(stage, whole, rate=_RATE, rounds=_ROUNDS, seconds=_SECONDS)
        specs = [rounds.first()]
        specs += [rounds.later(specs[0], number) for number in range(1, _ROUNDS)]
        answers: list[_Opened] = []
        async with victim(
            stage, rounds.job, clients=len(stage.crew), noise=_no_noise, value=_RECORD
        ) as prey:
            for spec in specs:
                if not await prey.shown(spec, steps=8):
                    raise CannotAttack(f"the data holder does not answer: {prey.refusal}")
                answers.append(_Opened(stage, spec, prey.trap.envelopes[spec.digest]))
        coins = np.array([each.coins for each in answers])  # (rounds, clients)
        for left_out in range(len(stage.nodes)):
            yield self._shares(stage, answers, coins, left_out)
        yield self._sizes(answers, coins)
        yield self._fair("coins that say yes", int(coins.sum()), coins.size)
        same = [int((one == other).sum()) for one, other in zip(coins[1:], coins, strict=False)]
        yield self._fair("coins like the same client's last one", sum(same), coins[1:].size)
        pairs = coins.T
        alike = [int((one == other).sum()) for one, other in zip(pairs[1:], pairs, strict=False)]
        yield self._fair("coins like the neighbour's", sum(alike), pairs[1:].size)
        yield documented(
            "all Compute nodes together open an answer",
            answered=f"{len(stage.nodes)} nodes: zeros or a record, under that client's noise",
            where=f"{THREAT_MODEL}, Who learns what",
        )

    def _shares(
        self, stage: Stage, answers: Sequence["_Opened"], coins: NDArray[np.int64], left_out: int
    ) -> Finding:
        """Compare what all nodes but one hold of who counted and of who did not."""
        which = f"what all Compute nodes but {stage.nodes[left_out]} hold, against the coins"
        sizes = np.array([each.sizes(left_out) for each in answers])
        pairs = list(zip(sizes[coins == 1], sizes[coins == 0], strict=False))
        agree, of = larger_of(pairs)
        if p_value(of, of) >= FALSE_ALARM:
            return not_carried_out(which, "too few coins of either kind")
        chance = p_value(agree, of)
        return seen(
            which,
            stopped=chance >= FALSE_ALARM,
            answered=f"larger in {agree} of {of} pairs of one that counted and one that did not",
            check=f"p = {chance:.2g}; a coincidence is called a leak with {FALSE_ALARM:g}",
        )

    def _sizes(self, answers: Sequence["_Opened"], coins: NDArray[np.int64]) -> Finding:
        lengths = set[tuple[int, int, int]]().union(*(each.lengths for each in answers))
        return seen(
            "how long an envelope is",
            stopped=len(lengths) == coins.shape[1] * answers[0].nodes,
            answered=f"a data holder: {len(lengths)} lengths of {coins.shape[1]} clients at "
            f"{answers[0].nodes} nodes, in {len(answers)} rounds",
            check="a share has one length for ever, whatever is in it",
        )

    def _fair(self, what: str, agree: int, of: int) -> Finding:
        chance = p_value(agree, of)
        return seen(
            what,
            stopped=chance >= FALSE_ALARM,
            answered=f"a data holder: {agree} of {of}",
            check=f"p = {chance:.2g}; a fair coin fails with {FALSE_ALARM:g}",
        )


class _Opened:
    """One round's answers of the crew, opened: what each Compute node holds of each client."""

    def __init__(self, stage: Stage, spec: RoundSpec, envelopes: Sequence[bytes]) -> None:
        """Open them.

        Raises:
            CannotAttack: a node has no box key, or there is not one answer of each client.
        """
        count = len(spec.compute_nodes)
        self.shares: dict[int, dict[int, Uint64Vector]] = {each: {} for each in stage.crew}
        self.lengths: set[tuple[int, int, int]] = set()  # by node and client
        self.nodes = count
        for content in envelopes:
            each = parse(content)
            node, client = each.header.node, each.header.client
            private = stage.keys.parties[spec.compute_nodes[node]].box_private_key
            if private is None or client not in self.shares:
                raise CannotAttack("the answers cannot be opened")
            share = each.open(bytes(private), bytes(private.public_key))
            self.shares[client][node] = spec.sharing.add([share], spec.dimension)
            self.lengths.add((node, client, len(content)))
        if any(len(of_one) < count for of_one in self.shares.values()):
            raise CannotAttack("not every client has answered every node")
        sent = [
            spec.sharing.decode(np.sum(list(of_one.values()), axis=0, dtype=np.uint64))
            for of_one in self.shares.values()
        ]
        record = encoded(spec.query, np.full((1, len(spec.query.column_names)), _RECORD))
        self.coins = [int(np.array_equal(each, record)) for each in sent]
        if not all(coin or not each.any() for coin, each in zip(self.coins, sent, strict=True)):
            raise CannotAttack("an answer is neither a record nor zeros")

    def sizes(self, left_out: int) -> list[float]:
        """Return of each client how far from 0 the sum of all nodes' shares but one's is."""
        return [
            float(
                np.abs(
                    np.sum(
                        [share for node, share in of_one.items() if node != left_out],
                        axis=0,
                        dtype=np.uint64,
                    )
                    .view(np.int64)
                    .astype(np.float64)
                ).max()
            )
            for of_one in self.shares.values()
        ]


def _no_noise(part: NoisePart, count: int) -> Int64Vector:
    """Leave the noise out, so that what was sent tells the coin."""
    return np.zeros(count, np.int64)


ATTACKS = (WhoTookPart,)

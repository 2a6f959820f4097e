"""What noise a data holder really adds: its answers opened, as only all Compute nodes together can.

The sizes are compared with what the price promises, the signs with fair coins. Noise of the right
sizes with signs of its own, but with sizes that repeat, is not looked for.
"""

import math
from collections.abc import AsyncIterator
from typing import Final

import numpy as np

from shoal_protocol.privacy.mechanisms import GaussianPart, NoisePart
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.received import parse
from shoal_protocol.wire.encoding import Int64Vector, Uint64Vector
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.lies_to_clients import spec_of
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.chance import FALSE_ALARM, gamma_bound, p_value
from shoal_redteam.findings import CannotAttack, Finding, not_carried_out, seen
from shoal_redteam.target import Target
from shoal_redteam.victim import victim

_ROUNDS: Final = 48
_PRICE: Final = 1 / 1600  # of a budget, which is thrown away
_SECONDS: Final = 300.0
_AXES: Final = ("two rounds", "two coordinates")


class SentNoise(Attack):
    """A data holder saves noise, and nobody can see it: answers are shares."""

    name = "sent-noise"
    liar = "a data holder's own program"
    tries = "too little noise, or the same noise again: answers opened with all nodes' keys"
    stopped_by = "each answer has noise of its own, of the variance promised: tests at 10⁻⁶"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Have a data holder answer some rounds, and open its answers."""
        jobs = [job_request(target, round_seconds=3600, grace_seconds=60) for _ in range(_ROUNDS)]
        rounds = [spec_of(target, job, price=_PRICE, seconds=_SECONDS) for job in jobs]
        opened = []
        async with victim(target, jobs[0]) as prey:
            for job, spec in zip(jobs, rounds, strict=True):
                await prey.answer(job, spec)
                opened.append(noise_in(target, spec, prey.network.envelopes[spec.digest]))
        noise = np.array(opened)
        yield _sizes(rounds[0], noise)
        for axis, which in enumerate(_AXES):
            yield _likeness(which, np.sign(np.moveaxis(noise, axis, 0)))


def noise_in(target: Target, spec: RoundSpec, envelopes: list[bytes]) -> Int64Vector:
    """Return what a holder's answer holds beside a record of zeros, shape (dimension,).

    Raises:
        CannotAttack: a node has no box key, or the answer is not whole.
    """
    sums: dict[int, Uint64Vector] = {}
    for each in map(parse, envelopes):
        node = each.node
        private = target.keys.parties[spec.compute_nodes[node]].box_private_key
        if private is None or each.holder != target.holder(target.crew[0]):
            raise CannotAttack("the answer cannot be opened")
        share = each.open(bytes(private), bytes(private.public_key))
        sums[node] = summation.add_packed(spec.sharing, share.kind, share.payload, spec.dimension)
    if len(sums) < len(spec.compute_nodes):
        raise CannotAttack("the data holder has not answered every node")
    combined = summation.combine(spec.sharing, sums, nodes=len(spec.compute_nodes))
    if combined is None:
        raise CannotAttack("the shares of the answer contradict each other")
    record = spec.query.encode(np.zeros((1, len(spec.query.column_names))))
    return summation.decode(spec.sharing, combined.total) - record


def size_of(part: NoisePart, noise: Int64Vector) -> tuple[float, float]:
    """Return a sum over a slot's draws, shape (n,), and of which Gamma it should be.

    Of Gaussians x^2 / (2 scale^2) is Gamma(1/2); of Laplace shares so many are added up first as
    give a Laplace, of which |x| / scale is Gamma(1). What the lattice adds to that is of the order
    of 1 / scale^2, and the scale is in the millions here.
    """
    if isinstance(part, GaussianPart):
        return float(((noise / part.scale) ** 2).sum() / 2.0), noise.size / 2.0
    wholes = noise.size // part.parties
    sums = noise[: wholes * part.parties].reshape(wholes, part.parties).sum(axis=1)
    return float(np.abs(sums).sum() / part.scale), float(wholes)


def _sizes(spec: RoundSpec, noise: Int64Vector) -> Finding:
    """Judge noise, shape (rounds, dimension), by the largest deviation of a block."""
    start, worst = 0, (math.inf, 1.0)
    blocks = spec.noise_blocks()
    for coordinates, part in blocks:
        total, shape = size_of(part, noise[:, start : start + coordinates].reshape(-1))
        worst = min(worst, (gamma_bound(total, shape) * len(blocks), total / shape))
        start += coordinates
    chance, ratio = worst
    return seen(
        f"{noise.size} opened coordinates of noise against what the price promises",
        stopped=chance >= FALSE_ALARM,
        answered=f"a data holder: sizes add up to {ratio:.3g} of what is due",
        check=f"p = {min(1.0, chance):.2g}; honest noise fails with at most {FALSE_ALARM:g}",
    )


def _likeness(which: str, signs: Int64Vector) -> Finding:
    """Judge whether noise at most half of the first axis apart has like signs.

    Signs of independent symmetric noise are fair coins, and so are products along disjoint paths.
    """
    tried = f"whether noise of {which} goes together"
    lags = range(1, len(signs) // 2 + 1)  # further apart there are few pairs
    tests = len(_AXES) * len(lags)
    worst = (math.inf, 0, 0)
    for lag in lags:
        product = signs[lag:] * signs[:-lag]
        agree, of = int((product > 0).sum()), int((product != 0).sum())
        if p_value(of, of) * tests >= FALSE_ALARM:
            return not_carried_out(tried, "too few draws are not zero")
        worst = min(worst, (p_value(agree, of) * tests, agree, of))
    chance, agree, of = worst
    return seen(
        tried,
        stopped=chance >= FALSE_ALARM,
        answered=f"a data holder: like signs in {agree} of {of} pairs at the worst distance",
        check=f"p = {min(1.0, chance):.2g}; independent noise fails with at most {FALSE_ALARM:g}",
    )

"""What the clock tells on the way of an upload: of the noise that is in it, of who has answered."""

from collections.abc import AsyncIterator
from typing import Final

import numpy as np

from shoal_holder.noise import exact_noise as sampler
from shoal_protocol.privacy.mechanisms import NoisePart
from shoal_protocol.sharing.envelope import envelope_digest, receipt_query
from shoal_protocol.sharing.received import parse
from shoal_protocol.wire.encoding import Int64Vector
from shoal_redteam.attack import Attack
from shoal_redteam.attacks.lies_to_clients import spec_of
from shoal_redteam.attacks.sybil import job_request
from shoal_redteam.attacks.transplant import transplanted
from shoal_redteam.chance import FALSE_ALARM, larger_of, least_share, p_value, pairs_of
from shoal_redteam.findings import Finding, not_carried_out, seen
from shoal_redteam.played_round import PlayedRound, begin
from shoal_redteam.target import BYTES, Target
from shoal_redteam.victim import victim

ROUNDS: Final = 60  # at one answer each
_PRICE: Final = 1 / 40_000  # of a budget, which is thrown away
UPLOADS: Final = 240
PAIRS: Final = 150


class NoiseByTime(Attack):
    """Somebody on the line reads the noise of an answer from how long its upload takes."""

    name = "timing-of-noise"
    liar = "whoever watches the line of a client or a node"
    tries = "how long a node takes to answer, against the noise in what was sent"
    stopped_by = "nothing after the draw depends on what was drawn: equal sizes, equal checks"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Compare with the noise when a data holder's answers leave and when a node answers."""
        yield await self._release_times(target)
        played = await begin(target, seconds=_LONG)
        client = played.clients[0]
        record = played.spec.query.encode(np.zeros((1, len(played.spec.query.column_names))))
        made = [played.contribution(client) for _ in range(UPLOADS)]
        noise = [float(np.abs(each.vector - record).sum()) for each in made]
        times = []
        for each in made:
            began = target.timer()
            await played.upload(0, each.envelopes[0])  # the first is stored, the others conflict
            times.append(target.timer() - began)
        agree, of = pairs_of(noise, times)
        chance = p_value(agree, of)
        sizes = {len(each.envelopes[0]) for each in made}
        yield seen(
            f"the time of {UPLOADS} uploads against the size of the noise in each",
            stopped=chance >= FALSE_ALARM and len(sizes) == 1,
            answered=f"{target.nodes[0]}: they agree in {_share(agree, of)}",
            check=f"p = {chance:.2g}; a coincidence is called a leak with {FALSE_ALARM:g}",
        )

    async def _release_times(self, target: Target) -> Finding:
        """Show a data holder one job after another, and see how soon each answer leaves."""
        drawn: list[float] = []

        def recorded(part: NoisePart, count: int) -> Int64Vector:
            block = sampler(part, count)
            drawn.append(float(np.abs(block).sum()))
            return block

        job = job_request(target, round_seconds=3600, grace_seconds=60)
        delays = []
        async with victim(target, job, noise=recorded) as prey:
            for _ in range(ROUNDS):
                job = job_request(target, round_seconds=3600, grace_seconds=60)
                spec = spec_of(target, job, price=_PRICE, seconds=_LONG)
                await prey.answer(job, spec)
                sent = min(prey.network.uploads[spec.digest])
                delays.append(sent - prey.network.served[job.digest])
        tried = f"how soon {ROUNDS} answers of a data holder leave, against the noise in each"
        noise = [float(each.sum()) for each in np.array_split(np.array(drawn), ROUNDS)]
        if len(set(noise)) < ROUNDS:
            return not_carried_out(tried, "it draws no noise, or the same again: see sent-noise")
        agree, of = pairs_of(noise, delays)
        chance = p_value(agree, of)
        return seen(
            tried,
            stopped=chance >= FALSE_ALARM,
            answered=f"a data holder: they agree in {_share(agree, of)}",
            check=f"p = {chance:.2g}; a coincidence is called a leak with {FALSE_ALARM:g}",
        )


class ClientByTime(Attack):
    """A stranger learns from a node's answer time whether a client has answered."""

    name = "timing-of-clients"
    liar = "anybody"
    tries = "how long a node takes over a client that has answered, against one that has not"
    stopped_by = "the same checks in the same order for both; a held query looks up both alike"

    async def run(self, target: Target) -> AsyncIterator[Finding]:
        """Ask about both by turns, in an order that is drawn each time."""
        played = await begin(target, seconds=_LONG)
        known, unknown = played.clients[0], played.clients[len(target.nodes)]
        await played.answer([known])
        for tried, bodies in {
            "an upload with a forged signature": (
                f"{played.path}/shares",
                {client: _forged(played, client) for client in (known, unknown)},
            ),
            "a question which envelopes are held": (
                f"{played.path}/shares/stored",
                {
                    client: receipt_query(client, envelope_digest(_forged(played, client)))
                    for client in (known, unknown)
                },
            ),
        }.items():
            path, by_client = bodies
            pairs = []
            for _ in range(PAIRS):
                times = {}
                order = (known, unknown) if target.random_bytes(1)[0] & 1 else (unknown, known)
                for client in order:
                    began = target.timer()
                    await target.send(target.nodes[0], path, by_client[client], BYTES)
                    times[client] = target.timer() - began
                pairs.append((times[known], times[unknown]))
            slower, of = larger_of(pairs)
            chance = p_value(slower, of)
            yield seen(
                f"{tried}, {PAIRS} times for each of two clients",
                stopped=chance >= FALSE_ALARM,
                answered=f"{target.nodes[0]}: the one that has answered takes longer in "
                f"{_share(slower, of)}",
                check=f"p = {chance:.2g}; a coincidence is called a leak with {FALSE_ALARM:g}",
            )


_LONG: Final = 300.0  # seconds: the round must not end before all is measured


def _forged(played: PlayedRound, client: int) -> bytes:
    """Return an envelope in a client's name that another data holder signed."""
    whole = played.contribution(client).envelopes[0]
    target = played.target
    signer = target.keys.clients[next(each for each in target.crew if each != client)]
    return transplanted(whole, parse(whole).header, signer)


def _share(agree: int, of: int) -> str:
    if not of:
        return "no pair: all take equally long"
    if p_value(of, of) >= FALSE_ALARM:
        return f"{agree} of {of} pairs: the others take equally long"
    return f"{agree} of {of} pairs; {least_share(of):.0%} would be a leak"

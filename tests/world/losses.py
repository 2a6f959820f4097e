"""Counts shares acknowledged, lost and counted twice; it trusts the wire's log and no party's word.

A share is acknowledged when a Compute node answered so, heard or not. It is lost when that node's
signed holdings lack it, or when a released sum lacks it though its client is in the cohort.
"""

from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np

from shoal_protocol.sharing.received import parse, unframe
from shoal_protocol.wire.encoding import Int64Vector
from shoal_protocol.wire.vectors import decode_uint64
from tests.world.audit import Seen, cohort_in, contributions_of, look_at
from tests.world.federation import Federation


@dataclass(frozen=True)
class Losses:
    """Shares of all rounds of a federation, and clients that a sum counts wrongly."""

    acknowledged: int = 0
    lost: int = 0
    double_counted: int = 0
    unexplained: int = 0  # sums that are wrong in another way

    def __add__(self, other: "Losses") -> "Losses":
        return Losses(
            self.acknowledged + other.acknowledged,
            self.lost + other.lost,
            self.double_counted + other.double_counted,
            self.unexplained + other.unexplained,
        )


async def count_losses(federation: Federation) -> Losses:
    """Judge every round that a federation ran."""
    seen = look_at(federation)
    acknowledged = acknowledgements(federation)
    forgotten = sum(
        (round_id, node) in seen.holdings and holder not in seen.holdings[round_id, node].holders
        for round_id, node, holder in acknowledged
    )
    total = Losses(len(acknowledged), forgotten)
    for round_id in seen.specs:
        total += await _of_sum(federation, seen, round_id)
    return total


def acknowledgements(federation: Federation) -> set[tuple[str, str, int]]:
    """Return round, node and holder of each share that a node acknowledged."""
    found = set()
    for message in federation.wire.log:
        if message.path.endswith("/shares") and message.status in (200, 201):
            header = parse(message.body).header
            found.add((header.round_id, message.receiver, header.holder))
        elif message.path.endswith("/shares/bulk") and message.status == 200:
            outcomes = message.json()["outcomes"]
            for encoded, outcome in zip(unframe(message.body), outcomes, strict=True):
                if outcome["status"] in (200, 201):
                    header = parse(encoded).header
                    found.add((header.round_id, message.receiver, header.holder))
    return found


async def _of_sum(federation: Federation, seen: Seen, round_id: str) -> Losses:
    result = await federation.result(round_id)
    if result is None:
        return Losses()
    spec = seen.specs[round_id]
    cohort = cohort_in(seen, round_id, result["cohort"])
    contributions = contributions_of(federation, seen, round_id, spec)
    values = decode_uint64(result["values"]).view(np.int64)
    surplus = values - np.sum([contributions[client] for client in cohort], axis=0)
    return explain(surplus, list(contributions.values()))


def explain(surplus: Int64Vector, contributions: list[Int64Vector]) -> Losses:
    """Say which of the clients' contributions make up what a sum has too much, shape (dimension,).

    Up to two of them are found; a sum that is wrong in another way is unexplained.
    """
    if not surplus.any():
        return Losses()
    signed = [(sign, sign * each) for each in contributions for sign in (1, -1)]
    for count in (1, 2):
        for some in combinations_with_replacement(signed, count):
            if np.array_equal(np.sum([vector for _, vector in some], axis=0), surplus):
                twice = sum(sign > 0 for sign, _ in some)
                return Losses(lost=count - twice, double_counted=twice)
    return Losses(unexplained=1)

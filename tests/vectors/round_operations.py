"""What a vector of a job's many rounds asks for: batches, coins, and who paid."""

from collections.abc import Mapping
from typing import Any

from pyroaring import BitMap

from shoal_protocol import batches, prepayment
from shoal_protocol.accounting import NOTHING
from shoal_protocol.documents import decode
from shoal_protocol.hidden_participation import HiddenParticipation
from shoal_protocol.participation import Participation
from shoal_protocol.rounds import RoundSpec

Inputs = Mapping[str, Any]
Output = dict[str, Any]


def choose_batch(given: Inputs) -> Output:
    """Choose whom a job's next round asks, after `rounds`, each a list of clients."""
    participation = Participation(BitMap(given["population"]))
    for asked in given["rounds"]:
        participation.add(BitMap(asked), NOTHING)
    batch = batches.choose_batch(
        participation,
        BitMap(given["enrolled"]),
        job=given["job"],
        size=given["batch"],
        most=given["most"],
    )
    return {"clients": None if batch is None else list(batch)}


def toss_coin(given: Inputs) -> Output:
    """Toss a client's coin with given random bytes: 1 if its records count."""
    hidden = HiddenParticipation(rate=given["rate"], rounds=1, prepaid_by=None)
    drawn = bytes.fromhex(given["bytes"])
    return {"values": [hidden.toss(lambda count: drawn[:count])]}


def accept_prepaid(given: Inputs) -> Output:
    """Take a later round as a node does that charged `first`, and `earlier` rounds of the job."""
    first, spec = (decode(bytes.fromhex(given[each]), RoundSpec) for each in ("first", "document"))
    prepayment.check_prepaid(spec.body, first.body, earlier=given["earlier"])
    return {"digest": spec.digest}

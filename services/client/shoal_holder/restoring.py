"""Restores a data holder's state, from an older copy or from nothing, without forgetting a charge.

The restored machine supersedes all others, then takes over what all Compute nodes charged. Who was
in which slot since the copy was made is lost. Let U be the slots that nobody has in the copy, and
c(s) what slot s was charged in all, in mu and in epsilon. Whoever got a slot on the lost machine
was in some s of U and spent at most c(s), so at most C, the largest c over U in either currency.
Whoever gets a slot later gets one that the copy knows to be nobody's: it starts at C. Costs add up
and caps are monotone in each currency, so nobody is charged less than was spent. Whom the copy
knows keeps the slot and pays its own charges. C is at most the sum of all rounds, and below it
where rounds asked other slots. Proof: docs/mathematics.md, proposition 1.7.

Crowd jobs are in no node's ledger. After a loss each slot starts with all that crowd jobs were
allowed to cost it (`crowds_allowed`), and contributes to none again. What the owner's policy was on
the lost machine is not known: the consortium's limit counts if that is higher than what is known.
Where no manifest version from the first on allowed a crowd job, none was answered, and none counts.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from pyroaring import BitMap

from shoal_holder import machine, spending
from shoal_holder.policy import Policy
from shoal_holder.spending import Charge
from shoal_holder.state import State
from shoal_holder.state_file import INSTANCE_BYTES
from shoal_protocol.privacy.accounting import NOTHING, Cost
from shoal_protocol.sharing.shares import RandomBytes
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.encoding import (
    canonical_json,
    decode_clients,
    encode_clients,
    format_time,
    sha256,
)

RESTORED: Final = "the state was restored"
"""Why jobs have ended that were open in the state that was restored."""
NO_CROWDS: Final = (
    "the state here was restored: what crowd jobs had cost is not known, and counts as all that "
    "was allowed"
)
_LEAST: Final = 1e-9  # of a currency that would be 0 where the other is not


def prepare(state: State, random_bytes: RandomBytes, now: datetime) -> None:
    """Turn a state, an older copy or an empty one, into that of a machine to supersede all others.

    Its jobs end: the lost machine may have gone on with them.
    """
    for (job,) in state.file.rows("SELECT job FROM jobs WHERE ended IS NULL ORDER BY rowid"):
        state.end_job(job, RESTORED)
    known = BitMap(slot for (slot,) in state.file.rows("SELECT slot FROM slots WHERE is_sure"))
    with state.file.transaction():
        instance = random_bytes(INSTANCE_BYTES).hex()
        state.file.database.execute(
            "UPDATE machine SET epoch = epoch + 1, instance = ?, restored_at = ?, is_restoring = 1,"
            " is_superseded = 0, known = ?, least_mu = NULL, least_epsilon = NULL",
            (instance, format_time(now), encode_clients(known)),
        )
    state.file.is_restored = False
    state.file.settle()


def crowds_allowed(state: State, own: Policy, versions: Sequence[Consortium]) -> Cost:
    """Return what crowd jobs may have cost a slot on the machine that was lost.

    The highest of what this state ever allowed, and of what `allowed_of_crowds` says.
    """
    allowed = allowed_of_crowds(own, versions)
    if allowed is None:
        return NOTHING
    epsilon = max(allowed, *state.file.one("SELECT crowds_epsilon FROM machine"))
    return Cost.pure(epsilon) if epsilon else NOTHING


def allowed_of_crowds(own: Policy | None, versions: Sequence[Consortium]) -> float | None:
    """Return the highest ε that the owner's policy or a manifest version allows crowd jobs.

    None: `versions`, oldest first, begin with the consortium's first, and none allows crowd jobs.
    """
    limit = max(each.manifest.policy.maximum_local_epsilon or 0.0 for each in versions)
    if not limit and versions[0].manifest.previous is None:
        return None
    return max(limit, 0.0 if own is None else own.maximum_local_epsilon or 0.0)


def take_over(
    state: State,
    forgotten: Iterable[Charge],
    *,
    own: BitMap,
    crowds: Cost,
    now: datetime,
) -> int:
    """Charge what nodes charged and this ledger lacks; return how many rounds that were.

    `own` are the data holder's slots, and `crowds` is what crowd jobs may have cost each of them.
    Interrupted, it may be begun again.
    """
    missing = state.not_charged(forgotten)
    state.adopt(missing, now)
    if crowds != NOTHING:
        job = _job(state, "crowds")
        everybody = Charge(job, 0, _round(job, 0), own, crowds)
        state.adopt(state.not_charged([everybody]), now)
    largest = spending.spent(state.file).largest(own - _known(state))
    state.file.write(
        "UPDATE machine SET least_mu = ?, least_epsilon = ? WHERE least_mu IS NULL",
        *(largest.mu, largest.stated_epsilon),
    )
    raise_to_least(state, own, now)
    state.file.write("UPDATE machine SET is_restoring = 0")
    return len(missing)


def raise_to_least(state: State, own: BitMap, now: datetime) -> None:
    """Bring slots up to the largest charge that a lost slot had, those that are new here, too."""
    found = state.file.one("SELECT least_mu, least_epsilon FROM machine")
    if found[0] is None:
        return
    least, job = Cost.stated(*found), _job(state, "slots")
    if least == NOTHING:
        return
    due = own - _known(state) - spending.charged(state.file, job)
    if not due:
        return
    together = defaultdict[Cost, BitMap](BitMap)
    for slot, spent in spending.spent(state.file).of(due).items():
        rest = _rest(least, spent)
        if rest != NOTHING:
            together[rest].add(slot)
    if not together:
        return
    number = len({each.what for each in spending.charges(state.file, job)})
    state.adopt(
        [
            Charge(job, place, _round(job, place), slots, rest)
            for place, (rest, slots) in enumerate(together.items(), start=number)
        ],
        now,
    )


def _rest(least: Cost, spent: Cost) -> Cost:
    """Return what brings a slot that spent so much up to `least`, in both currencies."""
    mu = math.sqrt(max(0.0, least.mu**2 - spent.mu**2))
    epsilon = max(0.0, least.epsilon - spent.epsilon) if spent.epsilon < math.inf else 0.0
    if mu == epsilon == 0.0:
        return NOTHING
    return Cost(mu=max(mu, _LEAST), epsilon=max(epsilon, _LEAST))


def _known(state: State) -> BitMap:
    """Return the slots of those whom the restored copy knew."""
    return decode_clients(state.file.one("SELECT known FROM machine")[0])


def _job(state: State, what: str) -> str:
    epoch = machine.read(state.file).epoch
    return sha256("restored", canonical_json({"epoch": epoch, "what": what}))


def _round(job: str, number: int) -> str:
    return sha256("restored", canonical_json({"job": job, "number": number}))

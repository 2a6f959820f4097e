"""A round's cohort by its sharing scheme: from the holdings of some of its Compute nodes."""

from collections.abc import Mapping, Sequence

import numpy as np
from pyroaring import BitMap

from shoal_protocol.rounds.attestations import StoredAnswers, cohort_digest, cohort_of
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.wire.service_errors import WrongCohort


def asked_of(spec: RoundSpec, node: str, asked: BitMap) -> BitMap:
    """Return which of the data holders that a round asks share with `node`."""
    if spec.sharing.committee is None:
        return asked
    holders = np.asarray(asked.to_array())
    nodes = len(spec.compute_nodes)
    places = (spec.compute_nodes.index(node) - holders.astype(np.int64)) % nodes
    return BitMap(holders[places < spec.sharing.committee])


def survivors(spec: RoundSpec, among: Sequence[str]) -> list[int]:
    """Return how many nodes of `among` there are in the committee that begins at each node."""
    nodes = len(spec.compute_nodes)
    there = [name in among for name in spec.compute_nodes]
    return [
        sum(there[each] for each in spec.sharing.members(holder=start, nodes=nodes))
        for start in range(nodes)
    ]


def cohort_in(spec: RoundSpec, held: Mapping[str, StoredAnswers]) -> StoredAnswers:
    """Return whose answers can be summed from what these nodes hold, by name.

    Without committees it is `cohort_of` them. With committees a data holder counts if every node of
    its committee that is among these holds a share of one answer, and enough of them are.
    """
    if spec.sharing.committee is None:
        return cohort_of(held.values())
    nodes = len(spec.compute_nodes)
    holders = np.asarray(BitMap.union(*(each.holders for each in held.values())).to_array())
    tags, times = np.zeros(len(holders), np.uint32), np.zeros(len(holders), np.int64)
    same = np.ones(len(holders), np.bool_)
    for each in held.values():
        at, here = np.searchsorted(holders, each.holders.to_array()), each.tags_of(each.holders)
        first = times[at] == 0
        tags[at[first]] = here[first]
        same[at] &= tags[at] == here
        times[at] += 1
    there = np.array(survivors(spec, list(held)))[holders.astype(np.int64) % nodes]
    chosen = same & (times == there) & (there >= spec.sharing.opening(nodes))
    return StoredAnswers(BitMap(holders[chosen]), tags[chosen].tobytes())


def digest_in(spec: RoundSpec, cohort: StoredAnswers, among: Sequence[str]) -> str:
    """Return the `cohort_digest` by which the nodes `among` vote for a cohort of the round."""
    return cohort_digest(spec.digest, cohort, () if spec.sharing.committee is None else among)


def check_nodes(spec: RoundSpec, node: str, nodes: Sequence[str] | None) -> None:
    """Refuse a partial sum of `node` that does not name whose it is added to, with committees.

    Raises:
        WrongCohort
    """
    if spec.sharing.committee is None:
        if nodes is not None:
            raise WrongCohort("only with committees a partial sum names those it is added to")
        return
    named = nodes or ()
    in_order = tuple(name for name in spec.compute_nodes if name in named)
    if tuple(named) != in_order or node not in named or len(named) < spec.threshold:
        raise WrongCohort("a partial sum names enough of the round's nodes, its own among them")

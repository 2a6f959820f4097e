"""Tells what became of each slot in a round, and which parties contradicted themselves.

The audit trusts no party: it follows from signed public documents, so anyone can repeat it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from pyroaring import BitMap

from shoal_protocol.privacy.adversaries import Release
from shoal_protocol.rounds.asked_holders import AskedHolders
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    Result,
    StoredAnswers,
)
from shoal_protocol.rounds.cohorts import asked_of, cohort_in, survivors
from shoal_protocol.rounds.misconduct import Evidence, Misconduct
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed


@dataclass(frozen=True)
class Account:
    """A round's end, and its population in disjoint groups by what became of each client.

    Of a published round the population is `cohort`, `lacking`, `differing` and `unexplained`. Of
    a round that was abandoned, or is open, all of it is `not_released`.
    """

    outcome: Literal["published", "abandoned", "open"]
    reason: AbandonmentReason | None  # of an abandoned round, by the aggregator
    abandoned_by: dict[str, AbandonmentReason]  # by Compute node
    cohort: BitMap
    lacking: dict[tuple[str, ...], BitMap]  # left out because these nodes lack a share
    differing: BitMap  # left out because its shares are of different answers
    unexplained: BitMap  # of a published round: the holdings behind its cohort are not shown
    not_released: BitMap
    misconduct: tuple[Misconduct, ...]
    refused: int  # documents that do not verify, or are not of this round

    @property
    def of_not_released(self) -> str:
        """Say what became of the clients in `not_released`."""
        return "nothing was released" if self.outcome == "abandoned" else "the round is open"

    def groups(self) -> dict[str, BitMap]:
        """Return the clients of the population by what became of them."""
        left_out = {
            f"left out: no share at {', '.join(nodes)}": clients
            for nodes, clients in self.lacking.items()
        }
        return {
            "in the cohort": self.cohort,
            **left_out,
            "left out: its shares are of different answers": self.differing,
            "left out: the holdings that would say why are not shown": self.unexplained,
            self.of_not_released: self.not_released,
        }

    def counts(self) -> dict[str, int]:
        """Return how many clients there are in each group that has any."""
        return {what: len(clients) for what, clients in self.groups().items() if clients}

    def of(self, client: int) -> str:
        """Say what became of a client."""
        for what, clients in self.groups().items():
            if client in clients:
                return what
        return "not in the population"


def release_of(spec: RoundSpec, *, cohort_size: int | None = None) -> Release:
    """Return the facts that a round's price depends on, `cohort_size` once it was summed."""
    return Release(
        noise=spec.noise,
        design=spec.design,
        population=spec.population_size,
        dropouts=spec.dropouts,
        colluders=spec.colluders,
        smallest_answer=spec.smallest_answer,
        cohort_size=cohort_size,
    )


def account_of(
    spec: Signed[RoundSpec], consortium: Consortium, documents: Iterable[Signed[Any]]
) -> Account:
    """Return the account of a round from whatever documents of it were shown, in any order.

    `consortium` is that of the manifest that the round is bound to, and `spec` was verified.
    """
    shown = Evidence(spec, consortium, documents)
    misconduct = tuple(dict.fromkeys(shown.misconduct()))
    results = shown.of_kind(Result)
    called_off = shown.of_kind(Abandonment).get(consortium.manifest.aggregator.name, [])
    population = spec.body.clients()
    nobody = BitMap()
    outcome: Literal["published", "abandoned", "open"] = "open"
    lacking: dict[tuple[str, ...], BitMap] = {}
    cohort = differing = unexplained = nobody
    if results:
        outcome = "published"
        [result, *_] = [each for signed in results.values() for each in signed]
        found = shown.holdings_behind(result.body.cohort)
        if found is None:
            unexplained = population
        else:
            asked = AskedHolders.of(population, consortium.roster)
            together = cohort_in(spec.body, found).holders
            without = _lacking(spec.body, found, asked.holders)
            left_out = BitMap.union(BitMap(), *without.values())
            cohort = asked.slots_of(together)
            differing = asked.slots_of(asked.holders - together - left_out)
            lacking = {nodes: asked.slots_of(holders) for nodes, holders in without.items()}
    elif called_off:
        outcome = "abandoned"
    return Account(
        outcome=outcome,
        reason=called_off[0].body.reason if called_off and not results else None,
        abandoned_by={
            name: signed[0].body.reason
            for name, signed in shown.of_kind(Abandonment).items()
            if name in spec.body.compute_nodes
        },
        cohort=cohort,
        lacking=lacking,
        differing=differing,
        unexplained=unexplained,
        not_released=nobody if results else population,
        misconduct=misconduct,
        refused=shown.refused,
    )


def _lacking(
    spec: RoundSpec, held: dict[str, StoredAnswers], asked: BitMap
) -> dict[tuple[str, ...], BitMap]:
    """Return the data holders whom at least one of their nodes lacks, by the nodes that do.

    A committee of whose nodes too few are in `held` lacks the others.
    """
    needed, nodes = spec.sharing.opening(len(spec.compute_nodes)), len(spec.compute_nodes)
    there = survivors(spec, list(held))
    left: dict[tuple[str, ...], BitMap] = {(): asked}
    for name in spec.compute_nodes:
        lacks = asked_of(spec, name, asked)
        if name in held:
            lacks = lacks - held[name].holders
        elif spec.sharing.committee is None:
            continue
        else:
            lacks = BitMap(holder for holder in lacks if there[holder % nodes] < needed)
        split: dict[tuple[str, ...], BitMap] = {}
        for names, holders in left.items():
            split[names] = holders - lacks
            split[(*names, name)] = holders & lacks
        left = {names: holders for names, holders in split.items() if holders}
    return {names: holders for names, holders in left.items() if names}

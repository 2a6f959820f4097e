"""Tells what became of each slot in a round, and which parties contradicted themselves.

The audit trusts no party: it follows from signed public documents, so anyone can repeat it.
A document that is not shown may exist: where one could explain a contradiction, none is reported.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import Any, Final, Literal

import numpy as np
from pyroaring import BitMap

from shoal_protocol.privacy.job_costs import Release
from shoal_protocol.rounds.attestations import (
    Abandonment,
    AbandonmentReason,
    Holdings,
    PartialSum,
    Result,
    StoredAnswers,
    Vote,
    asked_of,
    cohort_in,
    digest_in,
    survivors,
)
from shoal_protocol.rounds.round_spec import AskedHolders, RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.shares import to_ring
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import Signed
from shoal_protocol.wire.encoding import Uint64Vector
from shoal_protocol.wire.errors import MalformedDocument, ProtocolError
from shoal_protocol.wire.service_errors import WrongCharge
from shoal_protocol.wire.vectors import decode_uint64, encode_uint64

_CONTRADICTS: Final = "its partial sum contradicts those of the others"
_MOST_VERSIONS: Final = 64  # of holdings, where nodes signed several, to try for one vote


@dataclass(frozen=True)
class Misconduct:
    """A party, and a contradiction among the documents that it signed."""

    party: str
    what: str


class Evidence:
    """A round's verified documents, and the contradictions among them."""

    def __init__(
        self, spec: Signed[RoundSpec], consortium: Consortium, documents: Iterable[Signed[Any]]
    ) -> None:
        self._spec = spec
        self.asked = AskedHolders.of(spec.body.clients(), consortium.roster)
        self._aggregator = consortium.manifest.aggregator.name
        self._documents: dict[type, dict[str, list[Signed[Any]]]] = defaultdict(dict)
        self._held: dict[str, list[StoredAnswers]] = defaultdict(list)  # holdings that can be true
        self._vectors: dict[str, tuple[int, Uint64Vector]] = {}  # of partial sums, by digest
        self._contradictory: list[Misconduct] = []
        self.refused = 0
        seen: set[str] = set()
        for signed in documents:
            if signed.digest in seen:
                continue
            seen.add(signed.digest)
            try:
                consortium.verify(signed)
            except ProtocolError:
                self.refused += 1
                continue
            if signed.body.round != spec.digest:
                self.refused += 1
                continue
            self._documents[type(signed.body)].setdefault(signed.signer, []).append(signed)
            if isinstance(signed.body, Holdings):
                self._take_holdings(signed.signer, signed.body)
            elif isinstance(signed.body, PartialSum):
                self._take_sum(signed)

    def _take_holdings(self, signer: str, body: Holdings) -> None:
        try:
            self._held[signer].append(
                body.held(asked_of(self._spec.body, signer, self.asked.holders))
            )
        except MalformedDocument:
            what = "its holdings contradict themselves or whom the round asks"
            self._contradictory.append(Misconduct(signer, what))

    def _take_sum(self, signed: Signed[PartialSum]) -> None:
        spec = self._spec.body
        try:
            vector = decode_uint64(signed.body.values)
        except MalformedDocument:
            vector = np.zeros(0, np.uint64)
        if vector.size == spec.dimension:
            self._vectors[signed.digest] = (spec.compute_nodes.index(signed.signer), vector)
        else:
            what = "its partial sum has not the query's length"
            self._contradictory.append(Misconduct(signed.signer, what))
        try:
            signed.body.check_charge(spec)
        except WrongCharge:
            what = "its partial sum carries an entry that cannot be its charge of the round"
            self._contradictory.append(Misconduct(signed.signer, what))

    def of_kind(self, kind: type) -> dict[str, list[Signed[Any]]]:
        """Return all documents of type `kind`, by signer."""
        return self._documents.get(kind, {})

    def holdings_behind(self, cohort: str) -> dict[str, StoredAnswers] | None:
        """Return holdings that give the cohort of this digest, as named by a vote for it."""
        for vote in self._votes():
            if vote.cohort == cohort:
                for found in self._versions(vote.nodes):
                    if self._digest(found) == cohort:
                        return found
        return None

    def _digest(self, found: dict[str, StoredAnswers]) -> str:
        spec = self._spec.body
        return digest_in(spec, cohort_in(spec, found), list(found))

    def _votes(self) -> Iterator[Vote]:
        for signed in self.of_kind(Vote).values():
            yield from (each.body for each in signed)

    def _versions(self, nodes: tuple[str, ...]) -> Iterator[dict[str, StoredAnswers]]:
        """Yield each way to read these nodes' holdings: one, but for those who signed several."""
        for versions in islice(product(*(self._held[name] for name in nodes)), _MOST_VERSIONS):
            yield dict(zip(nodes, versions, strict=True))

    def misconduct(self) -> Iterator[Misconduct]:
        """Yield every contradiction among what was signed."""
        yield from self._contradictory
        for kind, by_signer in self._documents.items():
            for signer, signed in by_signer.items():
                if len(signed) > 1:
                    name = signed[0].body.kind.replace("_", " ")
                    yield Misconduct(signer, f"it signed two documents of the kind {name}")
                yield from self._contradictions(kind, signer, signed)
        yield from self._wrong_sums()

    def _contradictions(
        self, kind: type, signer: str, signed: list[Signed[Any]]
    ) -> Iterator[Misconduct]:
        for each in signed:
            if kind is Vote:
                yield from self._of_vote(signer, each.body)
            elif kind is PartialSum:
                if signer in self.of_kind(Abandonment):
                    yield Misconduct(signer, "it signed a partial sum and that it never will")
                votes = [vote.body.cohort for vote in self.of_kind(Vote).get(signer, [])]
                if votes and each.body.cohort not in votes:
                    yield Misconduct(signer, "its partial sum is over a cohort it did not vote for")
                cast = [
                    vote.cohort for vote in self._votes()
                ]  # what is not shown may have been, too
                hidden = len(self._spec.body.compute_nodes) - len(self.of_kind(Vote))
                most = hidden + cast.count(each.body.cohort)
                if not votes and most < self._spec.body.threshold:
                    yield Misconduct(signer, "its partial sum is over a cohort nobody voted for")
            elif kind is Result and signer in self.of_kind(Abandonment):
                yield Misconduct(signer, "it signed a result and that there is none")

    def _of_vote(self, signer: str, vote: Vote) -> Iterator[Misconduct]:
        spec, named = self._spec.body, [self._held[name] for name in vote.nodes]
        if not all(named):
            return  # not all holdings are shown, so nothing can be said
        follows = False
        for found in self._versions(vote.nodes):
            if self._digest(found) == vote.cohort:
                cohort = cohort_in(spec, found)
                follows = self.asked.count(cohort.holders) == vote.cohort_size
                own = self._held.get(signer, [])
                with_own = [cohort_in(spec, found | {signer: each}) for each in own]
                outside = spec.sharing.committee is not None and signer not in vote.nodes
                if outside or (own and all(each != cohort for each in with_own)):
                    yield Misconduct(
                        signer, "it voted for data holders whose shares it does not hold"
                    )
        if not follows and prod(map(len, named)) <= _MOST_VERSIONS:
            yield Misconduct(signer, "its vote does not follow from the holdings that it names")
        elif follows and vote.cohort_size < spec.minimum_cohort:
            yield Misconduct(signer, "it voted for a cohort that is too small")

    def _wrong_sums(self) -> Iterator[Misconduct]:
        """Yield wrong partial sums over the result's cohort, or a wrong result, if provable."""
        spec = self._spec.body
        for [signed, *_] in self.of_kind(Result).values():
            result: Result = signed.body
            named = {each.digest for each in result.partial_sums}
            used, others = dict[int, Uint64Vector](), dict[int, Uint64Vector]()
            for each in (sums for by in self.of_kind(PartialSum).values() for sums in by):
                if each.body.cohort == result.cohort and each.digest in self._vectors:
                    index, vector = self._vectors[each.digest]
                    (used if each.digest in named else others)[index] = vector
            if len(used) < max(spec.threshold, len(named)):
                continue  # not all that the result is based on are shown
            if spec.sharing.committee is not None:
                others = {}  # nothing that came besides is part of the total
            total = summation.combine(spec.sharing, used, nodes=len(spec.compute_nodes))
            if total is None or not self._is_total(total.total, result):
                yield Misconduct(self._aggregator, "its result is not the sum of what it names")
                continue
            again = summation.combine(spec.sharing, used | others, nodes=len(spec.compute_nodes))
            for index in again.wrong if again is not None else ():
                yield Misconduct(spec.compute_nodes[index], _CONTRADICTS)
            for index, vector in others.items() if again is None else ():
                again = summation.combine(
                    spec.sharing, used | {index: vector}, nodes=len(spec.compute_nodes)
                )
                if again is None or again.wrong:
                    suspects = [index] if len(used) > spec.threshold else sorted([*used, index])
                    party = " or ".join(spec.compute_nodes[each] for each in suspects)
                    yield Misconduct(party, _CONTRADICTS)

    def _is_total(self, residues: Uint64Vector, result: Result) -> bool:
        values = to_ring(summation.decode(self._spec.body.sharing, residues))
        return encode_uint64(values) == result.values


@dataclass(frozen=True)
class Account:
    """A round's end, and its population in disjoint groups by what became of each client."""

    outcome: Literal["published", "abandoned", "open"]
    reason: AbandonmentReason | None  # of an abandoned round, by the aggregator
    abandoned_by: dict[str, AbandonmentReason]  # by Compute node
    groups: dict[str, BitMap]  # the clients of the population by what became of them
    summed: tuple[str, ...]  # nodes whose partial sums the result names
    misconduct: tuple[Misconduct, ...]
    refused: int  # documents that do not verify, or are not of this round

    def counts(self) -> dict[str, int]:
        """Return how many clients there are in each group that has any."""
        return {what: len(clients) for what, clients in self.groups.items() if clients}

    def of(self, client: int) -> str:
        """Say what became of a client."""
        for what, clients in self.groups.items():
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
    outcome: Literal["published", "abandoned", "open"] = "abandoned" if called_off else "open"
    groups = {"nothing was released" if called_off else "the round is open": population}
    summed: tuple[str, ...] = ()
    if results:
        outcome = "published"
        [result, *_] = [each for signed in results.values() for each in signed]
        summed = tuple(each.node for each in result.body.partial_sums)
        held = shown.holdings_behind(result.body.cohort)
        groups = {"left out: the holdings that would say why are not shown": population}
        if held is not None:
            groups = _groups(spec.body, shown.asked, held)
    return Account(
        outcome=outcome,
        reason=called_off[0].body.reason if called_off and not results else None,
        abandoned_by={
            name: signed[0].body.reason
            for name, signed in shown.of_kind(Abandonment).items()
            if name in spec.body.compute_nodes
        },
        groups=groups,
        summed=summed,
        misconduct=misconduct,
        refused=shown.refused,
    )


def _groups(
    spec: RoundSpec, asked: AskedHolders, held: dict[str, StoredAnswers]
) -> dict[str, BitMap]:
    """Return the clients of a published round, whose cohort these holdings give, in groups."""
    together = cohort_in(spec, held).holders
    without = _lacking(spec, held, asked.holders)
    differing = asked.holders - together - BitMap.union(BitMap(), *without.values())
    return {
        "in the cohort": asked.slots_of(together),
        **{
            f"left out: no share at {', '.join(nodes)}": asked.slots_of(holders)
            for nodes, holders in without.items()
        },
        "left out: its shares are of different answers": asked.slots_of(differing),
    }


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

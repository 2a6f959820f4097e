"""What must be true of a federation whatever befell it; judged from its wire, not from its word.

The audit opens every envelope that was ever sent, so it knows what each client contributed, and
compares that with the records, the noise that was drawn, and all that was released.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyroaring import BitMap

from shoal_holder.slots import slots_by_id
from shoal_kit.party import load_party
from shoal_protocol.jobs.totals import JobTotal
from shoal_protocol.journal import Chain, Shown
from shoal_protocol.privacy.accounting import Cost, compose
from shoal_protocol.rounds import attestations
from shoal_protocol.rounds.attestations import (
    Abandonment,
    Holdings,
    PartialSum,
    Result,
    StoredAnswers,
    Vote,
)
from shoal_protocol.rounds.round_spec import AskedHolders, RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.envelope import SIGNATURE_BYTES
from shoal_protocol.sharing.received import Envelope, parse, unframe
from shoal_protocol.sharing.shares import Share
from shoal_protocol.trust.roster import Roster
from shoal_protocol.trust.succession import ManifestStatement
from shoal_protocol.wire.documents import decode, from_json
from shoal_protocol.wire.encoding import Int64Vector
from shoal_protocol.wire.errors import ProtocolError
from shoal_protocol.wire.vectors import decode_uint64
from tests.world.adding import added
from tests.world.around_holder import state_of
from tests.world.chance import FixedNoise, fixed_bytes
from tests.world.federation import Federation
from tests.world.people import rows_at
from tests.world.spending import costs_of
from tests.world.trust import SITES


@dataclass
class Seen:
    """All that went over the wire, by round."""

    roster: Roster
    specs: dict[str, RoundSpec] = field(default_factory=dict)
    envelopes: dict[tuple[str, int], dict[int, set[bytes]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    """By round and data holder, then by node: different bytes that were sent, signatures aside."""
    signed: dict[tuple[str, str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    """By round, kind and signer: digests of different documents."""
    holdings: dict[tuple[str, str], StoredAnswers] = field(default_factory=dict)
    holders: dict[tuple[str, str], set[tuple[str, ...]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    """By round and cohort digest: the nodes whose holdings give that cohort, by the votes."""
    results: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))

    def asked(self, round_id: str) -> AskedHolders:
        """Return the data holders that a round asks."""
        return AskedHolders.of(self.specs[round_id].clients(), self.roster)


def look_at(federation: Federation) -> Seen:
    """Read the whole log of the wire."""
    seen = Seen(federation.analyst_book.current.roster)
    for message in federation.wire.log:
        if message.path == "/v1/rounds":
            spec = decode(message.body, RoundSpec)
            seen.specs[spec.digest] = spec.body
        elif message.path.endswith(("/shares", "/shares/bulk")):
            bulk = not message.path.endswith("/shares")
            for encoded in unframe(message.body) if bulk else [message.body]:
                envelope = parse(encoded)
                if isinstance(envelope, Envelope):
                    encoded = encoded[:-SIGNATURE_BYTES] + bytes(SIGNATURE_BYTES)
                header = envelope.header
                seen.envelopes[header.round_id, header.holder][header.node].add(encoded)
        elif message.path.endswith(("/stored", "/refusals")):
            continue  # digests of, or envelopes that were seen when they were sent; no document
        elif message.path.endswith("/outcome") and message.receiver == "aggregator":
            if message.status == 200:
                [end, *_] = json.loads(message.answer)["documents"]
                signed = from_json(end, Result, Abandonment)
                if isinstance(signed.body, Result):
                    seen.results[signed.body.round].add(message.answer)
        elif message.method == "POST":
            for value in _documents(message.body):
                _note(seen, value)
        if message.path == "/v1/gossip" and message.status == 200:
            for value in _documents(message.answer):
                _note(seen, value)
    return seen


def _documents(body: bytes) -> list[Any]:
    value = json.loads(body)
    return list(value["documents"]) if "documents" in value else [value]


def _note(seen: Seen, value: Any) -> None:
    try:
        signed = from_json(value, Holdings, Vote, PartialSum, Abandonment)
    except ProtocolError:
        return  # a job request or a join: not of a round
    body = signed.body
    seen.signed[body.round, body.kind, signed.signer].add(signed.digest)
    if isinstance(body, Holdings):
        asked = attestations.asked_of(
            seen.specs[body.round], signed.signer, seen.asked(body.round).holders
        )
        seen.holdings[body.round, signed.signer] = body.held(asked)
    elif isinstance(body, Vote):
        seen.holders[body.round, body.cohort].add(body.nodes)


async def audit(federation: Federation) -> dict[str, dict[str, Any] | None]:
    """Check all that must hold, and return each round's result, None where it was abandoned."""
    assert not federation.wire.crashes, federation.wire.crashes
    seen = look_at(federation)
    federation.absent.clear()
    await federation.start_the_dead()  # all are asked
    for (round_id, kind, signer), digests in seen.signed.items():
        assert len(digests) == 1, f"{signer} signed two documents of kind {kind} in {round_id}"
    for by_node in seen.envelopes.values():
        assert all(len(sent) == 1 for sent in by_node.values()), "a retry sent other bytes"
    assert all(len(found) == 1 for found in seen.results.values()), "two results of one round"
    await _check_journals(federation)
    await _check_ledgers(federation, seen)
    results = {}
    for round_id, spec in seen.specs.items():
        results[round_id] = await _check_round(federation, seen, round_id, spec)
    return results


async def _check_journals(federation: Federation) -> None:
    """Check that each node's journal is one chain of statements that the node signed."""
    for node in federation.nodes:
        chain, book = Chain(JobTotal, ManifestStatement), federation.party(node).resources.book
        path: str | None = "/v1/journal"
        while path is not None:
            page = (await federation.ask(node, path)).json()
            for entry in page["entries"]:
                if (signed := chain.follow(Shown.model_validate(entry))) is not None:
                    book.get(signed.body.manifest).verify(signed)
            path = None if page["next"] is None else f"/v1/journal?after={page['next']}"


async def _check_round(
    federation: Federation, seen: Seen, round_id: str, spec: RoundSpec
) -> dict[str, Any] | None:
    result, shown = await federation.result(round_id), await federation.outcome(round_id)
    if result is None:
        assert not seen.results[round_id], "a result was shown and withdrawn"
        assert len(shown) <= 1, "partial sums of a round without result"
        return None
    kinds = {each["body"]["kind"] for each in shown[1:]}
    assert kinds == {"partial_sum"}, "a round both published and abandoned"
    assert len(result["partial_sums"]) >= spec.threshold
    cohort = cohort_in(seen, round_id, result["cohort"])
    assert result["cohort_size"] == seen.asked(round_id).count(cohort) >= spec.minimum_cohort
    contributions = contributions_of(federation, seen, round_id, spec)
    expected = np.sum([contributions[holder] for holder in cohort], axis=0)
    values = decode_uint64(result["values"]).view(np.int64)
    assert values.tolist() == expected.tolist(), "not the sum over the cohort"
    _check_noise(federation, spec, contributions)
    return result


def cohort_in(seen: Seen, round_id: str, digest: str) -> BitMap:
    """Return the data holders of a cohort, by the holdings that the votes for it name."""
    voted = seen.holders[round_id, digest]
    assert voted, "a cohort that nobody voted for"
    assert all(len(nodes) >= seen.specs[round_id].threshold for nodes in voted)
    spec = seen.specs[round_id]
    found = {
        nodes: attestations.cohort_in(spec, {node: seen.holdings[round_id, node] for node in nodes})
        for nodes in voted
    }
    assert {attestations.digest_in(spec, each, nodes) for nodes, each in found.items()} == {digest}
    return next(iter(found.values())).holders


def contributions_of(
    federation: Federation, seen: Seen, round_id: str, spec: RoundSpec
) -> dict[int, Int64Vector]:
    """Return what each holder that sent to enough nodes contributed, shape (dimension,)."""
    scheme, nodes = spec.sharing, spec.compute_nodes
    opened = {}
    for (of_round, holder), by_node in seen.envelopes.items():
        if of_round == round_id and len(by_node) >= spec.opening:
            sums = {}
            members = scheme.members(holder=holder, nodes=len(nodes))
            assert by_node.keys() <= set(members), "a share for a node of another committee"
            for index, sent in sorted(by_node.items()):
                # a retry sends the same share
                [share] = {_open(federation, nodes[index], each, spec) for each in sent}
                sums[members.index(index)] = added(scheme, [share], spec.dimension)
            among_members = scheme.model_copy(update={"committee": None})
            combined = summation.combine(among_members, sums, nodes=len(members))
            assert combined is not None, "the shares of one answer contradict each other"
            opened[holder] = summation.decode(scheme, combined.total)
    return opened


def _open(federation: Federation, node: str, encoded: bytes, spec: RoundSpec) -> Share:
    envelope = parse(encoded)
    version = federation.party(node).resources.book.get(spec.manifest)
    kept = federation.trust.directory / "kept for the audit" / node  # of keys that are erased
    home = kept if kept.exists() else federation.trust.directory / "parties" / node
    key = load_party(home).box_key_in(version)
    return envelope.open(bytes(key), bytes(key.public_key))


def _check_noise(
    federation: Federation, spec: RoundSpec, contributions: dict[int, Int64Vector]
) -> None:
    """Each contribution is the holder's own records and noise drawn for nothing else."""
    used: Counter[tuple[int, ...]] = Counter()
    for site, holder, records in _encoded_records(federation, spec):
        noise = federation.noise[site]
        if holder in contributions and isinstance(noise, FixedNoise):
            rest = (contributions[holder] - records).tolist()
            for coordinates, _ in spec.noise_blocks():
                block, rest = tuple(rest[:coordinates]), rest[coordinates:]
                drawn = noise.blocks(coordinates)
                assert drawn[block] == 1, "a contribution is not a record plus fresh noise"
                used[block] += 1
    assert all(count == 1 for count in used.values()), "two answers have the same noise"


def _encoded_records(
    federation: Federation, spec: RoundSpec
) -> Iterator[tuple[str, int, Int64Vector]]:
    roster = federation.trust.consortium.roster
    for site in SITES:
        records = federation.trust.records(site)
        holder = roster.holder_with(federation.trust.key(site).verify_key)
        assert holder is not None
        own = roster.slots_of(holder)
        # of its table, for the key that it has may not be on the roster any more
        state = state_of(federation.holder(site))
        given = slots_by_id(state.file, records.identity, own, fixed_bytes("none is drawn"))
        places = {slot: place for place, (slot, _) in enumerate(given)}
        encoded = [
            spec.query.encode(rows_at(records, places[slot], spec.query.column_names))
            for slot in spec.clients() & own
        ]
        if encoded:
            yield site, holder, np.sum(encoded, axis=0)


async def _check_ledgers(federation: Federation, seen: Seen) -> None:
    """Each client has paid for every round in which anything of it was ever sent, and once."""
    paid: dict[int, list[Cost]] = {}
    for site in SITES:
        paid |= await costs_of(federation.holder(site))
    owed: dict[int, list[Cost]] = defaultdict(list)
    for round_id, holder in seen.envelopes:
        for slot in seen.asked(round_id).slots_of(BitMap([holder])):
            owed[slot].append(seen.specs[round_id].cost)
    for client, costs in owed.items():
        covered, price = compose(paid[client]), compose(costs)
        assert covered.mu >= price.mu * (1 - 1e-12), "a release that nobody paid for"
        assert covered.epsilon >= price.epsilon * (1 - 1e-12), "a release that nobody paid for"

"""The next version of a manifest is believed by the log's proof, or in an emergency that is one."""

from dataclasses import replace
from typing import Any

import pytest

from shoal_protocol.log.entries import decode_entry
from shoal_protocol.log.notes import LogProof, TooFewWitnesses
from shoal_protocol.log.tiles import WrongProof
from shoal_protocol.trust.manifest import AUTHORITY_NAME, Manifest
from shoal_protocol.trust.succession import following_version, log_entry
from shoal_protocol.wire.documents import Signed, sign
from shoal_protocol.wire.errors import BadSignature, MalformedDocument
from tests.world import examples
from tests.world.logs import NODES, rounds, signed, tree, version

POLICY = examples.POLICY.model_copy(update={"cosignatures": 2})
NOW = examples.consortium(policy=POLICY)


def following(**changes: Any) -> Signed[Manifest]:
    place = {"sequence": 2, "previous": NOW.digest}
    body = NOW.manifest.model_copy(update=place | changes)
    return sign(body, AUTHORITY_NAME, examples.AUTHORITY)


def proved(signed_manifest: Signed[Manifest], *nodes: str) -> Signed[Manifest]:
    entries = [version(), *rounds(3), decode_entry(log_entry(signed_manifest.body))]
    proof = LogProof(7, tree(entries).inclusion(7), signed(entries, nodes, manifest=NOW.manifest))
    return replace(signed_manifest, log_proof=str(proof))


def accept(signed_manifest: Signed[Manifest]) -> None:
    accepted = following_version(NOW, signed_manifest.encode(), NOW.roster.encode())
    assert accepted.signed_manifest.log_proof == signed_manifest.log_proof
    assert accepted.digest == signed_manifest.digest


def test_a_version_is_believed_once_a_quorum_signed_the_log_with_it() -> None:
    accept(proved(following(), *NODES))
    accept(proved(following(), *NODES[1:]))
    for nodes in (NODES[:1], []):
        with pytest.raises(TooFewWitnesses):
            accept(proved(following(), *nodes))
    with pytest.raises(TooFewWitnesses):
        accept(following())


def test_the_proof_is_of_this_version() -> None:
    other = following(policy=POLICY.model_copy(update={"minimum_cohort": 11}))
    stolen = replace(other, log_proof=proved(following(), *NODES).log_proof)
    with pytest.raises(WrongProof):
        accept(stolen)
    with pytest.raises(MalformedDocument):
        accept(replace(other, log_proof="nothing"))


def test_the_nodes_of_the_next_version_cannot_sign_for_it() -> None:
    nodes = tuple(
        node.model_copy(
            update={"verify_key": bytes(examples.signing_key(f"new-{node.name}").verify_key).hex()}
        )
        for node in NOW.manifest.compute_nodes
    )
    later = following(compute_nodes=nodes)
    entries = [decode_entry(log_entry(later.body))]
    note = signed(entries, [], manifest=NOW.manifest)
    proof = LogProof(0, [], note)
    with pytest.raises(TooFewWitnesses):
        accept(replace(later, log_proof=str(proof)))
    accept(proved(later, *NODES))


def test_a_consortium_from_before_the_log_needs_none_until_it_asks_for_it() -> None:
    first = examples.CONSORTIUM
    assert first.manifest.policy.cosignatures is None
    place = {"sequence": 2, "previous": first.digest}
    second = first.manifest.model_copy(update=place | {"policy": POLICY})
    encoded = sign(second, AUTHORITY_NAME, examples.AUTHORITY).encode()
    accepted = following_version(first, encoded, first.roster.encode())
    assert accepted.manifest.quorum == 2


def replaced(count: int) -> tuple[Any, ...]:
    """Return the Compute nodes with other ones, by name, in the places of the last `count`."""
    kept = NOW.manifest.compute_nodes[: len(NODES) - count]
    new = [
        node.model_copy(update={"name": f"{node.name}-new"})
        for node in NOW.manifest.compute_nodes[len(NODES) - count :]
    ]
    return (*kept, *new)


def test_an_emergency_counts_only_where_fewer_nodes_stay_than_must_sign() -> None:
    accept(following(compute_nodes=replaced(2), emergency="two sites burnt"))
    moved = NOW.manifest.aggregator.model_copy(update={"name": "aggregator-new"})
    accept(following(aggregator=moved, emergency="the aggregator's disk is lost"))
    for changes in ({}, {"compute_nodes": replaced(1)}):
        with pytest.raises(MalformedDocument, match="no emergency"):
            accept(following(emergency="no reason", **changes))
    with pytest.raises(TooFewWitnesses):
        accept(following(compute_nodes=replaced(2)))


def test_a_broken_signature_in_the_proof_is_refused() -> None:
    made = proved(following(), *NODES)
    assert made.log_proof is not None
    lines = made.log_proof.splitlines()
    name, _, encoded = lines[-1].rpartition(" ")
    head = encoded[:40] + ("A" if encoded[40] != "A" else "B") + encoded[41:]
    lines[-1] = f"{name} {head}"
    with pytest.raises(BadSignature):
        accept(replace(made, log_proof="\n".join(lines) + "\n"))

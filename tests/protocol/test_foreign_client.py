"""A client written from docs/protocol.md alone is understood, and agrees with the vectors."""

import ast
import base64
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings
from nacl.signing import SigningKey

from docs import worked_example
from shoal_protocol.jobs.membership import Membership
from shoal_protocol.privacy.accounting import Cost
from shoal_protocol.privacy.mechanisms import DiscreteGaussianNoise
from shoal_protocol.queries import Mechanism, Query
from shoal_protocol.rounds.round_spec import RoundSpec
from shoal_protocol.sharing import summation
from shoal_protocol.sharing.received import parse
from shoal_protocol.sharing.schemes import AdditiveSharing, ThresholdSharing
from shoal_protocol.sharing.shares import from_ring
from shoal_protocol.trust.manifest import Consortium
from shoal_protocol.wire.documents import decode
from shoal_protocol.wire.encoding import canonical_json, encode_clients, parse_canonical_json
from tests.privacy.test_prediction_sensitivity import make as make_predictions
from tests.protocol import foreign_client as foreign
from tests.protocol import foreign_crowd
from tests.vectors.make_vectors import FOLDER
from tests.vectors.operations import Inputs
from tests.world import examples
from tests.world.adding import added
from tests.world.examples import (
    CONSORTIUM,
    DIMENSION,
    DOCUMENTS,
    LAPLACE_CONSORTIUM,
    MATRIX,
    NODES,
    SHARING,
    SPEC,
    THRESHOLD,
    THRESHOLD_CONSORTIUM,
    THRESHOLD_JOB,
    THRESHOLD_SPEC,
    box_key,
    box_private_key,
    client_key,
    named,
    random_bytes,
    signing_key,
)
from tests.world.examples import spec as make_example_spec
from tests.world.strategies import client_sets, finite_floats, gradient_sums, json_values, queries

RECORDS = [[47.0, 133.5], [81.0, 160.0]]
NOISE = [12_345_678, -87_654_321, 5, 0, -1, 999_999, 77]
NOW = "2026-03-01T12:00:30.000Z"


def make_client(client: int, consortium: Consortium = CONSORTIUM) -> foreign.Client:
    manifest = consortium.signed_manifest.encode()
    return foreign.Client(
        manifest, consortium.roster.encode(), consortium.digest, client_key(client)
    )


def answer(spec: bytes, client: int = 4) -> list[bytes]:
    holder = make_client(client)
    holder.join(DOCUMENTS["job_request"].encode())
    return holder.answer(spec, RECORDS, NOISE, random_bytes("foreign"), NOW)


def test_it_shares_no_code_with_the_product() -> None:
    sources = [Path(each.__file__ or "").read_text() for each in (foreign, foreign_crowd)]
    modules = {
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name.partition(".")[0] for name in modules} <= {
        *(
            "base64",
            "hashlib",
            "itertools",
            "json",
            "math",
            "re",
            "statistics",
            "struct",
            "typing",
            "collections",
        ),
        *("decimal", "fractions", "hmac", "nacl", "tests"),
    }


def test_its_chacha20_is_that_of_rfc_8439() -> None:
    # section 2.3.2
    block = foreign.chacha20_block(bytes(range(32)), 1, bytes.fromhex("000000090000004a00000000"))
    assert block.hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


def test_its_join_is_accepted() -> None:
    signed = decode(make_client(3).join(DOCUMENTS["job_request"].encode()), Membership)
    CONSORTIUM.verify(signed)
    assert signed == DOCUMENTS["membership"]


@pytest.mark.parametrize("client", [0, 1, 2, 11])
def test_its_envelopes_are_accepted_and_add_up_to_its_noisy_answer(client: int) -> None:
    sums = []
    for node, encoded in enumerate(answer(DOCUMENTS["round_spec"].encode(), client)):
        received = parse(encoded)
        assert (received.header.node, received.header.holder) == (node, client)
        assert received.header.manifest == CONSORTIUM.digest
        assert received.header.round_id == SPEC.digest
        received.verify(CONSORTIUM.roster.key_of(client))
        share = received.open(box_private_key(node), box_key(node))
        summation.check(SHARING, share, holder=client, node=node, nodes=NODES, dimension=DIMENSION)
        sums.append(added(SHARING, [share], DIMENSION))
    total = from_ring(summation.combine(SHARING, dict(enumerate(sums)), nodes=NODES).total)
    assert np.array_equal(total, MATRIX.encode(np.array(RECORDS)) + NOISE)


@pytest.mark.parametrize("client", [0, 1, 2, 11])
def test_any_two_of_its_three_threshold_shares_give_its_noisy_answer(client: int) -> None:
    holder = make_client(client, THRESHOLD_CONSORTIUM)
    holder.join(named("analyst", THRESHOLD_JOB).encode())
    encoded = named("trainer", THRESHOLD_SPEC).encode()
    sealed = holder.answer(encoded, RECORDS, NOISE, random_bytes("foreign"), NOW)
    sums = {}
    for node, each in enumerate(sealed):
        share = parse(each).open(box_private_key(node), box_key(node))
        summation.check(
            THRESHOLD, share, holder=client, node=node, nodes=NODES, dimension=DIMENSION
        )
        sums[node] = added(THRESHOLD, [share], DIMENSION)
    for missing in range(NODES):
        seen = {node: vector for node, vector in sums.items() if node != missing}
        combined = summation.combine(THRESHOLD, seen, nodes=NODES)
        assert combined is not None
        total = summation.decode(THRESHOLD, combined.total)
        assert np.array_equal(total, MATRIX.encode(np.array(RECORDS)) + NOISE)


def test_its_answer_in_committees_goes_to_its_own_nodes_alone() -> None:
    policy = examples.POLICY.model_copy(update={"minimum_committee": 2})
    consortium = examples.consortium(policy=policy)
    sharing = AdditiveSharing(committee=2)
    job = DOCUMENTS["job_request"].body.model_copy(
        update={"manifest": consortium.digest, "sharing": sharing}
    )
    spec = examples.spec(manifest=consortium, sharing=sharing, job=job.digest, query=MATRIX)
    for client in (0, 2, 3, 5):
        holder = make_client(client, consortium)
        holder.join(named("analyst", job).encode())
        encoded = named("trainer", spec).encode()
        sums = {}
        for each in holder.answer(encoded, RECORDS, NOISE, random_bytes("foreign"), NOW):
            node = parse(each).header.node
            share = parse(each).open(box_private_key(node), box_key(node))
            summation.check(
                sharing, share, holder=client, node=node, nodes=NODES, dimension=DIMENSION
            )
            sums[node] = added(sharing, [share], DIMENSION)
        assert list(sums) == sharing.members(holder=client, nodes=NODES)
        total = from_ring(np.sum(list(sums.values()), axis=0, dtype=np.uint64))
        assert np.array_equal(total, MATRIX.encode(np.array(RECORDS)) + NOISE)


@pytest.mark.parametrize(
    "changes",
    [
        {"proceed_at": THRESHOLD_SPEC.deadline},
        {"proceed_at": THRESHOLD_SPEC.give_up_at},
        {"sharing": ThresholdSharing(threshold=3)},
        {"sharing": SHARING},
    ],
    ids=str,
)
def test_it_refuses_a_bad_threshold_spec(changes: dict[str, Any]) -> None:
    holder = make_client(4, THRESHOLD_CONSORTIUM)
    holder.join(named("analyst", THRESHOLD_JOB).encode())
    encoded = named("trainer", THRESHOLD_SPEC.model_copy(update=changes)).encode()
    with pytest.raises(foreign.Refused):
        holder.answer(encoded, RECORDS, NOISE, random_bytes("foreign"), NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"noise": DiscreteGaussianNoise(scale=SPEC.noise.scale / 2)},
        {"noise": DiscreteGaussianNoise(scale=SPEC.noise.scale / 40), "mu": SPEC.mu * 40},
        {"mu": SPEC.mu / 2},
        {"minimum_cohort": 9},
        {"population_size": 13},
        {"population": encode_clients([*range(11), 19])},
        {"compute_nodes": ("compute-1", "compute-0", "compute-2")},
        {"dimension": 5},
        {"deadline": SPEC.opened_at},
        {"job": "00" * 32},
    ],
    ids=str,
)
def test_it_refuses_a_bad_spec(changes: dict[str, Any]) -> None:
    with pytest.raises(foreign.Refused):
        answer(named("trainer", SPEC.model_copy(update=changes)).encode())


def test_it_refuses_a_spec_by_another_party_and_another_manifest() -> None:
    with pytest.raises(foreign.Refused):
        answer(named("aggregator", SPEC).encode())
    forged = CONSORTIUM.signed_manifest.encode()
    with pytest.raises(foreign.Refused):
        foreign.Client(forged, CONSORTIUM.roster.encode(), "00" * 32, signing_key("client 0"))


@given(json_values)
def test_both_write_the_same_canonical_json(value: object) -> None:
    assert foreign.write_json(value) == canonical_json(value)
    assert foreign.read_json(canonical_json(value)) == parse_canonical_json(canonical_json(value))


@given(finite_floats)
def test_both_write_the_same_numbers(value: float) -> None:
    assert foreign.number(value).encode() == canonical_json(value)


@given(client_sets)
def test_both_write_the_same_sets(clients: set[int]) -> None:
    assert foreign.write_set(clients) == encode_clients(clients)
    assert foreign.read_set(encode_clients(clients)) == clients


def test_both_find_the_same_largest_mu() -> None:
    policy = CONSORTIUM.manifest.policy
    mine = foreign.largest_mu(policy.maximum_epsilon, policy.delta)
    assert mine == pytest.approx(policy.cap.mu, rel=1e-9)


def read_document(given: Inputs) -> dict[str, Any]:
    """Check a document as far as a client of the page's sections 2 to 4 can without a schema."""
    manifest, _, _ = foreign.read_signed(bytes.fromhex(given["manifest"]), "manifest")
    body, signer, signature = foreign.read_signed(bytes.fromhex(given["document"]), given["kind"])
    services = [*manifest["compute_nodes"], manifest["aggregator"], manifest["trainer"]]
    keys = {each["name"]: each["verify_key"] for each in services + manifest["analysts"]}
    roster = foreign.read_roster(bytes.fromhex(given["roster"]))
    if given["kind"] == "submission":
        foreign.require(body["client"] in range(len(roster)), "unknown")
        keys["client"] = roster[body["client"]][1].hex()
    elif given["kind"] in (*("membership", "holder_query", "charges_query", "holder_declaration"),):
        foreign.require(body["holder"] in dict(roster), "unknown")
        keys["holder"] = dict(roster)[body["holder"]].hex()
    foreign.require(signer in keys, "unknown signer")
    speaks_for = next((body[name] for name in ("node", "party", "analyst") if name in body), signer)
    if given["kind"] != "charges_query":  # which names the node that it asks
        foreign.require(signer == speaks_for, "speaks for another")
    foreign.verify(body, signature, keys[signer])
    return {"digest": foreign.sha256(given["kind"], foreign.write_json(body))}


def split_like_the_vector(given: Inputs) -> dict[str, Any]:
    seeds = iter(given["seeds"])
    secret, client, nodes = map(int, given["secret"]), given["holder"], given["nodes"]

    def draw(size: int) -> bytes:
        return bytes.fromhex(next(seeds))

    mine, turn = foreign.members(given["sharing"], client, nodes)
    if given["sharing"]["scheme"] == "additive":
        shares = foreign.split(list(secret), turn, len(mine), draw)
    else:
        threshold = given["sharing"]["threshold"]
        shares = foreign.split_by_threshold(list(secret), turn, len(mine), threshold, draw)
    return {
        "kinds": [["seed", "vector"][kind] for kind, _ in shares],
        "bytes": [payload.hex() for _, payload in shares],
    }


def signed_like_the_vector(given: Inputs) -> dict[str, Any]:
    key = SigningKey(bytes.fromhex(given["signing_seed"]))
    encoded = foreign.sign(given["body"], given["signer"], key)
    digest = foreign.sha256(given["body"]["kind"], foreign.write_json(given["body"]))
    signature = json.loads(encoded)["signature"]
    return {"bytes": encoded.hex(), "digest": digest, "signature": signature}


catalogue = (
    queries
    | gradient_sums
    | st.builds(
        make_predictions,
        st.sampled_from(["normal", "logistic", "poisson"]),
        sites=st.integers(1, 5),
        records=st.integers(1, 3),
        bins=st.integers(1, 20),
        score_limit=st.floats(1e-3, 1.0),
        grid_bits=st.integers(4, 15),
    )
)


@given(query=catalogue, seed=st.integers(0, 2**32 - 1))
def test_it_encodes_any_records_as_the_product_does(query: Query, seed: int) -> None:
    shape = query.records_per_client, len(query.column_names)
    records = np.random.default_rng(seed).uniform(-1.2, 1.2, shape)
    theirs = foreign.evaluate(json.loads(query.model_dump_json()), records.tolist())
    assert theirs == query.encode(records).tolist()
    assert max(map(abs, theirs)) <= query.largest_value


@given(query=catalogue, mechanism=st.sampled_from(["discrete_gaussian", "discrete_laplace"]))
def test_it_finds_the_same_sensitivities_and_blocks(query: Query, mechanism: Mechanism) -> None:
    design = query.design(mechanism)
    gaussian = mechanism == "discrete_gaussian"
    facts = foreign.describe(json.loads(query.model_dump_json()), gaussian=gaussian)
    assert facts["sensitivity"] == pytest.approx(design.sensitivity, rel=1e-14)
    blocks = [(block.coordinates, block.relative_scale) for block in design.blocks]
    assert [size for size, _ in facts["blocks"]] == [size for size, _ in blocks]
    scales = [scale for _, scale in blocks]
    assert [scale for _, scale in facts["blocks"]] == pytest.approx(scales, rel=1e-15)
    assert (facts["dimension"], facts["largest_value"]) == (query.dimension, query.largest_value)


@pytest.mark.parametrize("radius", [None, 0.4])
def test_it_accepts_laplace_noise_at_its_price_and_no_less(radius: float | None) -> None:
    both = LAPLACE_CONSORTIUM
    spec = make_example_spec(
        manifest=both,
        mechanism="discrete_laplace",
        cost=Cost.pure(1.5),
        query=MATRIX.model_copy(update={"radius": radius}),
    )
    assert foreign_check(spec, both) is None
    less = spec.noise.model_copy(update={"scale": spec.noise.scale / 2})
    for changes in ({"noise": less}, {"epsilon": 0.75}, {"mu": spec.mu / 2}, {"epsilon": None}):
        with pytest.raises(foreign.Refused):
            foreign_check(spec.model_copy(update=changes), both)


def foreign_check(spec: RoundSpec, under: Consortium) -> None:
    body = json.loads(spec.model_dump_json())
    client = make_client(4, under)
    foreign.check_spec(body, client.manifest, client.slots, NOW)


def query_like_the_vector(given: Inputs) -> dict[str, Any]:
    values = foreign.evaluate(given["query"], given["records"])
    return {"values": values, "bytes": struct.pack(f"<{len(values)}q", *values).hex()}


def set_like_the_vector(given: Inputs) -> dict[str, Any]:
    clients = [client for first, last in given["runs"] for client in range(first, last + 1)]
    return {"bytes": base64.b64decode(foreign.write_set(clients)).hex()}


STREAMS = {"additive": foreign.stream, "threshold": foreign.field_stream}
FOREIGN_OPERATIONS: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "encode_json": lambda given: {"bytes": foreign.write_json(given["value"]).hex()},
    "decode_json": lambda given: {
        "bytes": foreign.write_json(foreign.read_json(bytes.fromhex(given["bytes"]))).hex()
    },
    "encode_set": set_like_the_vector,
    "decode_set": lambda given: {"clients": sorted(foreign.read_set(given["base64"]))},
    "cohort_digest": lambda given: {
        "digest": foreign.sha256(
            "committees_cohort" if "nodes" in given else "cohort",
            bytes.fromhex(given["round"])
            + (foreign.write_json(given["nodes"]) if "nodes" in given else b"")
            + b"".join(
                struct.pack("<I", holder) + bytes.fromhex(given["tags"])[4 * place :][:4]
                for place, holder in enumerate(given["holders"])
            ),
        )
    },
    "decode_roster": lambda given: {
        "digest": foreign.sha256("roster", bytes.fromhex(given["bytes"]))
        if foreign.read_roster(bytes.fromhex(given["bytes"]))
        else ""
    },
    "expand_seed": lambda given: {
        "bytes": struct.pack(
            f"<{given['dimension']}Q",
            *STREAMS[given["scheme"]](bytes.fromhex(given["seed"]), given["dimension"]),
        ).hex()
    },
    "split_secret": split_like_the_vector,
    "encode_query": query_like_the_vector,
    "pack_receipt_query": lambda given: {
        "bytes": foreign.receipt_query(bytes.fromhex(given["envelope"])).hex()
    },
    "sign_document": signed_like_the_vector,
    "accept_document": read_document,
    **foreign_crowd.OPERATIONS,
}
# What only a reader that knows each kind's fields, or who may sign what, can find.
NEEDS_A_SCHEMA = {
    *("an unknown field", "a missing field", "a number in quotes", "true for a number"),
    *("another manifest", "a party that may not sign this"),
}
VECTORS = [
    pytest.param(vector, id=f"{path.stem}: {vector['name']} ({vector['operation']})")
    for path in sorted(FOLDER.glob("*.json"))
    for vector in json.loads(path.read_text())
    if vector["operation"] in FOREIGN_OPERATIONS and vector["name"] not in NEEDS_A_SCHEMA
]


@pytest.mark.parametrize("vector", VECTORS)
def test_it_agrees_with_the_vector(vector: dict[str, Any]) -> None:
    operation = FOREIGN_OPERATIONS[vector["operation"]]
    if vector["success"]:
        outputs = vector.keys() - {"name", "operation", "inputs", "success"}
        assert operation(vector["inputs"]) == {key: vector[key] for key in outputs}
    else:
        with pytest.raises(foreign.Refused):
            operation(vector["inputs"])


def test_its_envelope_layout_is_that_of_the_vectors() -> None:
    # its sealed box is libsodium's own, so only the parts around the box repeat
    for vector in json.loads((FOLDER / "envelopes.json").read_text()):
        if vector["operation"] != "seal_share":
            continue
        given, theirs = vector["inputs"], bytes.fromhex(vector["bytes"])
        mine = foreign.envelope(
            (["seed", "vector"].index(given["kind"]), bytes.fromhex(given["payload"])),
            node=given["node"],
            holder=given["holder"],
            manifest=given["manifest"],
            round_id=given["round"],
            answer=bytes.fromhex(given["answer"]),
            box_key=given["box_key"],
            key=SigningKey(bytes.fromhex(given["signing_seed"])),
        )
        assert len(mine) == len(theirs)
        assert mine[:92] == theirs[:92]
        private = box_private_key(given["node"])
        public = bindings.crypto_scalarmult_base(private)
        assert bindings.crypto_box_seal_open(mine[92:-64], public, private) == (
            bindings.crypto_box_seal_open(theirs[92:-64], public, private)
        )


def test_it_computes_the_worked_example_of_the_page() -> None:
    spec = parse_canonical_json(worked_example.SPEC.canonical)
    manifest = parse_canonical_json(worked_example.MANIFEST.canonical)
    slots = foreign.read_roster(worked_example.ROSTER.encode())
    foreign.check_spec(spec, manifest, slots, spec["opened_at"])
    assert foreign.sha256("round_spec", foreign.write_json(spec)) == worked_example.SPEC.digest
    for answer, pressures in zip(worked_example.ANSWERS, worked_example.PRESSURES, strict=True):
        vectors = [foreign.evaluate(spec["query"], [[pressure]]) for pressure in pressures]
        assert np.sum(vectors, axis=0).tolist() == answer.vector.tolist()
        shares = [(int(share.kind), share.payload) for share in answer.shares]
        seeds = iter([payload for kind, payload in shares if kind == 0])
        noisy = answer.noisy.tolist()
        assert foreign.split(noisy, answer.holder, len(shares), lambda _: next(seeds)) == shares  # noqa: B023
        for node, (share, sealed) in enumerate(zip(shares, answer.envelopes, strict=True)):
            own = foreign.envelope(
                share,
                node=node,
                holder=answer.holder,
                manifest=worked_example.MANIFEST.digest,
                round_id=worked_example.SPEC.digest,
                answer=worked_example.answer_id(answer.holder),
                box_key=manifest["compute_nodes"][node]["box_key"],
                key=worked_example.holder_key(answer.holder),
            )
            opened = parse(own).open(examples.box_private_key(node), examples.box_key(node))
            assert own[:92] == sealed[:92]
            assert (int(opened.kind), opened.payload) == share

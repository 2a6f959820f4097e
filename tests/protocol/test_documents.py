"""Signed documents: what changes is detected, what is refused is refused without an echo."""

import importlib
import pkgutil
import traceback
from collections.abc import Iterator
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal_protocol
import shoal_studies
from shoal_protocol.jobs.membership import Approval, check_approval
from shoal_protocol.trust import dictionary, manifest
from shoal_protocol.trust.dictionary import DataDictionary, Number
from shoal_protocol.wire.documents import Document, Role, Signed, decode, describe
from shoal_protocol.wire.encoding import canonical_json
from shoal_protocol.wire.errors import (
    BadSignature,
    MalformedDocument,
    ProtocolError,
)
from tests.world import examples
from tests.world.crowd_examples import CROWD_CONSORTIUM, CROWD_DOCUMENTS
from tests.world.examples import CONSORTIUM, signing_key
from tests.world.strategies import Path, at_path, json_values, paths, replaced, without

DICTIONARY = DataDictionary(
    consortium=CONSORTIUM.manifest.consortium,
    authority=CONSORTIUM.manifest.authority,
    sequence=1,
    previous=None,
    variables=(Number(name="age", meaning="age at admission", unit="years", lower=18, upper=100),),
)
DOCUMENTS = (
    examples.DOCUMENTS
    | CROWD_DOCUMENTS
    | {DICTIONARY.kind: examples.named(Role.AUTHORITY, DICTIONARY)}
)
KINDS = sorted(DOCUMENTS)
MARKER = "zq7marker"
NUMBER_MARKER = 918273645546372
# What a peer might put where something else is due.
STAND_INS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    1.5,
    2**53 - 1,
    1e300,
    "",
    "0",
    "1",
    MARKER,
    MARKER.upper() + "\n",
    "é" + MARKER,
    f"2026-03-01T12:00:{MARKER[:2]}.000Z",
    NUMBER_MARKER,
    f"{NUMBER_MARKER}",
    [],
    [MARKER],
    [[MARKER]] * 3,
    {},
    {MARKER: MARKER},
    {"name": MARKER},
    {"kind": MARKER, "version": 1},
]


def every_document(of: type[Document] = Document) -> set[type[Document]]:
    found = set[type[Document]]()
    for kind in of.__subclasses__():
        if kind.__module__.startswith("shoal_"):  # tests make some of their own
            has_a_name = isinstance(kind.model_fields["kind"].default, str)
            found |= every_document(kind) or ({kind} if has_a_name else set())
    return found


def accept(encoded: bytes, like: Signed[Any]) -> Signed[Any]:
    """Decode and verify a document as a peer would, whom `like` is due."""
    signed = decode(encoded, type(like.body))
    if isinstance(signed.body, manifest.Manifest):
        roster = CONSORTIUM.roster.encode()
        pinned = manifest.Consortium.pinned(encoded, roster, digest=like.digest)
        signed = pinned.signed_manifest
    elif isinstance(signed.body, dictionary.DataDictionary):
        dictionary.read_dictionary(encoded, CONSORTIUM)
    elif isinstance(signed.body, Approval):
        check_approval(signed, bytes(signing_key("alice").verify_key).hex())
    else:
        (CROWD_CONSORTIUM if like.body.kind in CROWD_DOCUMENTS else CONSORTIUM).verify(signed)
    return signed


def fields_of(kind: str) -> list[Path]:
    """Return the paths in a document, but for those inside of documents that it embeds."""
    return [path for path in paths(DOCUMENTS[kind].to_json()) if path.count("body") < 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_comes_back_from_its_wire_form(kind: str) -> None:
    signed = DOCUMENTS[kind]
    assert accept(signed.encode(), signed).encode() == signed.encode()
    assert decode(signed.encode(), *every_document()).encode() == signed.encode()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_change_of_any_field_is_refused_and_never_echoed(kind: str) -> None:
    signed = DOCUMENTS[kind]
    wire = signed.to_json()
    for path in fields_of(kind):
        for stand_in in STAND_INS:
            changed = replaced(wire, path, stand_in)
            if changed == wire and canonical_json(changed) == signed.encode():
                continue
            refuse(canonical_json(changed), signed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_without_one_of_its_fields_is_refused(kind: str) -> None:
    signed = DOCUMENTS[kind]
    for path in fields_of(kind)[1:]:
        refuse(canonical_json(without(signed.to_json(), path)), signed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_with_an_unknown_field_anywhere_is_refused(kind: str) -> None:
    signed = DOCUMENTS[kind]
    for path in fields_of(kind):
        if isinstance(at_path(signed.to_json(), path), dict):
            refuse(canonical_json(replaced(signed.to_json(), (*path, MARKER), 1)), signed)


@given(st.sampled_from(KINDS), st.data())
def test_any_json_in_place_of_any_part_is_a_protocol_error(kind: str, data: st.DataObject) -> None:
    signed = DOCUMENTS[kind]
    path = data.draw(st.sampled_from(fields_of(kind)))
    changed = canonical_json(replaced(signed.to_json(), path, data.draw(json_values)))
    if changed != signed.encode():
        refuse(changed, signed)


@given(st.binary(max_size=80) | json_values.map(canonical_json), st.sampled_from(KINDS))
def test_arbitrary_bytes_are_refused_as_malformed(content: bytes, kind: str) -> None:
    with pytest.raises(MalformedDocument):
        decode(content, type(DOCUMENTS[kind].body))


def refuse(encoded: bytes, like: Signed[Any]) -> None:
    with pytest.raises(ProtocolError) as refusal:
        accept(encoded, like)
    told = "".join(traceback.format_exception(refusal.value)).lower()
    assert MARKER not in told
    assert str(NUMBER_MARKER) not in told


@pytest.mark.parametrize("kind", KINDS)
def test_a_document_where_another_kind_is_due_is_refused(kind: str) -> None:
    signed = DOCUMENTS[kind]
    for other in every_document() - {type(signed.body)}:
        with pytest.raises(MalformedDocument, match="another kind"):
            decode(signed.encode(), other)


def test_a_signature_over_one_kind_is_none_over_another_with_the_same_fields() -> None:
    vote = DOCUMENTS["vote"]
    holdings = DOCUMENTS["holdings"]
    forged = Signed(vote.body, vote.signer, holdings.signature)
    with pytest.raises(BadSignature):
        CONSORTIUM.verify(forged)


def test_a_signature_with_the_group_order_added_to_its_scalar_is_refused() -> None:
    # Ed25519 is malleable where S is not checked to be below L (RFC 8032, section 8.4)
    order = 2**252 + 27742317777372353535851937790883648493
    signed = DOCUMENTS["vote"]
    raw = bytes.fromhex(signed.signature)
    scalar = int.from_bytes(raw[32:], "little") + order
    forged = Signed(signed.body, signed.signer, (raw[:32] + scalar.to_bytes(32, "little")).hex())
    with pytest.raises(BadSignature):
        forged.verify_signature(signing_key("compute-1").verify_key)


@pytest.mark.parametrize("kind", KINDS)
def test_few_errors_are_built_however_many_faults_there_are(kind: str) -> None:
    """The errors themselves would take a thousand times the memory of what is wrong."""
    wire, names = DOCUMENTS[kind].to_json(), {f"z{number}": None for number in range(500)}
    names[MARKER] = None
    for at in paths(wire["body"]):
        found = at_path(wire["body"], at)
        if not isinstance(found, list | dict):
            continue
        wrong = [None] * 500 if isinstance(found, list) else found | names
        body = replaced(wire["body"], at, wrong) if at else wrong
        with pytest.raises((pydantic.ValidationError, MalformedDocument)) as refusal:
            type(DOCUMENTS[kind].body).model_validate(body)
        if isinstance(refusal.value, pydantic.ValidationError):
            assert refusal.value.error_count() < 100, at
            told = describe(refusal.value, type(DOCUMENTS[kind].body))
            assert MARKER not in told and len(told) < 2_000, at


def test_every_sequence_mapping_and_text_of_every_document_has_a_bound() -> None:
    for package in (shoal_protocol, shoal_studies):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    documents = set(all_kinds(Document))
    assert len(documents) > 35
    unbounded = set[str]()
    for document in documents:
        schema = document.model_json_schema()
        unbounded |= set(without_bound(schema, document.__name__))
        for name, part in schema.get("$defs", {}).items():
            unbounded |= set(without_bound(part, name))
    assert not unbounded


def all_kinds(kind: type[Document]) -> Iterator[type[Document]]:
    for each in kind.__subclasses__():
        yield each
        yield from all_kinds(each)


def without_bound(schema: Any, where: str) -> Iterator[str]:
    """Yield where a JSON schema takes any number of items, fields or letters."""
    if isinstance(schema, list):
        for each in schema:
            yield from without_bound(each, where)
    elif isinstance(schema, dict):
        bounds = {
            "array": {"maxItems"},
            "object": {"maxProperties", "properties"},
            "string": {"maxLength", "enum", "const", "format"},
        }
        known = bounds.get(schema.get("type", ""))
        if known is not None and not known & schema.keys():
            yield f"{where}: {schema}"
        for name, part in schema.items():
            if name == "properties":
                for inner, each in part.items():
                    yield from without_bound(each, f"{where}.{inner}")
            elif name not in ("$defs", "default", "const", "enum"):
                yield from without_bound(part, where)


class Inner(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    depth: int


class Outer(pydantic.BaseModel):
    inner: Inner
    table: dict[str, Inner]


def test_names_that_a_peer_made_up_are_not_told_but_our_own_are() -> None:
    with pytest.raises(pydantic.ValidationError) as refusal:
        Outer.model_validate(
            {
                "inner": {"depth": "deep", MARKER: 1},
                "table": {MARKER: {"depth": "deep", MARKER: 1}},
            }
        )
    told = describe(refusal.value, Outer)
    assert MARKER not in told
    assert "inner.depth: " in told
    assert "inner.*: is not known to release 1.0" in told
    assert "table.*.depth: " in told
    assert f"inner.{MARKER}: " in describe(refusal.value)  # for a file of one's own


def test_a_changed_copy_has_a_digest_of_its_own() -> None:
    original = CONSORTIUM.manifest
    before = original.digest
    copy = original.model_copy(update={"consortium": "another"})
    assert copy.digest != before
    assert original.model_copy().digest == before

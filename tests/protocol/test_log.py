"""The log's tree, tiles, notes and proofs, by published facts, by RFC 6962 and by mutation."""

import base64
import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from shoal_protocol.log import notes, tiles
from shoal_protocol.log.notes import COSIGNATURE, ED25519, Checkpoint, NoteKey, read_note
from shoal_protocol.log.tiles import (
    EMPTY_ROOT,
    Tree,
    WrongProof,
    check_consistency,
    check_inclusion,
    leaf_hash,
)
from shoal_protocol.wire.errors import BadSignature, MalformedDocument

FACTS = json.loads(Path(__file__).with_name("log_facts.json").read_text())
ENTRIES = [bytes.fromhex(each) for each in FACTS["entries"]]


def root_by_definition(leaves: Sequence[bytes]) -> bytes:
    """RFC 6962, section 2.1, word by word."""
    if not leaves:
        return sha256().digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    left, right = root_by_definition(leaves[:split]), root_by_definition(leaves[split:])
    return sha256(b"\x01" + left + right).digest()


def tree_of(leaves: Sequence[bytes]) -> Tree:
    def read(level: int, index: int, width: int) -> bytes:
        step = 256**level
        first = index * 256
        return b"".join(
            root_by_definition(leaves[at * step : (at + 1) * step])
            for at in range(first, first + width)
        )

    return Tree(len(leaves), read)


def numbered(count: int) -> list[bytes]:
    return [leaf_hash(str(number).encode()) for number in range(count)]


BIG = numbered(70_000)
BIG_TREE = tree_of(BIG)


def test_the_published_tree_has_the_published_roots_and_proofs() -> None:
    leaves = [leaf_hash(each) for each in ENTRIES]
    tree = tree_of(leaves)
    for fact in FACTS["consistency"]:
        proof = [base64.b64decode(each) for each in fact["proof"]]
        roots = [base64.b64decode(fact[each]) for each in ("old_root", "new_root")]
        assert [tree.root(fact["old"]), tree.root(fact["new"])] == roots
        assert tree.consistency(fact["old"], fact["new"]) == proof
        check_consistency(fact["old"], fact["new"], *roots, proof)
    for fact in FACTS["inclusion"]:
        leaf, root = base64.b64decode(fact["leaf"]), base64.b64decode(fact["root"])
        proof = [base64.b64decode(each) for each in fact["proof"]]
        check_inclusion(fact["index"], fact["size"], leaf, proof, root)
        if fact["size"] > 1:
            assert leaves[fact["index"]] == leaf
            assert tree.inclusion(fact["index"], fact["size"]) == proof


@given(st.integers(1, 70_000), st.data())
def test_every_proof_of_a_tree_of_three_levels_of_tiles_holds(
    size: int, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, size - 1))
    old = data.draw(st.integers(0, size))
    root = BIG_TREE.root(size)
    check_inclusion(index, size, BIG[index], BIG_TREE.inclusion(index, size), root)
    proof = BIG_TREE.consistency(old, size)
    check_consistency(old, size, BIG_TREE.root(old), root, proof)


def test_roots_are_those_of_the_definition() -> None:
    for size in [*range(20), 255, 256, 257, 511, 513, 65_537]:
        assert BIG_TREE.root(size) == root_by_definition(BIG[:size]), size
    assert BIG_TREE.root(0) == EMPTY_ROOT


@given(st.integers(2, 600), st.data())
def test_no_proof_holds_after_any_change(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    old = data.draw(st.integers(1, size - 1))
    included, consistent = BIG_TREE.inclusion(index, size), BIG_TREE.consistency(old, size)
    root, old_root = BIG_TREE.root(size), BIG_TREE.root(old)
    other = leaf_hash(b"another")
    changes: list[Callable[[list[bytes]], list[bytes]]] = [
        lambda proof: [*proof, other],
        lambda proof: [other, *proof],
        lambda proof: proof[:-1],
        lambda proof: proof[1:],
        lambda proof: [other, *proof[1:]],
        lambda proof: [*proof[:-1], other],
    ]
    change = data.draw(st.sampled_from(changes))
    if change(included) != included:
        with pytest.raises(WrongProof):
            check_inclusion(index, size, BIG[index], change(included), root)
    if change(consistent) != consistent:
        with pytest.raises(WrongProof):
            check_consistency(old, size, old_root, root, change(consistent))
    for wrong in [
        (index, size, other, included, root),
        (index, size, BIG[index], included, other),
        (size, size, BIG[index], included, root),
        (-1, size, BIG[index], included, root),
        ((index + 1) % size, size, BIG[index], included, root),
    ]:
        with pytest.raises(WrongProof):
            check_inclusion(*wrong)
    for wrong_pair in [(other, root), (old_root, other), (root, old_root)]:
        with pytest.raises(WrongProof):
            check_consistency(old, size, *wrong_pair, consistent)
    with pytest.raises(WrongProof):
        check_consistency(size, old, root, old_root, consistent)


def test_trees_of_one_size_are_consistent_only_if_they_are_one() -> None:
    root = BIG_TREE.root(7)
    check_consistency(7, 7, root, root, [])
    check_consistency(0, 7, EMPTY_ROOT, root, [])
    for old, old_root, proof in [
        (7, EMPTY_ROOT, []),
        (7, root, [root]),
        (0, root, []),
        (0, EMPTY_ROOT, [root]),
        (4, BIG_TREE.root(4), []),
    ]:
        with pytest.raises(WrongProof):
            check_consistency(old, 7, old_root, root, proof)


def test_tiles_lie_where_the_specification_says() -> None:
    for level, index, width, path in FACTS["paths"]:
        assert tiles.tile_path(level, index, width) == path
        assert tiles.tile_at(path) == (level, index, width)
    for size, fact in FACTS["tiles"].items():
        found = tiles.widths(int(size))
        assert sum(width == 256 for *_, width in found) == fact["full"]
        assert [list(each) for each in found if each[2] != 256] == fact["partial"]


@pytest.mark.parametrize(
    "path",
    [
        *("tile/0", "tile/0/1", "tile/0/0001", "tile/00/001", "tile/-1/001", "tile/64/001", "x"),
        *("tile/0/001.p/0", "tile/0/001.p/01", "tile/0/001.p/256", "tile/0/001.p/257"),
        *("tile/0/000/001", "tile/0/x000/001", "tile/x/001", "tile/0/x1/001", "tile/0/1_0"),
        *("tile/entries/../../party", "tile/0/\u0660\u0660\u0661"),
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(MalformedDocument):
        tiles.tile_at(path)


def test_a_published_note_verifies_and_a_changed_one_does_not() -> None:
    name, key_id, encoded = FACTS["note"]["key"].split("+")
    kind, *key = base64.b64decode(encoded)
    known = NoteKey(name, kind, bytes(key))
    assert (known.kind, known.id.hex()) == (ED25519, key_id)
    note = read_note(FACTS["note"]["note"])
    assert str(note) == FACTS["note"]["note"]
    assert note.signed_at(known) == 0
    with pytest.raises(BadSignature):
        read_note(str(note).replace("example message", "example massage")).signed_at(known)
    assert note.signed_at(NoteKey("example.com/bar", kind, bytes(key))) is None
    assert note.signed_at(NoteKey(name, COSIGNATURE, bytes(key))) is None


HEAD = Checkpoint("shoal-log/clinics", 20852163, bytes(range(32)))
LOG, WITNESS = SigningKey(bytes(32)), SigningKey(b"\x01" * 32)


def cosigned() -> notes.Note:
    signed = read_note(f"{HEAD.text}\n{notes.sign_note(HEAD.text, HEAD.origin, LOG)}")
    return signed.with_lines(notes.cosign(HEAD.text, "witness/1", WITNESS, at=1679315147))


def test_a_cosignature_is_of_the_text_behind_its_time() -> None:
    key = NoteKey("witness/1", COSIGNATURE, bytes(WITNESS.verify_key))
    note = cosigned()
    assert note.checkpoint == HEAD
    assert note.signed_at(key) == 1679315147
    [_, (_, signature)] = note.signatures
    assert signature[:4] == sha256(b"witness/1\n\x04" + bytes(WITNESS.verify_key)).digest()[:4]
    assert signature[4:12] == (1679315147).to_bytes(8, "big")
    message = f"cosignature/v1\ntime 1679315147\n{HEAD.text}".encode()
    assert WITNESS.verify_key.verify(message, signature[12:]) == message


@given(st.integers(0, 75), st.integers(1, 255))
def test_no_bit_of_a_cosignature_may_change(at: int, mask: int) -> None:
    [own, (name, signature)] = cosigned().signatures
    changed = bytes(each ^ (mask if place == at else 0) for place, each in enumerate(signature))
    note = notes.Note(HEAD.text, (own, (name, changed)))
    key = NoteKey("witness/1", COSIGNATURE, bytes(WITNESS.verify_key))
    if at < 4:
        assert note.signed_at(key) is None  # of an unknown key
    else:
        with pytest.raises(BadSignature):
            note.signed_at(key)


def test_a_cosignature_that_is_cut_off_is_refused() -> None:
    [own, (name, signature)] = cosigned().signatures
    key = NoteKey("witness/1", COSIGNATURE, bytes(WITNESS.verify_key))
    for length in (5, 11, 12, 75):
        with pytest.raises(BadSignature):
            notes.Note(HEAD.text, (own, (name, signature[:length]))).signed_at(key)


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "a\n1\n",
        "a\n1\n\n",
        f"{HEAD.text}\n- a AAAAAAA=\n",
        f"{HEAD.text}\n— a\n",
        f"{HEAD.text}\n— a+b AAAAAAA=\n",
        f"{HEAD.text}\n— a AAAA\n",
        f"{HEAD.text}\n— a AAAAAAB=\n",
        f"{HEAD.text}\n— a AAAAAAA=",
        f"{HEAD.text}\t\n— a AAAAAAA=\n",
        f"{HEAD.text}\n" + "— a AAAAAAA=\n" * 301,
    ],
)
def test_other_notes_are_refused(broken: str) -> None:
    with pytest.raises(MalformedDocument):
        read_note(broken)


def test_other_checkpoints_are_refused() -> None:
    for text in [f"{HEAD.text}more\n", HEAD.text[:-1], "\n" + HEAD.text, f"a\n1\n{'A' * 40}\n"]:
        with pytest.raises(MalformedDocument):
            _ = notes.Note(text, ()).checkpoint

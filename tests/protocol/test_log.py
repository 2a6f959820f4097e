"""The log's chain of hashes and the proofs from it, by the definition and by mutation."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_protocol.log.checkpoints import (
    GENESIS,
    MOST_BETWEEN,
    Entry,
    LogProof,
    Witnessed,
    WrongProof,
    entry_hash,
    followed,
)
from shoal_protocol.wire.encoding import canonical_json, sha256
from shoal_protocol.wire.errors import MalformedDocument
from tests.world import examples
from tests.world.logs import certificate, digest, proof, rounds, signed, version

ENTRIES: list[Entry] = [version(), *rounds(20), certificate(20)]
PARTIES = examples.CONSORTIUM


def test_a_head_is_of_the_head_before_it_and_the_entry() -> None:
    one, other = ENTRIES[0].encode(), ENTRIES[1].encode()
    first = sha256("log_head", bytes.fromhex(GENESIS + sha256("log_entry", one)))
    second = sha256("log_head", bytes.fromhex(first + sha256("log_entry", other)))
    assert followed(GENESIS, [entry_hash(one), entry_hash(other)]) == second
    assert followed(first, []) == first


@given(st.integers(1, len(ENTRIES)), st.data())
def test_a_proof_is_of_one_entry_and_comes_back_as_it_is_written(
    size: int, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, size - 1))
    made = proof(ENTRIES[:size], place, signed(ENTRIES[:size]))
    again = LogProof.decode(made.encode())
    assert (again, again.place) == (made, place)
    again.check(ENTRIES[place], PARTIES)
    with pytest.raises(WrongProof):
        again.check(certificate(20, which=2), PARTIES)


@given(st.integers(1, len(ENTRIES) - 1), st.data())
def test_no_proof_holds_after_any_change(place: int, data: st.DataObject) -> None:
    made = proof(ENTRIES, place, signed(ENTRIES))
    other = digest(1)
    changes: list[Callable[[LogProof], dict[str, object]]] = [
        lambda proof: {"before": other},
        lambda proof: {"after": (*proof.after, other)},
        lambda proof: {"after": (other, *proof.after)},
        lambda proof: {"after": proof.after[:-1]} if proof.after else {"before": GENESIS},
        lambda proof: {"witnessed": signed(ENTRIES[:-1])},
    ]
    changed = made.model_copy(update=data.draw(st.sampled_from(changes))(made))
    with pytest.raises(WrongProof):
        changed.check(ENTRIES[place], PARTIES)


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{}",
        b"[]",
        signed(ENTRIES).encode() + b" ",
        signed(ENTRIES).encode().replace(b'"size":42', b'"size":-1'),
        canonical_json({"checkpoint": {}, "cosignatures": []}),
    ],
)
def test_other_checkpoints_are_refused(broken: bytes) -> None:
    with pytest.raises(MalformedDocument):
        Witnessed.decode(broken)


def test_a_proof_has_no_more_hashes_than_there_are_between_checkpoints() -> None:
    made = proof(ENTRIES, 1, signed(ENTRIES)).model_dump(mode="json")
    LogProof.decode(canonical_json(made | {"after": [GENESIS] * MOST_BETWEEN}))
    with pytest.raises(MalformedDocument):
        LogProof.decode(canonical_json(made | {"after": [GENESIS] * (MOST_BETWEEN + 1)}))

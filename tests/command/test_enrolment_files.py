"""Enrolment files: the key and slots that come out are those that went in, proven by its owner."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from shoal_agent.client_files import Enrolment, read_enrolment
from shoal_kit.party import Endorsement, public_half

KEY, OTHER = SigningKey(b"\1" * 32), SigningKey(b"\2" * 32)
SLOTS = 300
ASKED = Enrolment.by(KEY, slots=SLOTS)
ROTATION = Enrolment.by(KEY, slots=SLOTS, replaces=OTHER)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("slots", [1, SLOTS, 2**32 - 1])
def test_key_and_slots_come_back(tmp_path, slots) -> None:
    found = read_enrolment(written(tmp_path / "file", Enrolment.by(KEY, slots=slots).encode()))
    assert (found.key, found.slots, found.replaces) == (KEY.verify_key, slots, None)


def test_a_key_that_another_one_signed_comes_back_with_it(tmp_path) -> None:
    found = read_enrolment(written(tmp_path / "file", ROTATION.encode()))
    assert (found.key, found.slots) == (KEY.verify_key, SLOTS)
    assert found.replaces == OTHER.verify_key


@pytest.mark.parametrize("slots", [0, 2**32])
def test_nobody_asks_for_more_slots_than_a_roster_has_or_for_none(slots) -> None:
    with pytest.raises(ValueError, match="slots"):
        Enrolment.by(KEY, slots=slots)


def signed(*keys: SigningKey, message: bytes = ASKED.message) -> bytes:
    return changed(endorsements=tuple(Endorsement.by(key, message) for key in keys))


def changed(**fields: object) -> bytes:
    return ASKED.model_copy(update=fields).encode()


NO_FILE, NO_PROOF = "is not an enrolment file", "not by the key beside it"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", NO_FILE),
        ("SECRET", NO_FILE),
        ('{"SECRET": 1}', NO_FILE),
        ("é" * 64, NO_FILE),
        (ASKED.encode() + b"more", NO_FILE),
        (changed(slots=0), NO_FILE),
        (changed(slots=2**32), NO_FILE),
        (ASKED.encode().replace(b"300", b'"300"'), NO_FILE),
        (signed(KEY, OTHER, OTHER), NO_FILE),
        ("ab" * 32 + "\n", r"private key file: hand over file\.enrolment"),
        (signed(), NO_PROOF),
        (signed(OTHER), NO_PROOF),
        (signed(OTHER, KEY), NO_PROOF),
        (signed(KEY, message=b"another"), NO_PROOF),
        (changed(slots=SLOTS + 1), NO_PROOF),
        (changed(verify_key=public_half(OTHER)), NO_PROOF),
        (changed(verify_key="00" * 32), NO_PROOF),
        (
            changed(endorsements=(*ASKED.endorsements, Endorsement.by(OTHER, b"another"))),
            NO_PROOF,
        ),
    ],
)
def test_what_is_no_enrolment_is_refused_with_its_file_named(tmp_path, content, message) -> None:
    file = written(tmp_path / "file", content)
    with pytest.raises(ValueError, match=message) as refusal:
        read_enrolment(file)
    assert str(file) in str(refusal.value)
    assert "SECRET" not in str(refusal.value)


WHOLE = ROTATION.encode().decode()


@given(position=st.integers(0, len(WHOLE) - 2), digit=st.sampled_from("0f z"))
def test_no_changed_character_passes(tmp_path_factory, position, digit) -> None:
    assume(not WHOLE[position].isspace() and WHOLE[position] != digit)
    changed = WHOLE[:position] + digit + WHOLE[position + 1 :]
    with pytest.raises(ValueError):
        read_enrolment(written(tmp_path_factory.mktemp("changed") / "file", changed))

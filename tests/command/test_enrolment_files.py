"""Enrolment files: the key and slots that come out are those that went in, proven by its owner."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from shoal_agent.client_files import Enrolment, encode_enrolment, read_enrolment
from shoal_protocol.wire.encoding import domain

KEY, OTHER = SigningKey(b"\1" * 32), SigningKey(b"\2" * 32)
PUBLIC, OTHER_PUBLIC = bytes(KEY.verify_key), bytes(OTHER.verify_key)
SLOTS = 300


def written(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


@pytest.mark.parametrize("slots", [1, SLOTS, 2**32 - 1])
def test_key_and_slots_come_back(tmp_path, slots) -> None:
    (tmp_path / "file").write_bytes(encode_enrolment(KEY, slots=slots))
    assert read_enrolment(tmp_path / "file") == Enrolment(KEY.verify_key, slots)


def _file(public: bytes, signer: SigningKey, message: bytes, slots: object = SLOTS) -> str:
    proof = signer.sign(message).signature.hex()
    return f"shoal enrolment 1\n{public.hex()} {slots} {proof}\n"


def _consent(signer: SigningKey, keys: bytes) -> str:
    proof = signer.sign(domain("key_replacement") + keys).signature.hex()
    return f"replaces {OTHER_PUBLIC.hex()} {proof}\n"


MESSAGE = domain("enrolment") + PUBLIC + SLOTS.to_bytes(4, "little")
WHOLE = encode_enrolment(KEY, slots=SLOTS).decode()
ROTATION = encode_enrolment(KEY, slots=SLOTS, replaces=OTHER).decode()


def test_a_key_that_another_one_signed_comes_back_with_it(tmp_path) -> None:
    file = written(tmp_path / "file", ROTATION)
    assert read_enrolment(file) == Enrolment(KEY.verify_key, SLOTS, OTHER.verify_key)
    assert ROTATION == WHOLE + _consent(OTHER, OTHER_PUBLIC + PUBLIC)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ROTATION + "more\n", "not one line with a verify key"),
        (WHOLE + f"replaces {OTHER_PUBLIC.hex()}\n", "not one line with a verify key"),
        (WHOLE + _consent(KEY, OTHER_PUBLIC + PUBLIC), "not by the key beside it"),
        (WHOLE + _consent(OTHER, PUBLIC + OTHER_PUBLIC), "not by the key beside it"),
        ("", "first line"),
        ("xyz\n", "first line"),
        ("é" * 64, "first line"),
        ("shoal enrolment 1\n", "not one line with a verify key"),
        ("shoal enrolment 1\nSECRET\n", "not one line with a verify key"),
        (_file(PUBLIC, KEY, MESSAGE) + "more\n", "the key that it replaces"),
        (_file(PUBLIC, KEY, MESSAGE, "0"), "not one line with a verify key"),
        (_file(PUBLIC, KEY, MESSAGE, f"0{SLOTS}"), "not one line with a verify key"),
        (_file(PUBLIC, KEY, MESSAGE, 2**32), "not one line with a verify key"),
        ("ab" * 32 + "\n", r"private key file: hand over file\.enrolment"),
        ("shoal enrolment 1\n" + "ab" * 32 + "\n", "private key file"),
        (_file(PUBLIC, OTHER, MESSAGE), "not by the key beside it"),
        (_file(PUBLIC, KEY, PUBLIC), "not by the key beside it"),
        (_file(PUBLIC, KEY, MESSAGE, SLOTS + 1), "not by the key beside it"),
        (_file(b"\0" * 32, KEY, MESSAGE), "not by the key"),
    ],
)
def test_what_is_no_enrolment_is_refused_with_its_file_named(tmp_path, content, message) -> None:
    file = written(tmp_path / "file", content)
    with pytest.raises(ValueError, match=message) as refusal:
        read_enrolment(file)
    assert str(file) in str(refusal.value)
    assert "SECRET" not in str(refusal.value)


@given(position=st.integers(18, len(ROTATION) - 2), digit=st.sampled_from("0f z"))
def test_no_changed_line_passes(tmp_path_factory, position, digit) -> None:
    assume(ROTATION[position] != digit)
    changed = ROTATION[:position] + digit + ROTATION[position + 1 :]
    with pytest.raises(ValueError):
        read_enrolment(written(tmp_path_factory.mktemp("changed") / "file", changed))

"""Enrolment files: the keys that come out are those that went in, each proven by its owner."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from shoal_agent.enrolment_files import encode_enrolment, read_enrolments
from shoal_protocol.wire.encoding import domain

KEYS = [SigningKey(bytes([number]) * 32) for number in range(1, 4)]


def written(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


def test_keys_come_back_in_their_order(tmp_path) -> None:
    for number, keys in enumerate((KEYS[:2], KEYS[2:])):
        (tmp_path / str(number)).write_bytes(encode_enrolment(keys))
    read = read_enrolments([tmp_path / "0", tmp_path / "1"])
    assert read == [key.verify_key for key in KEYS]


def test_each_line_is_the_key_and_its_own_signature() -> None:
    header, line = encode_enrolment(KEYS[:1]).decode().splitlines()
    public, proof = (bytes.fromhex(part) for part in line.split(" "))
    assert header == "shoal enrolment 1"
    assert public == bytes(KEYS[0].verify_key)
    KEYS[0].verify_key.verify(b"shoal/v1/enrolment\n" + public, proof)


def _line(public: bytes, signer: SigningKey, message: bytes) -> str:
    return f"shoal enrolment 1\n{public.hex()} {signer.sign(message).signature.hex()}\n"


PUBLIC = bytes(KEYS[0].verify_key)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "first line"),
        ("xyz\n", "first line"),
        ("é" * 64, "first line"),
        ("shoal enrolment 1\n", "holds no client's key"),
        ("shoal enrolment 1\nSECRET\n", "line 2 is not a verify key"),
        ("ab" * 32 + "\n", r"private key file: hand over file\.enrolment"),
        ("shoal enrolment 1\n" + "ab" * 32 + "\n", "private key file"),
        (_line(PUBLIC, KEYS[1], domain("enrolment") + PUBLIC), "not by the key beside it"),
        (_line(PUBLIC, KEYS[0], PUBLIC), "not by the key beside it"),
        (_line(b"\0" * 32, KEYS[0], domain("enrolment") + b"\0" * 32), "not by the key"),
    ],
)
def test_what_is_no_enrolment_is_refused_with_its_file_named(tmp_path, content, message) -> None:
    file = written(tmp_path / "file", content)
    with pytest.raises(ValueError, match=message) as refusal:
        read_enrolments([file])
    assert str(file) in str(refusal.value)
    assert "SECRET" not in str(refusal.value)


@given(position=st.integers(18, len(encode_enrolment(KEYS)) - 1), digit=st.sampled_from("0f z"))
def test_no_changed_line_passes(tmp_path_factory, position, digit) -> None:
    content = encode_enrolment(KEYS).decode()
    assume(content[position] != digit)
    changed = content[:position] + digit + content[position + 1 :]
    with pytest.raises(ValueError):
        read_enrolments([written(tmp_path_factory.mktemp("changed") / "file", changed)])

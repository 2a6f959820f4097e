"""Questions and answers of courier and vault: each side reads these, and nothing else."""

import io
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_holder import frames
from shoal_holder.frames import decode, encode
from shoal_holder.messages import (
    LARGEST_BYTES,
    Answer,
    Event,
    Letter,
    decoded,
    encoded,
    question_about,
)
from shoal_holder.vault import Vault
from shoal_protocol.wire.errors import MalformedDocument

JOB = "a" * 64
QUESTIONS = {
    verb.__qualname__: question_about(verb)
    for verb in (Vault.opened, Vault.take, Vault.due, Vault.settle)
}
OPENED = encode(question_about(Vault.opened)())


def framed(*pieces: bytes) -> bytes:
    body = b"".join(struct.pack("<I", len(each)) + each for each in pieces)
    return struct.pack("<I", len(body)) + body


@given(parts=st.lists(st.binary(max_size=40), max_size=1))
def test_a_message_comes_back_as_it_was(parts: list[bytes]) -> None:
    told = Answer(
        parts=tuple(parts),
        events=(Event(name="round taken", facts={"number": 3, "reason": None}),),
    )
    assert decode(encode(told), {"Answer": Answer}) == told
    assert frames.read(io.BytesIO(encode(told) + b"more")) == encode(told)


def test_an_answer_is_no_question_nor_a_question_an_answer() -> None:
    with pytest.raises(MalformedDocument):
        decode(OPENED, {"Answer": Answer})
    with pytest.raises(MalformedDocument):
        decode(encode(Answer()), QUESTIONS)


@pytest.mark.parametrize(
    "frame",
    [
        framed(),
        framed(b""),
        framed(b"[]"),
        framed(b"{"),
        framed(b"Vault.opened"),
        framed(b"\xff", b"{}"),
        framed(b"Vault.opened", b"[]"),
        framed(b"Vault.close", b"{}"),
        framed(b"Vault.opened", b'{"more":1}'),
        framed(b"Vault.opened", b"{}", b"more"),
        framed(b"Vault.take", b"{}"),  # no document with it
        framed(b"Vault.take", b"{}", b"one", b"two", b"three"),
        framed(b"Vault.due", b'{"without":["../../etc"]}'),
        framed(b"Vault.settle", b'{"letter":"../../etc","status":200}', b"answer"),
        framed(b"Vault.settle", b'{"letter":"join/' + JOB.encode() + b'","status":-1}', b"answer"),
        framed(b"Vault.settle", b'{"letter":"join/' + JOB.encode() + b'","status":200}'),
        framed(b"Vault.opened", b"[" * 100_000),
        framed(b"[" * 100_000),
        OPENED[:-1],
        OPENED + b"\0",
    ],
)
def test_what_is_no_message_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedDocument) as refusal:
        decode(frame, QUESTIONS)
    assert JOB not in str(refusal.value) and "etc" not in str(refusal.value)


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(noise: bytes) -> None:
    for frame in (noise, framed(noise)):
        try:
            decode(frame, QUESTIONS)
        except MalformedDocument:
            continue
        raise AssertionError("noise is no message")


@pytest.mark.parametrize(
    "sent",
    [b"\x01", struct.pack("<I", LARGEST_BYTES + 1), struct.pack("<I", 10) + b"short"],
)
def test_what_is_no_frame_is_not_waited_for(sent: bytes) -> None:
    with pytest.raises(MalformedDocument):
        frames.read(io.BytesIO(sent))


def test_the_end_of_a_pipe_is_no_frame() -> None:
    assert frames.read(io.BytesIO(b"")) is None


def test_bytes_are_beside_the_fields_and_never_shown() -> None:
    taken = question_about(Vault.take)(parts=(b"SECRET",))
    assert "SECRET" not in repr(taken)
    assert encode(taken).endswith(b"SECRET") and encode(taken).count(b"SECRET") == 1
    letter = Letter(id=f"join/{JOB}", party="trainer", path="/v1/jobs", body=b"\xffSECRET")
    assert "SECRET" not in repr(letter)
    assert decoded(Vault.due, encoded(Vault.due, (letter,))) == (letter,)


@pytest.mark.parametrize(
    "changes",
    [
        {"letter": "<script>"},
        {"letter": f"join/{JOB}/-1"},
        {"letter": f"join/{JOB}/1/1"},
        {"letter": f"join/{JOB}0"},
        {"status": 600},
        {"parts": ()},
    ],
)
def test_letters_are_named_by_what_they_are_about_and_answers_have_a_status(
    changes: dict[str, Any],
) -> None:
    settle = question_about(Vault.settle)
    fields = {"letter": f"join/{JOB}", "status": 409, "parts": (b"{}",)}
    assert settle.model_validate(fields)
    with pytest.raises(ValueError, match=next(iter(changes))):
        settle.model_validate(fields | changes)

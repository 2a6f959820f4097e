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
    answer_to,
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


TAKE, SETTLE = b"Vault.take\n", b"Vault.settle\n"


def framed(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + body


@given(value=st.binary(max_size=40))
def test_a_message_comes_back_as_it_was(value: bytes) -> None:
    told = answer_to(Vault.backup)(
        value=value,
        events=(Event(name="round taken", facts={"number": 3, "reason": None}),),
    )
    assert decode(encode(told), {"Answer": answer_to(Vault.backup)}) == told
    assert frames.read(io.BytesIO(encode(told) + b"more")) == encode(told)


def test_an_answer_is_no_question_nor_a_question_an_answer() -> None:
    with pytest.raises(MalformedDocument):
        decode(OPENED, {"Answer": Answer})
    with pytest.raises(MalformedDocument):
        decode(encode(Answer()), QUESTIONS)


@pytest.mark.parametrize(
    "frame",
    [
        framed(b""),
        framed(b"[]"),
        framed(b"{"),
        framed(b"Vault.opened"),
        framed(b"\xff\n{}"),
        framed(b"Vault.opened\n[]"),
        framed(b"Vault.close\n{}"),
        framed(b'Vault.opened\n{"more":1}'),
        framed(b"Vault.opened\n{}{}"),
        framed(TAKE + b"{}"),  # no document with it
        framed(TAKE + b'{"document":"b25l","roster":"dHdv","more":"dGhyZWU="}'),
        framed(TAKE + b'{"document":"no base64"}'),
        framed(b'Vault.due\n{"without":["../../etc"]}'),
        framed(SETTLE + b'{"letter":"../../etc","status":200,"body":""}'),
        framed(SETTLE + b'{"letter":"join/' + JOB.encode() + b'","status":-1,"body":""}'),
        framed(SETTLE + b'{"letter":"join/' + JOB.encode() + b'","status":200}'),
        framed(b"Vault.opened\n" + b"[" * 100_000),
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


def test_bytes_are_never_shown() -> None:
    taken = question_about(Vault.take)(document=b"SECRET")
    assert "SECRET" not in repr(taken)
    letter = Letter(id=f"join/{JOB}", party="trainer", path="/v1/jobs", body=b"\xffSECRET")
    assert "SECRET" not in repr(letter)
    told = answer_to(Vault.due)(value=(letter,))
    assert "SECRET" not in repr(told)
    assert decode(encode(told), {"Answer": answer_to(Vault.due)}).value == (letter,)


@pytest.mark.parametrize(
    "changes",
    [
        {"letter": "<script>"},
        {"letter": f"join/{JOB}/-1"},
        {"letter": f"join/{JOB}/1/1"},
        {"letter": f"join/{JOB}0"},
        {"status": 600},
        {"body": None},
    ],
)
def test_letters_are_named_by_what_they_are_about_and_answers_have_a_status(
    changes: dict[str, Any],
) -> None:
    settle = question_about(Vault.settle)
    fields = {"letter": f"join/{JOB}", "status": 409, "body": b"{}"}
    assert settle.model_validate(fields)
    with pytest.raises(ValueError, match=next(iter(changes))):
        settle.model_validate(fields | changes)

"""Messages between courier and vault: both sides read what the other writes, and nothing else."""

import io
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_holder import frames
from shoal_holder.crowds.messages import REQUESTS as CROWD_REQUESTS
from shoal_holder.frames import decode, encode
from shoal_holder.messages import (
    LARGEST_BYTES,
    REQUESTS,
    Bytes,
    Decided,
    Event,
    Hello,
    OfferJob,
    Pending,
    Receipt,
    kinds_of,
)
from shoal_protocol.wire.errors import MalformedDocument

JOB = "a" * 64


def framed(*pieces: bytes) -> bytes:
    body = b"".join(struct.pack("<I", len(each)) + each for each in pieces)
    return struct.pack("<I", len(body)) + body


@given(parts=st.lists(st.binary(max_size=40), max_size=1))
def test_a_message_comes_back_as_it_was(parts: list[bytes]) -> None:
    told = Bytes(
        parts=tuple(parts),
        events=(Event(name="round taken", facts={"number": 3, "reason": None}),),
    )
    assert decode(encode(told), kinds_of(Bytes)) == told
    assert frames.read(io.BytesIO(encode(told) + b"more")) == encode(told)


def test_kinds_are_told_apart_and_none_is_named_twice() -> None:
    assert not REQUESTS.keys() & CROWD_REQUESTS.keys()
    with pytest.raises(MalformedDocument):
        decode(encode(Decided(taken=True)), kinds_of(Bytes))
    with pytest.raises(MalformedDocument):
        decode(encode(Decided(taken=True)), REQUESTS)


@pytest.mark.parametrize(
    "frame",
    [
        framed(),
        framed(b""),
        framed(b"[]"),
        framed(b"{"),
        framed(b"Hello"),
        framed(b"\xff", b"{}"),
        framed(b"Hello", b"[]"),
        framed(b"Shutdown", b"{}"),
        framed(b"Hello", b'{"more":1}'),
        framed(b"OfferJob", b'{"job":"' + JOB.encode() + b'"}'),  # no request with it
        framed(b"OfferJob", b'{"job":"../../etc"}', b"request"),
        framed(b"Receipt", b'{"what":"money","about":"' + JOB.encode() + b'","outcome":"x"}'),
        framed(b"Pending", b'{"what":"join","about":"' + JOB.encode() + b'","node":-1}'),
        framed(b"Hello", b"[" * 100_000),
        framed(b"[" * 100_000),
        encode(Hello())[:-1],
        encode(Hello()) + b"\0",
    ],
)
def test_what_is_no_message_is_refused(frame: bytes) -> None:
    with pytest.raises(MalformedDocument) as refusal:
        decode(frame, REQUESTS)
    assert JOB not in str(refusal.value) and "etc" not in str(refusal.value)


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(noise: bytes) -> None:
    for frame in (noise, framed(noise)):
        try:
            decode(frame, REQUESTS)
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
    offer = OfferJob(job=JOB, parts=(b"SECRET",))
    assert "SECRET" not in repr(offer)
    assert json.loads(offer.model_dump_json()) == {"job": JOB}


def test_outcomes_are_codes() -> None:
    assert Receipt(what="join", about=JOB, outcome="too-late")
    with pytest.raises(ValueError, match="outcome"):
        Receipt(what="join", about=JOB, outcome="<script>")
    with pytest.raises(ValueError, match="about"):
        Pending(what="join", about="x")

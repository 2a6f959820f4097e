"""Questions and answers as bytes on a pipe, each in a frame of a stated length."""

import struct
from collections.abc import Mapping
from typing import BinaryIO, Final, TypeVar

import pydantic

from shoal_holder.messages import LARGEST_BYTES
from shoal_protocol.wire.documents import Model, describe
from shoal_protocol.wire.errors import MalformedDocument

_LENGTH: Final = struct.Struct("<I")
ModelT = TypeVar("ModelT", bound=pydantic.BaseModel)


def encode(message: pydantic.BaseModel) -> bytes:
    """Return a message's frame: its length, then the name of its class, a line feed, and its JSON.

    Raises:
        ValueError: the other side would not read so large a message.
    """
    fields = message.model_dump_json(exclude_defaults=True)
    body = f"{type(message).__name__}\n{fields}".encode()
    if len(body) > LARGEST_BYTES:
        raise ValueError("a message must not be larger than what the other side reads")
    return _LENGTH.pack(len(body)) + body


def decode(frame: bytes, kinds: Mapping[str, type[ModelT]]) -> ModelT:
    """Return the message in a frame, one of `kinds`.

    Raises:
        MalformedDocument: it is none of them, or not as it should be.
    """
    name, _, fields = frame[_LENGTH.size :].partition(b"\n")
    try:
        return kinds[name.decode()].model_validate_json(fields)
    except pydantic.ValidationError as error:
        raise MalformedDocument(describe(error, Model)) from None
    except (ValueError, KeyError):
        raise MalformedDocument("the frame holds no message that is known here") from None


def read(pipe: BinaryIO) -> bytes | None:
    """Return the next frame, None where the other side has ended.

    Raises:
        MalformedDocument: what comes is no frame, or ends within one.
    """
    head = pipe.read(_LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size or (size := _LENGTH.unpack(head)[0]) > LARGEST_BYTES:
        raise MalformedDocument("what comes over the pipe is no frame")
    body = pipe.read(size)
    if len(body) < size:
        raise MalformedDocument("the frame is cut short")
    return head + body


def write(pipe: BinaryIO, frame: bytes) -> None:
    """Send a frame.

    Raises:
        OSError: the other side has ended.
    """
    pipe.write(frame)
    pipe.flush()
